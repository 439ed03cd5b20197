// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hostports

import (
	"math/rand/v2"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func container(ports ...corev1.ContainerPort) corev1.Container { return corev1.Container{Ports: ports} }

func TestOf(t *testing.T) {
	sidecar := container(corev1.ContainerPort{HostPort: 81})
	sidecar.RestartPolicy = ptr.To(corev1.ContainerRestartPolicyAlways)
	tcp := func(port int32) v1alpha1.HostPort { return v1alpha1.HostPort{Port: port, Protocol: corev1.ProtocolTCP} }
	for name, test := range map[string]struct {
		reason string
		pod    corev1.PodSpec
		want   []v1alpha1.HostPort
	}{
		"ContainerPort": {
			reason: "the port of a container takes nothing of the node",
			pod:    corev1.PodSpec{Containers: []corev1.Container{container(corev1.ContainerPort{ContainerPort: 80})}},
		},
		"HostNetwork": {
			reason: "with hostNetwork it takes the port of the node, unless another is given",
			pod: corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{
				container(corev1.ContainerPort{ContainerPort: 80}, corev1.ContainerPort{ContainerPort: 82, HostPort: 82}),
			}},
			want: []v1alpha1.HostPort{tcp(80), tcp(82)},
		},
		"InitContainers": {
			reason: "sidecars take ports, init containers do not",
			pod:    corev1.PodSpec{InitContainers: []corev1.Container{container(corev1.ContainerPort{HostPort: 80}), sidecar}},
			want:   []v1alpha1.HostPort{tcp(81)},
		},
		"Wild": {
			reason: "0.0.0.0 is every address, :: is one, and no protocol is TCP",
			pod: corev1.PodSpec{Containers: []corev1.Container{container(
				corev1.ContainerPort{HostPort: 80, HostIP: "0.0.0.0"}, corev1.ContainerPort{HostPort: 80, Protocol: corev1.ProtocolTCP},
				corev1.ContainerPort{HostPort: 80, HostIP: "::", Protocol: corev1.ProtocolUDP},
			)}},
			want: []v1alpha1.HostPort{tcp(80), {Port: 80, Protocol: corev1.ProtocolUDP, Address: "::"}},
		},
	} {
		t.Run(name, func(t *testing.T) { check.Diff(t, test.want, Of(&test.pod), test.reason) })
	}
}

// conflicts is the rule of the scheduler for the ports of two pods, written for pairs of ports.
func conflicts(a, b corev1.ContainerPort) bool {
	proto := func(p corev1.ContainerPort) corev1.Protocol {
		if p.Protocol == "" {
			return corev1.ProtocolTCP
		}
		return p.Protocol
	}
	everywhere := func(ip string) bool { return ip == "" || ip == "0.0.0.0" }
	return a.HostPort == b.HostPort && proto(a) == proto(b) && (everywhere(a.HostIP) || everywhere(b.HostIP) || a.HostIP == b.HostIP)
}

var (
	addresses = []string{"", "0.0.0.0", "::", "127.0.0.1", "127.0.0.2", "::1"}
	protocols = []corev1.Protocol{"", corev1.ProtocolTCP, corev1.ProtocolUDP, corev1.ProtocolSCTP}
)

// fits says whether a pod has its ports on a node where other pods run.
func fits(running []corev1.PodSpec, pod *corev1.PodSpec) bool {
	used := map[corev1.ResourceName]int64{}
	for i := range running {
		for name, amount := range Amounts(Of(&running[i])) {
			used[name] += amount
		}
	}
	for name, amount := range Amounts(Of(pod)) {
		if amount > Capacity(name)-used[name] {
			return false
		}
	}
	return true
}

// TestPairs: all pairs of addresses and protocols.
func TestPairs(t *testing.T) {
	all := []corev1.ContainerPort{{HostPort: 81}}
	for _, address := range addresses {
		for _, protocol := range protocols {
			all = append(all, corev1.ContainerPort{HostPort: 80, HostIP: address, Protocol: protocol})
		}
	}
	for _, a := range all {
		for _, b := range all {
			first := corev1.PodSpec{Containers: []corev1.Container{container(a)}}
			second := corev1.PodSpec{Containers: []corev1.Container{container(b)}}
			check.Equal(t, !conflicts(a, b), fits([]corev1.PodSpec{first}, &second), "%+v beside %+v", b, a)
		}
	}
}

// TestAgainstTheRule: pods that come to a node one after another are taken and refused as by the scheduler's rule.
func TestAgainstTheRule(t *testing.T) {
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 0))
		var running []corev1.PodSpec
		for range 5 {
			pod := corev1.PodSpec{Containers: []corev1.Container{container(), container()}}
			for range 1 + r.IntN(3) {
				c := &pod.Containers[r.IntN(2)]
				c.Ports = append(c.Ports, corev1.ContainerPort{
					HostPort: 80 + r.Int32N(2), HostIP: addresses[r.IntN(len(addresses))], Protocol: protocols[r.IntN(len(protocols))],
				})
			}
			want := true
			for i := range running {
				for _, a := range portsOf(&running[i]) {
					for _, b := range portsOf(&pod) {
						want = want && !conflicts(a, b)
					}
				}
			}
			if got := fits(running, &pod); got != want {
				t.Fatalf("seed %d: fits is %t, want %t: %+v beside %+v", seed, got, want, pod, running)
			}
			if want {
				running = append(running, pod)
			}
		}
	}
}

func portsOf(pod *corev1.PodSpec) (ports []corev1.ContainerPort) {
	for i := range pod.Containers {
		ports = append(ports, pod.Containers[i].Ports...)
	}
	return ports
}

// TestMax: a pod of more ports than are counted takes all ports that do not count.
func TestMax(t *testing.T) {
	var pod corev1.PodSpec
	for i := range int32(Max + 1) {
		pod.Containers = append(pod.Containers, container(corev1.ContainerPort{HostPort: 1000 + i}))
	}
	amounts := Amounts(Of(&pod))
	check.Equal(t, Max+1, len(amounts), "names")
	check.Equal(t, Capacity(Others), amounts[Others], "other ports")
}

func TestWords(t *testing.T) {
	for i, want := range []string{"host port 29500/TCP", "host port 29500/TCP of address ::1"} {
		port := v1alpha1.HostPort{Port: 29500, Protocol: corev1.ProtocolTCP, Address: []string{"", "::1"}[i]}
		var words []string
		for name := range Amounts([]v1alpha1.HostPort{port}) {
			check.Equal(t, true, Is(name), "%s is a host port", name)
			words = append(words, Words(name))
		}
		check.Equal(t, true, slices.Contains(words, want), "%q has %q", words, want)
	}
	check.Equal(t, false, Is("nvidia.com/gpu"), "a GPU is a host port")
}
