// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TestPreference: the order of the policy decides, whichever of its workers there are.
func TestPreference(t *testing.T) {
	order := v1alpha1.Score{Name: v1alpha1.ScorePreference, Order: []v1alpha1.ClusterName{"first", "second", "gone", "fourth"}}
	policy := Policy{DispatchPolicy: &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{Scoring: []v1alpha1.Score{order}}}}
	var workers []Worker
	want := map[v1alpha1.ClusterName]int32{"unlisted": 0, "fourth": 25, "second": 75, "first": 100}
	for _, name := range []v1alpha1.ClusterName{"unlisted", "fourth", "second", "first"} {
		workers = append(workers, Worker{Name: name, Nodes: NewNodes([]NodeGroup{gpuNodes(1, 8)})})
	}
	job := Job{UID: "job", PodSets: []v1alpha1.PodSet{podSet(1, 1)}}
	for _, line := range Explain(job, []Policy{policy}, workers) {
		if line.Score == nil || *line.Score != want[line.Cluster] {
			t.Errorf("%s: score %v, want %d", line.Cluster, line.Score, want[line.Cluster])
		}
	}
	for len(workers) > 0 {
		last := len(workers) - 1
		if got := Decide(job, []Policy{policy}, workers); got.Cluster != workers[last].Name {
			t.Errorf("of %d workers %s gets the job", len(workers), got.Cluster)
		}
		workers = workers[:last]
	}
}
