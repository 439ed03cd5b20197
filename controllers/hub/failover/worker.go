// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"cmp"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// confirmation is how long this process itself must have found a worker unreachable, unless the grace period is
// shorter. The record alone is not enough: since it was written, the worker may have returned while no manager looked.
const confirmation = 30 * time.Second

// workerState is what the hub may conclude about a worker.
type workerState int

const (
	// notLost: the worker answers, or the connection has not given it up yet.
	notLost workerState = iota
	// withinGrace: the worker has been away for less than its grace period. Nothing is written about its jobs.
	withinGrace
	// unclear: after its grace period, it is not known to be unreachable: it connects, or answers but is not usable. A
	// worker without the TrainJob API has no grace period.
	unclear
	// paused: the worker is lost together with so many others that the hub seems to be cut off.
	paused
	// lost: the failover of each job says what happens to the job.
	lost
	// elsewhere is for a job only: the worker's name now leads to another cluster than the cluster of the job.
	elsewhere
	// gone: the WorkerCluster was deleted, so nothing is known of the worker.
	gone
	// forgotten: an admin has said that nothing runs there any more.
	forgotten
)

// String names the state, for logs and tests.
func (s workerState) String() string {
	return [...]string{"notLost", "withinGrace", "unclear", "paused", "lost", "elsewhere", "gone", "forgotten"}[s]
}

type observation struct {
	name v1alpha1.ClusterName
	// worker is nil if there is no WorkerCluster of that name.
	worker  *v1alpha1.WorkerCluster
	contact Contact
	// losses counts the other workers. cutOff is true if so many were lost that the hub seems to be cut off.
	losses losses
	cutOff bool
}

// stateAt returns the state of the worker. It also returns when to decide again if no event comes, zero for never.
func (o *observation) stateAt(now time.Time) (state workerState, again time.Time) {
	if o.worker == nil {
		return gone, time.Time{}
	}
	if o.contact.Answers || o.worker.Status.Answers() {
		return notLost, time.Time{}
	}
	if forget := o.forget(); forget != "" && forget == o.worker.Status.ClusterID {
		return forgotten, time.Time{}
	}
	if o.worker.Status.ReadyReason() == v1alpha1.ReasonTrainJobAPIMissing {
		return unclear, time.Time{} // It answers, and has said what it lacks: there is nothing to wait for.
	}
	grace := o.worker.GracePeriod()
	if due := awaySince(o.worker).Add(grace); now.Before(due) {
		return withinGrace, due
	}
	if o.worker.Status.ReadyReason() != v1alpha1.ReasonUnreachable || o.contact.UnreachableSince.IsZero() {
		return unclear, time.Time{}
	}
	if due := o.contact.UnreachableSince.Add(min(grace, confirmation)); now.Before(due) {
		return unclear, due
	}
	if o.cutOff {
		return paused, time.Time{}
	}
	// After a pause the workers return one after the other. So this worker gets its grace period once more.
	if due := pauseEnd(o.worker, now).Add(grace); now.Before(due) {
		return withinGrace, due
	}
	return lost, time.Time{}
}

// stateFor returns the state of the worker for one Dispatch, which may be on another cluster of the same name.
func (o *observation) stateFor(d *v1alpha1.Dispatch, state workerState) workerState {
	if o.worker == nil {
		return state
	}
	current := o.worker.Status.ClusterID
	was := cmp.Or(d.Spec.ClusterID, current)
	switch {
	case was == current:
		return state
	case was == o.forget():
		return forgotten
	case current == "":
		return state // The WorkerCluster was created again, and is not connected yet.
	default:
		return elsewhere
	}
}

// forget is the ID of the cluster that an admin has had forgotten.
func (o *observation) forget() types.UID {
	return types.UID(o.worker.Annotations[v1alpha1.AnnotationForget])
}

// awaySince is since when a worker has not been usable, by its record and the hub's clock.
func awaySince(worker *v1alpha1.WorkerCluster) time.Time {
	if seen := worker.Status.LastSeenTime; seen != nil {
		return seen.Time
	}
	if ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady); ready != nil {
		return ready.LastTransitionTime.Time
	}
	return worker.CreationTimestamp.Time
}

// pauseEnd is when the pause of a worker ended. It is now if the end is not on record yet, and zero if there was no
// pause.
func pauseEnd(worker *v1alpha1.WorkerCluster, now time.Time) time.Time {
	condition := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterFailoverPaused)
	switch {
	case condition == nil:
		return time.Time{}
	case condition.Status == metav1.ConditionTrue:
		return now
	default:
		return condition.LastTransitionTime.Time
	}
}
