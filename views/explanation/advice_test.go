// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestFitsNowhere: nobody is told to wait for the end of another job if none can help.
func TestFitsNowhere(t *testing.T) {
	for name, tc := range map[string]struct {
		reason  string
		workers []string
		want    bool
	}{
		"None":     {reason: "nothing is known"},
		"Room":     {reason: "an end makes room there", workers: []string{v1alpha1.ReasonPinMismatch, v1alpha1.ReasonInsufficientResources}},
		"Reserved": {reason: "the room may come", workers: []string{v1alpha1.ReasonReserved}},
		"Refused":  {reason: "the worker is asked again", workers: []string{v1alpha1.ReasonRejected}},
		"Nowhere": {
			reason: "a pin to nothing, and a resource that no worker has", want: true,
			workers: []string{v1alpha1.ReasonPinMismatch, v1alpha1.ReasonNoMatchingNode, v1alpha1.ReasonPolicyMismatch, v1alpha1.ReasonCordoned},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var lines []v1alpha1.ClusterExplanation
			for _, reason := range tc.workers {
				lines = append(lines, v1alpha1.ClusterExplanation{Reason: reason})
			}
			check.Equal(t, tc.want, fitsNowhere(lines), "fitsNowhere(%v): %s", tc.workers, tc.reason)
		})
	}
}
