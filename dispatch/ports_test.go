// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func hostPort(address string) v1alpha1.HostPort {
	return v1alpha1.HostPort{Port: 29500, Protocol: corev1.ProtocolTCP, Address: address}
}

func onPorts(ports ...v1alpha1.HostPort) func(*v1alpha1.PodSet) {
	return func(set *v1alpha1.PodSet) { set.HostPorts = ports }
}

// taking returns a number of nodes with 8 GPUs on which a pod takes ports.
func taking(count int, ports ...v1alpha1.HostPort) NodeGroup {
	group := gpuNodes(count, 8)
	group.Free.Sub(hostports.Amounts(ports))
	return group
}

func TestFitHostPorts(t *testing.T) {
	wild, one, two := hostPort(""), hostPort("127.0.0.1"), hostPort("127.0.0.2")
	others := gpuNodes(1, 8)
	others.Free[hostports.Others] = 0
	for name, test := range map[string]struct {
		reason  string
		podSets []v1alpha1.PodSet
		nodes   []NodeGroup
		want    string
	}{
		"OnePerNode": {
			reason: "two pods would have room on one node, if not for the port", podSets: []v1alpha1.PodSet{podSet(2, 1, onPorts(wild))},
			nodes: []NodeGroup{gpuNodes(1, 8)},
			want: "lacks 1 node with host port 29500/TCP free; it has room for 1 of 2 pods, 1 node in all; " +
				"because of the host port, each pod needs a node of its own",
		},
		"ANodeEach": {
			reason: "each pod has its own node", podSets: []v1alpha1.PodSet{podSet(2, 1, onPorts(wild))}, nodes: []NodeGroup{gpuNodes(2, 8)},
		},
		"Taken": {
			reason: "another pod has the port", podSets: []v1alpha1.PodSet{podSet(1, 1, onPorts(wild))},
			nodes: []NodeGroup{taking(3, wild)},
			want:  "needs a node with host port 29500/TCP free; no such node, 3 nodes in all; host port 29500/TCP is taken on 3 nodes",
		},
		"TakenOnAnAddress": {
			reason: "all addresses are wanted, and one is taken", podSets: []v1alpha1.PodSet{podSet(1, 1, onPorts(wild))},
			nodes: []NodeGroup{taking(1, one)},
			want:  "needs a node with host port 29500/TCP free; no such node, 1 node in all; host port 29500/TCP is taken on 1 node",
		},
		"SameAddress": {
			reason: "the address is taken", podSets: []v1alpha1.PodSet{podSet(1, 1, onPorts(one))}, nodes: []NodeGroup{taking(1, one)},
			want: "needs a node with host port 29500/TCP of address 127.0.0.1 free; no such node, 1 node in all; " +
				"host port 29500/TCP of address 127.0.0.1 is taken on 1 node",
		},
		"OtherAddress": {
			reason: "another address is taken", podSets: []v1alpha1.PodSet{podSet(1, 1, onPorts(two))}, nodes: []NodeGroup{taking(1, one)},
		},
		"GPUsElsewhere": {
			reason: "the node with the free port has no GPU", podSets: []v1alpha1.PodSet{podSet(1, 8, onPorts(wild))},
			nodes: []NodeGroup{taking(1, wild), gpuNodes(1, 0)},
			want: "needs a node with 8 nvidia.com/gpu and host port 29500/TCP free; no such node, 2 nodes in all; " +
				"host port 29500/TCP is taken on 1 node",
		},
		"NoPorts": {reason: "a pod without ports does not mind", podSets: []v1alpha1.PodSet{podSet(8, 1)}, nodes: []NodeGroup{taking(1, wild)}},
		"TwoPodSets": {
			reason:  "the port of one is the port of the other",
			podSets: []v1alpha1.PodSet{podSet(1, 1, onPorts(wild)), podSet(1, 2, onPorts(wild), named("launcher", v1alpha1.RoleLauncher))},
			nodes:   []NodeGroup{gpuNodes(1, 8)},
			want:    "launcher and node run at the same time and lack 1 node with host port 29500/TCP free",
		},
		"NotCounted": {
			reason: "a node with more ports than are counted has no uncounted port free", podSets: []v1alpha1.PodSet{podSet(1, 1, onPorts(wild))},
			nodes: []NodeGroup{others},
			want:  "needs a node with host port 29500/TCP free; no such node, 1 node in all; host port 29500/TCP is taken on 1 node",
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := ""
			if lack := NewNodes(test.nodes).Fit(test.podSets); lack != nil {
				got = lack.Message
			}
			check.Equal(t, test.want, got, "%s", test.reason)
		})
	}
}

