// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

// openingTime is how long after the start workers are waited for at most.
const openingTime = 30 * time.Second

// opening is the time after the start in which nothing is decided: a worker that was Ready before is still being connected. It may have
// a copy of a job that waits here, if the hub was restored from a backup, and it may have room, so that nobody has to be preempted. And the
// first in order may be a job of Kueue's of which is not known yet whether it may be placed.
type opening struct {
	clock       clock.PassiveClock
	connections Connections
	// shown says whether the copies of a connected worker are known. Nil: they are.
	shown func(worker v1alpha1.ClusterName) bool
	// known says whether it is known which jobs are Kueue's. Nil: none is.
	known func() bool

	until time.Time
	// awaited are the workers, nil until they are known.
	awaited map[v1alpha1.ClusterName]bool
	over    bool
}

// begin starts the time.
func (o *opening) begin() { o.until = o.clock.Now().Add(openingTime) }

// look says whether it is over. Once it is, it stays so, whatever happens to workers.
func (o *opening) look(workers []v1alpha1.WorkerCluster) bool {
	if o.over {
		return true
	}
	waiting := map[v1alpha1.ClusterName]bool{}
	for i := range workers {
		name := v1alpha1.ClusterName(workers[i].Name)
		if wasReady(&workers[i]) && (o.awaited == nil || o.awaited[name]) && !o.isShown(name) {
			waiting[name] = true
		}
	}
	o.awaited = waiting
	o.over = len(waiting) == 0 && (o.known == nil || o.known()) || !o.clock.Now().Before(o.until)
	return o.over
}

// isShown: what the worker has is known.
func (o *opening) isShown(name v1alpha1.ClusterName) bool {
	cluster, ok := o.connections.Get(name)
	return ok && cluster.Status().State == remote.Connected && (o.shown == nil || o.shown(name))
}

// wasReady: the worker was, or at least answered, when this process started, as far as its status says, and nothing is known against it
// since. While it is being connected it is no longer; one that has never been connected has no cluster ID.
func wasReady(worker *v1alpha1.WorkerCluster) bool {
	ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
	if ready == nil || worker.DeletionTimestamp != nil {
		return false
	}
	switch ready.Reason {
	case v1alpha1.ReasonConnecting:
		return worker.Status.ClusterID != ""
	case v1alpha1.ReasonCapacityReportMissing, v1alpha1.ReasonCapacityReportStale: // It takes no jobs, and has copies.
		return true
	}
	return ready.Status == metav1.ConditionTrue
}
