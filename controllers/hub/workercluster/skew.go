// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// maxLag is by how many minor releases of the Kubeflow Trainer a worker may be older than the hub.
const maxLag = 2

// setSkew says whether the releases on the hub and on the worker are too far apart.
func (r *Reconciler) setSkew(worker *v1alpha1.WorkerCluster, status *v1alpha1.WorkerClusterStatus, now time.Time) {
	if r.Release == nil {
		return
	}
	reason, message := skewOf(r.Release(), status.Trainer.Release)
	if reason == "" {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.WorkerClusterSkewUnsupported)
		return
	}
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.WorkerClusterSkewUnsupported, Status: metav1.ConditionTrue, ObservedGeneration: worker.Generation,
		LastTransitionTime: metav1.NewTime(now), Reason: reason, Message: message,
	})
}

// skewOf returns reason and message of SkewUnsupported, empty texts if two releases may work together, or if one of them
// is not known.
func skewOf(hub, worker string) (reason, message string) {
	lag, known := fields.Lag(worker, hub)
	switch {
	case known && lag < 0:
		return v1alpha1.ReasonWorkerNewer, fmt.Sprintf("the worker has the TrainJobs of Kubeflow Trainer %s and the hub those of %s, "+
			"and a hub should be at least as new as its workers: upgrade the CRDs of the hub first", worker, hub)
	case known && lag > maxLag:
		return v1alpha1.ReasonWorkerTooOld, fmt.Sprintf("the worker has the TrainJobs of Kubeflow Trainer %s and the hub those of %s, "+
			"and a worker should be at most %d minor releases behind its hub: upgrade the worker", worker, hub, maxLag)
	}
	return "", ""
}
