// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

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
