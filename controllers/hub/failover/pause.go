// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
)

// losses counts the other workers: workers that were lost at about the same time, and workers that answer.
type losses struct {
	away, answering int
}

// lossesWith counts the other workers that were lost with this worker. Some workers say nothing about the hub: workers
// that were never connected, that an admin has had forgotten, that were lost long before, or that refuse the hub.
func lossesWith(worker *v1alpha1.WorkerCluster, all []v1alpha1.WorkerCluster, window time.Duration) losses {
	var l losses
	since := awaySince(worker)
	for i := range all {
		other := &all[i]
		switch {
		case other.Name == worker.Name:
		case other.Status.Answers():
			l.answering++
		case isAway(other) && awaySince(other).Sub(since).Abs() <= window:
			l.away++
		}
	}
	return l
}

// isAway is true for a worker that was connected once and cannot be reached now. After a start, the manager connects
// all workers again, also workers that it could not reach before.
func isAway(worker *v1alpha1.WorkerCluster) bool {
	id := worker.Status.ClusterID
	if id == "" || types.UID(worker.Annotations[v1alpha1.AnnotationForget]) == id {
		return false
	}
	reason := worker.Status.ReadyReason()
	return reason == v1alpha1.ReasonUnreachable || reason == v1alpha1.ReasonConnecting && worker.Status.LastSeenTime != nil
}

// exceed is true if more than this share of the workers was lost, counted with this worker.
func (l losses) exceed(share float64) bool {
	lost := float64(l.away + 1)
	return lost > share*(lost+float64(l.answering))
}

// reportPause says on the WorkerCluster whether its jobs stay because the hub seems to be cut off.
func (r *Reconciler) reportPause(ctx context.Context, o *observation, state workerState) error {
	if o.worker == nil {
		return nil
	}
	updated := o.worker.DeepCopy()
	conditions := &updated.Status.Conditions
	was := meta.IsStatusConditionTrue(*conditions, v1alpha1.WorkerClusterFailoverPaused)
	condition := metav1.Condition{
		Type: v1alpha1.WorkerClusterFailoverPaused, ObservedGeneration: o.worker.Generation,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()),
	}
	switch state {
	case notLost, forgotten:
		meta.RemoveStatusCondition(conditions, v1alpha1.WorkerClusterFailoverPaused)
	case paused:
		condition.Status, condition.Reason = metav1.ConditionTrue, v1alpha1.ReasonManyWorkersLost
		condition.Message = pausedWords(o.name, r.PauseAt)
		meta.SetStatusCondition(conditions, condition)
	case withinGrace, lost:
		if was {
			condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonWorkersReturned
			condition.Message = resumedWords()
			meta.SetStatusCondition(conditions, condition)
		}
	case unclear, elsewhere, gone:
	}
	if equality.Semantic.DeepEqual(updated.Status, o.worker.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(o.worker, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Status().Patch(ctx, updated, patch, records.FieldOwner); err != nil {
		return fmt.Errorf("patch status of WorkerCluster %q: %w", o.name, err)
	}
	switch {
	case state == paused && !was:
		r.recordPaused(o)
	case was && state != paused:
		r.recordResumed(o)
	}
	return nil
}

// endForgetting removes the annotation with which an admin has had a worker forgotten, as soon as the worker answers.
// Otherwise the next short loss would move its jobs at once.
func (r *Reconciler) endForgetting(ctx context.Context, o *observation) error {
	if !o.contact.Answers || o.forget() == "" || o.forget() != o.worker.Status.ClusterID {
		return nil
	}
	updated := o.worker.DeepCopy()
	delete(updated.Annotations, v1alpha1.AnnotationForget)
	patch := client.MergeFromWithOptions(o.worker, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Patch(ctx, updated, patch, records.FieldOwner); err != nil {
		return fmt.Errorf("patch WorkerCluster %q: %w", o.name, err)
	}
	r.recordRemembered(o)
	return nil
}
