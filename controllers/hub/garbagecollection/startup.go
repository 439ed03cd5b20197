// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// startupTime is how long after the start workers are waited for at most. Placement waits as long.
const startupTime = 30 * time.Second

// startup is the time after the start in which it is not known yet what the workers have. If the hub was restored from a backup, a
// Dispatch may name a worker that its job has left since.
type startup struct {
	mu sync.Mutex
	// began is when it began, zero before; until is when it ends at the latest; done is true once it has ended. Under mu.
	began, until time.Time
	done         bool
}

func (o *startup) begin(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began, o.until = now, now.Add(startupTime)
}

// isEarly is true as long as something may arrive on a worker that the process before has asked for.
func (o *startup) isEarly(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.began.IsZero() || now.Sub(o.began) < arrivalTime
}

// due is true if it has to be looked whether the time is over, which done says otherwise.
func (o *startup) due(now time.Time) (due, done bool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if !o.done && !o.until.IsZero() && !now.Before(o.until) {
		o.done = true
	}
	return !o.done && !o.until.IsZero(), o.done
}

func (o *startup) end() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.done = true
}

// isStartupOver is true once all workers have been swept that are Ready, or were when this process began. Once it is, it stays so.
func (q *Quarantine) isStartupOver(ctx context.Context) bool {
	due, done := q.startup.due(q.Clock.Now())
	if !due {
		return done
	}
	var workers v1alpha1.WorkerClusterList
	if err := q.Hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing WorkerClusters from the cache did not work")
		return false
	}
	for i := range workers.Items {
		if isExpected(&workers.Items[i]) && !q.Swept(v1alpha1.ClusterName(workers.Items[i].Name)) {
			return false
		}
	}
	q.startup.end()
	return true
}

// isExpected: the worker answers by its status, or is just being connected and has been before.
func isExpected(worker *v1alpha1.WorkerCluster) bool {
	ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
	if ready == nil || worker.DeletionTimestamp != nil {
		return false
	}
	switch ready.Reason {
	case v1alpha1.ReasonConnecting:
		return worker.Status.ClusterID != ""
	case v1alpha1.ReasonCapacityReportMissing, v1alpha1.ReasonCapacityReportStale: // What is there is looked after.
		return true
	}
	return ready.Status == metav1.ConditionTrue
}
