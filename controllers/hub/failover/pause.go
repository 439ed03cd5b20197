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

// losses counts the other workers: those that were lost at about the same time, and those that answer.
type losses struct {
	away, answering int
}

// lossesWith looks at what happened to the other workers when this one was lost. A worker that has never been connected, or that an
// admin has had forgotten, says nothing about the hub, nor does one that was lost long before; nor one that answers with a refusal.
func lossesWith(worker *v1alpha1.WorkerCluster, all []v1alpha1.WorkerCluster, window time.Duration) losses {
	var l losses
	since := awaySince(worker)
	for i := range all {
		other := &all[i]
		switch {
		case other.Name == worker.Name:
		case answers(readyReason(other)):
			l.answering++
		case isAway(other) && awaySince(other).Sub(since).Abs() <= window:
			l.away++
		}
	}
	return l
}

// isAway is true for a worker that was connected once and cannot be reached now. After a start of the manager those that could not be
// reached before are being connected at first.
func isAway(worker *v1alpha1.WorkerCluster) bool {
	id := worker.Status.ClusterID
	if id == "" || types.UID(worker.Annotations[v1alpha1.AnnotationForget]) == id {
		return false
	}
	reason := readyReason(worker)
	return reason == v1alpha1.ReasonUnreachable || reason == v1alpha1.ReasonConnecting && worker.Status.LastSeenTime != nil
}

// exceed says whether more than a share of the workers that were there were lost with this one.
func (l losses) exceed(share float64) bool {
	lost := float64(l.away + 1)
	return lost > share*(lost+float64(l.answering))
}

// reportPause says on the WorkerCluster whether the jobs of a lost worker are left where they are because it is rather the hub that is
// cut off.
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

// remember takes back that an admin has had a worker forgotten, as soon as it answers: otherwise the next short loss would move its
// jobs at once.
func (r *Reconciler) remember(ctx context.Context, o *observation) error {
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