// exclusive says whether pods of all PodSets can run at the same time: it tries every node for every pod.
func exclusive(taken [][]v1alpha1.HostPort, pods [][]v1alpha1.HostPort) bool {
	if len(pods) == 0 {
		return true
	}
	for node := range taken {
		free := true
		for _, a := range taken[node] {
			for _, b := range pods[0] {
				free = free && (a.Port != b.Port || a.Protocol != b.Protocol || a.Address != b.Address && a.Address != "" && b.Address != "")
			}
		}
		if !free {
			continue
		}
		before := taken[node]
		taken[node] = append(before[:len(before):len(before)], pods[0]...)
		fits := exclusive(taken, pods[1:])
		if taken[node] = before; fits {
			return true
		}
	}
	return false
}

func (r random) hostPorts(most int) (ports []v1alpha1.HostPort) {
	for range r.IntN(most + 1) {
		ports = append(ports, v1alpha1.HostPort{
			Port: 80 + int32(r.IntN(2)), Protocol: []corev1.Protocol{corev1.ProtocolTCP, corev1.ProtocolUDP}[r.IntN(2)],
			Address: []string{"", "127.0.0.1", "::"}[r.IntN(3)],
		})
	}
	return ports
}

// TestHostPortsAgainstSearch: gangs come one after another to nodes whose pods take ports. What fits and is reserved is
// what a search over all nodes accepts.
func TestHostPortsAgainstSearch(t *testing.T) {
	for seed := range uint64(2000) {
		r := newRandom(seed)
		var groups []NodeGroup
		taken := make([][]v1alpha1.HostPort, 1+r.IntN(3))
		for i := range taken {
			taken[i] = r.hostPorts(2)
			groups = append(groups, taking(1, taken[i]...))
		}
		nodes := NewNodes(groups)
		var placed [][]v1alpha1.HostPort
		for range 3 {
			set := podSet(int32(1+r.IntN(2)), 0, onPorts(r.hostPorts(2)...))
			pods := placed
			for range set.Count {
				pods = append(pods[:len(pods):len(pods)], set.HostPorts)
			}
			fits := nodes.Fit([]v1alpha1.PodSet{set}) == nil
			possible := exclusive(taken, pods)
			if fits && !possible || !fits && possible && len(placed) == 0 {
				t.Fatalf("seed %d: said to fit: %t, a search finds places: %t\ntaken %v\nplaced %v\ngang %v", seed, fits, possible, taken, placed, set)
			}
			if !fits {
				continue
			}
			nodes, placed = nodes.Reserve([]v1alpha1.PodSet{set}), pods
		}
	}
}

// TestHostPortsOfScores: ports change no score.
func TestHostPortsOfScores(t *testing.T) {
	plain := Job{UID: "job", PodSets: []v1alpha1.PodSet{podSet(1, 4)}}
	ported := Job{UID: "job", PodSets: []v1alpha1.PodSet{podSet(1, 4, onPorts(hostPort("")))}}
	workers := []Worker{worker("a", 2, 8), worker("b", 3, 8)}
	workers[1].Nodes = NewNodes([]NodeGroup{taking(1, hostPort("")), gpuNodes(2, 8)})
	policies := []Policy{policy("p", 0)}
	check.Diff(t, Explain(plain, policies, workers), Explain(ported, policies, workers), "scores without and with host ports")
}

// TestHostPortsOfHold: a gang that waits for ports holds them, and a smaller job with the port does not overtake it.
func TestHostPortsOfHold(t *testing.T) {
	gang := []v1alpha1.PodSet{podSet(2, 1, onPorts(hostPort("")))}
	behind := []v1alpha1.PodSet{podSet(1, 1, onPorts(hostPort("")))}
	nodes, empty := NewNodes([]NodeGroup{taking(1, hostPort("")), gpuNodes(1, 8)}), NewNodes([]NodeGroup{gpuNodes(2, 8)})
	check.Equal(t, int64(1), nodes.Places(gang), "pods of the gang with a place")
	for name, left := range map[string]*Nodes{"Hold": nodes.Hold(gang, empty), "Close": nodes.Close(gang, empty), "Spread": nodes.Spread(behind)} {
		if left.Fit(behind) == nil {
			t.Errorf("%s leaves the port to another job", name)
		}
	}
}

// TestManyPlacedPorts: jobs that take other ports each do not make decisions slower and slower, and no taken port becomes
// free.
func TestManyPlacedPorts(t *testing.T) {
	job := func(port int) []v1alpha1.PodSet {
		return []v1alpha1.PodSet{podSet(1, 0, onPorts(v1alpha1.HostPort{Port: int32(port), Protocol: corev1.ProtocolTCP}))}
	}
	nodes := NewNodes([]NodeGroup{gpuNodes(1, 8)})
	for port := 1; port <= 200; port++ {
		nodes = nodes.Reserve(job(port))
		ports := 0
		for _, name := range nodes.names {
			if hostports.Is(name) {
				ports++
			}
		}
		if ports > hostports.Max+1 {
			t.Fatalf("%d columns after %d ports", ports, port)
		}
	}
	for port := 1; port <= 200; port++ {
		if nodes.Fit(job(port)) == nil {
			t.Errorf("port %d is free again", port)
		}
	}
}
