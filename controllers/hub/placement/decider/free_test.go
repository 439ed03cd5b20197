// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
)

func TestUnbound(t *testing.T) {
	podSets := []v1alpha1.PodSet{{Name: "initializer", Count: 1}, {Name: "node", Count: 4}}
	for name, test := range map[string]struct {
		reason string
		pods   map[string]capacity.GangPods
		want   []v1alpha1.PodSet
	}{
		"NothingSeen": {reason: "all is still to come", want: podSets},
		"Partly": {
			reason: "a pod counts once: as bound, or as demand",
			pods:   map[string]capacity.GangPods{"initializer": {Succeeded: 1}, "node": {Bound: 1, Succeeded: 1}},
			want:   []v1alpha1.PodSet{{Name: "node", Count: 2}},
		},
		"All": {reason: "nothing is left", pods: map[string]capacity.GangPods{"initializer": {Succeeded: 1}, "node": {Bound: 4}}},
		"More": {
			reason: "pods that are being replaced are more than the demand",
			pods:   map[string]capacity.GangPods{"initializer": {Bound: 2}, "node": {Bound: 7}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, unbound(podSets, test.pods)); diff != "" {
				t.Errorf("unbound(): %s (-want +got):\n%s", test.reason, diff)
			}
		})
	}
}
