// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"sync"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote"
)

// startup is the time after the start in which the manager does not yet know which copies the workers have. If the hub
// was restored from a backup, a Dispatch may name a worker that its job has left since.
type startup struct {
	mu sync.Mutex
	// began is when this time began, zero before that. until is when it ends at the latest. done: it has ended. Under mu.
	began, until time.Time
	done         bool
}

func (o *startup) begin(now time.Time) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.began, o.until = now, now.Add(records.StartupTime)
}

// isEarly is true as long as a copy may appear on a worker that the previous process has requested.
func (o *startup) isEarly(now time.Time) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.began.IsZero() || now.Sub(o.began) < remote.CreationTimeout
}

// due is true if the caller has to check whether the time is over. If due is false, done says whether it is over.
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

// isStartupOver is true, for ever, once this process has swept each worker that is Ready, or was Ready when it began.
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
	if len(records.Awaited(workers.Items, q.Swept)) > 0 {
		return false
	}
	q.startup.end()
	return true
}
