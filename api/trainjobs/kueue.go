// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// KueueManager is the key of Kueue's own entry in spec.runtimePatches. Each cluster's Kueue looks after its own.
const KueueManager = "kueue.x-k8s.io/manager"

// QueuedByKueue is true for a job that the Kueue of its own cluster has in the queue of the job's label. Kueue adds its
// entry to the runtimePatches of each job that is created, also if it does not manage the job. When Kueue starts a job,
// it writes the replicated jobs into the entry, whatever the flavors are. Before that the job is suspended.
func QueuedByKueue(job *unstructured.Unstructured) bool {
	if job.GetLabels()[v1alpha1.LabelLocalQueue] == "" {
		return false
	}
	patches, _, _ := unstructured.NestedFieldNoCopy(job.Object, "spec", "runtimePatches")
	all, _ := patches.([]any)
	for _, patch := range all {
		fields, _ := patch.(map[string]any)
		if manager, _ := fields["manager"].(string); manager != KueueManager {
			continue
		}
		started, _, _ := unstructured.NestedFieldNoCopy(fields, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
		replicatedJobs, _ := started.([]any)
		return len(replicatedJobs) > 0 || Suspended(job)
	}
	return false
}
