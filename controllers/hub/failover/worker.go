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

const (
	defaultGrace = 5 * time.Minute
	// confirmation is how long this process itself must have found a worker unreachable, unless its grace period is shorter. Of an outage
	// that began before, only the record is known: while nobody looked the worker may have come back.
	confirmation = 30 * time.Second
)

// workerState is what the hub may conclude about a worker.
type workerState int

const (
	// notLost: it answers, or the connection has not given it up yet.
	notLost workerState = iota
	// withinGrace: it has been away for less than its grace period. Nothing is written about its jobs.
	withinGrace
	// unclear: it has been away for longer, and is not known to be unreachable: it is being connected, or answers and cannot be used.
	unclear
	// paused: it is lost, and so are so many others that it is rather the hub that is cut off.
	paused
	// lost: what is done about its jobs says their failover.
	lost
	// elsewhere is about a job only: it was placed on another cluster than the one that the worker's name leads to now.
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

// observation is what has been observed of a worker.
type observation struct {
	name v1alpha1.ClusterName
	// worker is nil if there is no WorkerCluster of that name.
	worker  *v1alpha1.WorkerCluster
	contact Contact
	// losses are how it is with the other workers, and cutOff is true if so many were lost that it is rather the hub that is cut off.
	losses losses
	cutOff bool
}

// judge says how it is with the worker, and when to look again if nothing happens; zero is never.
func (o *observation) judge(now time.Time) (state workerState, again time.Time) {
	if o.worker == nil {
		return gone, time.Time{}
	}
	reason := readyReason(o.worker)
	if o.contact.Answers || answers(reason) {
		return notLost, time.Time{}
	}
	if forget := o.forget(); forget != "" && forget == o.worker.Status.ClusterID {
		return forgotten, time.Time{}
	}
	grace := graceOf(o.worker)
	if due := awaySince(o.worker).Add(grace); now.Before(due) {
		return withinGrace, due
	}
	if reason != v1alpha1.ReasonUnreachable || o.contact.UnreachableSince.IsZero() {
		return unclear, time.Time{}
	}
	if due := o.contact.UnreachableSince.Add(min(grace, confirmation)); now.Before(due) {
		return unclear, due
	}
	if o.cutOff {
		return paused, time.Time{}
	}
	// When a pause ends, the other workers come back one after the other: this one gets its grace period once more.
	if due := pauseEnd(o.worker, now).Add(grace); now.Before(due) {
		return withinGrace, due
	}
	return lost, time.Time{}
}

// stateFor says how it is with the worker of one Dispatch, which may have been placed on another cluster of that name.
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
		return state // A WorkerCluster that was put back, and has not been connected yet.
	default:
		return elsewhere
	}
}

// forget is the ID of the cluster that an admin has had forgotten.
func (o *observation) forget() types.UID {
	return types.UID(o.worker.Annotations[v1alpha1.AnnotationForget])
}

// readyReason is the reason of the Ready condition.
func readyReason(worker *v1alpha1.WorkerCluster) string {
	if ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady); ready != nil {
		return ready.Reason
	}
	return ""
}

// answers says whether jobs are looked after on a worker that is Ready, or not, for this reason. What has no capacity report answers.
func answers(reason string) bool {
	switch reason {
	case v1alpha1.ReasonConnected, v1alpha1.ReasonCapacityReportMissing, v1alpha1.ReasonCapacityReportStale:
		return true
	}
	return false
}

// awaySince is since when a worker has not been usable, by the hub's clock and as it is on record.
func awaySince(worker *v1alpha1.WorkerCluster) time.Time {
	if seen := worker.Status.LastSeenTime; seen != nil {
		return seen.Time
	}
	if ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady); ready != nil {
		return ready.LastTransitionTime.Time
	}
	return worker.CreationTimestamp.Time
}

func graceOf(worker *v1alpha1.WorkerCluster) time.Duration {
	if grace := worker.Spec.Failover.GracePeriod; grace != nil {
		return grace.Duration
	}
	return defaultGrace
}

// pauseEnd is when the pause of a worker ended, which is now if that is not on record yet. Zero: there was none.
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
