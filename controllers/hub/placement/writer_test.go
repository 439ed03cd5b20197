// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

func TestPreviousOf(t *testing.T) {
	ended := func(pairs ...string) []v1alpha1.Attempt {
		var history []v1alpha1.Attempt
		for i := 0; i < len(pairs); i += 2 {
			history = append(history, v1alpha1.Attempt{Cluster: v1alpha1.ClusterName(pairs[i]), Outcome: v1alpha1.Outcome(pairs[i+1])})
		}
		return history
	}
	for name, test := range map[string]struct {
		reason string
		status v1alpha1.DispatchStatus
		want   v1alpha1.ClusterName
	}{
		"Never":   {reason: "it has not run yet"},
		"Refused": {reason: "who refused has nothing of the job", status: v1alpha1.DispatchStatus{History: ended("a", "Rejected", "b", "NameConflict")}},
		"Deleted": {reason: "where its copy was", status: v1alpha1.DispatchStatus{History: ended("a", "CopyDeleted")}, want: "a"},
		"NeverLetRun": {
			reason: "where its copy was, but never ran, is nothing of it", want: "a",
			status: v1alpha1.DispatchStatus{History: ended("a", "Drained", "b", "AdmissionTimeout")},
		},
		"Lost": {reason: "who was lost has what it had", status: v1alpha1.DispatchStatus{History: ended("a", "WorkerLost")}, want: "a"},
		"Last": {
			reason: "the last one where it ran", want: "b",
			status: v1alpha1.DispatchStatus{History: ended("a", "CopyDeleted", "b", "CopyDeleted", "c", "Rejected")},
		},
		"Now": {
			reason: "where its copy is", want: "c",
			status: v1alpha1.DispatchStatus{Cluster: "c", CopyUID: "uid", History: ended("a", "CopyDeleted")},
		},
		"NotYet": {
			reason: "where there is no copy yet it has not run", want: "a",
			status: v1alpha1.DispatchStatus{Cluster: "c", History: ended("a", "CopyDeleted")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			if got := previousOf(&v1alpha1.Dispatch{Status: test.status}); got != test.want {
				t.Errorf("previousOf() = %q, want %q: %s", got, test.want, test.reason)
			}
		})
	}
}
