// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// markConcurrent marks the initializers that run at the same time as the other pods. JobSet starts all replicated jobs
// at once, except jobs that depend on another job. So an initializer runs before the others only if each of them waits
// for its end, directly or through other jobs.
func markConcurrent(podSets []v1alpha1.PodSet, jobs []jobsetapply.ReplicatedJobApplyConfiguration) {
	after := endsBefore(jobs)
	for changed := true; changed; { // A concurrent initializer has to wait for the end of the others too.
		changed = false
		for i := range podSets {
			if dispatch.PhaseOf(&podSets[i]) != 0 {
				continue
			}
			for j := range podSets {
				if dispatch.PhaseOf(&podSets[j]) != 0 && !after[podSets[j].Name][podSets[i].Name] {
					podSets[i].Concurrent, changed = true, true
					break
				}
			}
		}
	}
}

// endsBefore returns, for each replicated job, the jobs that have ended when it starts. JobSet lets a job depend only
// on earlier jobs.
func endsBefore(jobs []jobsetapply.ReplicatedJobApplyConfiguration) map[string]map[string]bool {
	after := make(map[string]map[string]bool, len(jobs))
	for i := range jobs {
		ended := map[string]bool{}
		for _, dependency := range jobs[i].DependsOn {
			name := ptr.Deref(dependency.Name, "")
			if ptr.Deref(dependency.Status, "") == jobsetv1alpha2.DependencyComplete {
				ended[name] = true
			}
			for earlier := range after[name] {
				ended[earlier] = true
			}
		}
		after[ptr.Deref(jobs[i].Name, "")] = ended
	}
	return after
}
