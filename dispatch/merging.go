// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Merging says what a worker makes of the resources of a runtime and of spec.trainer.resourcesPerNode of a TrainJob.
type Merging uint8

const (
	// Merges means that the pods request both, merged, as the hub counts them.
	Merges Merging = iota
	// Replaces means that the pods request only the resources of the TrainJob.
	Replaces
	// MayReplace means that it is not known which of both.
	MayReplace
)

// mergingRelease is the first release of the Kubeflow Trainer that merges.
const mergingRelease = "2.3"

// MergingOf returns what a worker does. The worker-agent merges. Without an agent a Kubeflow Trainer runs the TrainJobs, and
// the CRDs say its release.
func MergingOf(cluster *v1alpha1.WorkerCluster) Merging {
	api := cluster.Status.Trainer
	if api == nil {
		return Merges // Nothing is known of the worker, and no job comes to it yet.
	}
	agent := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.WorkerClusterAgentReady)
	if agent != nil && agent.Reason != v1alpha1.ReasonAgentMissing {
		return Merges
	}
	switch behind, known := fields.Lag(api.Release, mergingRelease); {
	case known && behind <= 0:
		return Merges
	case known && agent != nil:
		return Replaces
	}
	return MayReplace
}

// countedBy says by what the pods of a job are counted on a worker where they are not counted as on the hub.
func countedBy(w *Worker) string {
	switch w.Merging {
	case Replaces:
		return "; the pods are counted as the worker makes them: with the resources of spec.trainer.resourcesPerNode in place of the runtime's" +
			release(w)
	case MayReplace:
		return "; assumed: it is not known whether the worker merges spec.trainer.resourcesPerNode with the resources of the runtime, " +
			"so the larger amounts count" + release(w)
	case Merges:
	}
	return "; the pods are counted as the worker's admission makes them"
}

// mergingNote says that the pods of the job request something else on the worker than on the hub.
func (j *Job) mergingNote(w *Worker) string {
	if _, changed := j.Admitted[w.Name]; !changed || w.Merging == Merges {
		return ""
	}
	return countedBy(w)
}
