// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestPodLevelRequests: pod-level limits become requests as in defaultPodRequests of kube-apiserver 1.36.
func TestPodLevelRequests(t *testing.T) {
	for name, test := range map[string]struct {
		reason, spec string
		want         corev1.ResourceList
	}{
		"Limits": {
			reason: "without requests, the pod-level limits are requests",
			spec:   "{resources: {limits: {cpu: 4, memory: 8Gi}}, overhead: {cpu: 250m}, containers: [{name: a}]}",
			want:   list("cpu", "4250m", "memory", "8Gi"),
		},
		"Overhead": {
			reason: "overhead comes on top of what the pod requests, instead of what its containers request",
			spec:   "{resources: {requests: {cpu: 2}}, overhead: {cpu: 500m}, containers: [{name: a, resources: {requests: {cpu: 1}}}]}",
			want:   list("cpu", "2500m"),
		},
		"Containers": {
			reason: "what containers request is requested, not the limit of the pod",
			spec: "{resources: {limits: {cpu: 4, memory: 8Gi}}, containers: [{name: a, resources: {requests: {cpu: 1}}}, " +
				"{name: b, resources: {limits: {cpu: 2}}}]}",
			want: list("cpu", "3", "memory", "8Gi"),
		},
		"Both": {
			reason: "a pod-level request stays",
			spec:   "{resources: {requests: {cpu: 3}, limits: {cpu: 4, memory: 8Gi}}, containers: [{name: a, resources: {requests: {cpu: 1}}}]}",
			want:   list("cpu", "3", "memory", "8Gi"),
		},
		"Others": {
			reason: "resources without a pod-level limit are the sum of the containers'",
			spec:   "{resources: {limits: {cpu: 4}}, containers: [{name: a, resources: {limits: {memory: 1Gi, nvidia.com/gpu: 2}}}]}",
			want:   list("cpu", "4", "memory", "1Gi", "nvidia.com/gpu", "2"),
		},
	} {
		t.Run(name, func(t *testing.T) {
			var pod corev1.PodSpec
			check.Must(t, yaml.UnmarshalStrict([]byte(test.spec), &pod))
			got, err := OfPods("node", 1, &pod)
			check.Must(t, err)
			check.Diff(t, test.want, got.Requests, test.reason)
		})
	}
}

// TestHostPorts: the ports of a PodSet are those that its pod takes on a node, and too many or invalid ones are refused.
func TestHostPorts(t *testing.T) {
	many := make([]corev1.ContainerPort, hostports.Max+1)
	for i := range many {
		many[i] = corev1.ContainerPort{ContainerPort: int32(1000 + i)}
	}
	for name, test := range map[string]struct {
		ports []corev1.ContainerPort
		want  []v1alpha1.HostPort
		fault string
	}{
		"Torch":    {ports: []corev1.ContainerPort{{ContainerPort: 29500}}, want: []v1alpha1.HostPort{{Port: 29500, Protocol: corev1.ProtocolTCP}}},
		"Many":     {ports: many, fault: `the replicated jobs take 65 host ports, at most 64 are counted`},
		"Number":   {ports: []corev1.ContainerPort{{ContainerPort: 70000}}, fault: "host port 70000: give a number from 1 to 65535"},
		"Protocol": {ports: []corev1.ContainerPort{{ContainerPort: 80, Protocol: "X"}}, fault: `protocol "X" of host port 80: give TCP, UDP or SCTP`},
		"Address":  {ports: []corev1.ContainerPort{{ContainerPort: 80, HostIP: "x"}}, fault: `hostIP "x" of host port 80: give an IP address`},
	} {
		t.Run(name, func(t *testing.T) {
			set, err := OfPods("node", 1, &corev1.PodSpec{HostNetwork: true, Containers: []corev1.Container{{Name: "a", Ports: test.ports}}})
			if err == nil {
				err = Limit([]v1alpha1.PodSet{set})
			}
			switch {
			case test.fault == "":
				check.Must(t, err)
				check.Diff(t, test.want, set.HostPorts, "host ports")
			case err == nil || !strings.Contains(err.Error(), test.fault):
				t.Errorf("%v, want %q", err, test.fault)
			}
		})
	}
}
