// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// memory is about one unplaced job.
type memory struct {
	uid types.UID
	// noticed is when the job was first seen.
	noticed time.Time
	// attempt is the last one of a Dispatch that somebody has deleted, and previous where the job ran by it.
	attempt  int32
	previous v1alpha1.ClusterName
}

// recall returns what is remembered of a job; of another one of the same name, nothing. The caller holds mu.
func (r *Reconciler) recall(f facts) memory {
	m := r.remembered[client.ObjectKeyFromObject(f.job)]
	if m.uid != f.job.GetUID() {
		m = memory{uid: f.job.GetUID(), noticed: r.Clock.Now()}
	}
	return m
}

// notice returns when an unplaced job was first seen.
func (r *Reconciler) notice(f facts) time.Time {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := r.recall(f)
	r.remembered[client.ObjectKeyFromObject(f.job)] = m
	return m.noticed
}

func (r *Reconciler) forget(key types.NamespacedName) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.remembered, key)
}

// lastAttempt is the highest attempt that is known: that of the Dispatch, of one that somebody has deleted, or of a
// Tombstone, which knows those of which another process has seen the end.
func (r *Reconciler) lastAttempt(f facts) int32 {
	highest := f.buried.attempt
	if f.dispatch != nil {
		return max(highest, f.dispatch.Spec.Attempt)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return max(highest, r.recall(f).attempt)
}

// nextAttempt goes on counting from the last one.
func (r *Reconciler) nextAttempt(f facts) int32 { return record.NextAttempt(r.lastAttempt(f)) }

// exhausted is the verdict on a job for which there is no next attempt. Nil: there is one.
func (r *Reconciler) exhausted(f facts) *dispatch.Decision {
	last := r.lastAttempt(f)
	if last < record.LastAttempt {
		return nil
	}
	return &dispatch.Decision{Reason: v1alpha1.ReasonAttemptsExhausted, Message: fmt.Sprintf(
		"the last attempt of the job is %d, and there is no higher number; delete the TrainJob and create it again", last)}
}

// burial is the last attempt of a job of which there is a Tombstone. The zero value says: there is none.
type burial struct {
	attempt int32
	worker  v1alpha1.ClusterName
}

// buried reads it from the caches.
func (r *Reconciler) buried(ctx context.Context, origin types.UID) (last burial, err error) {
	tombstones, err := records.Tombstones(ctx, r.Hub, origin)
	for i := range tombstones {
		if spec := &tombstones[i].Spec; spec.Attempt > last.attempt {
			last = burial{attempt: spec.Attempt, worker: spec.Cluster}
		}
	}
	return last, err
}

// rememberAttempt keeps the attempt of a Dispatch that has been deleted, in case its job goes on.
func (r *Reconciler) rememberAttempt(d *v1alpha1.Dispatch) {
	r.mu.Lock()
	defer r.mu.Unlock()
	key := client.ObjectKeyFromObject(d)
	m := r.remembered[key]
	if m.uid != d.Spec.TrainJob.UID {
		m = memory{uid: d.Spec.TrainJob.UID, noticed: r.Clock.Now()}
	}
	m.attempt = max(m.attempt, d.Spec.Attempt)
	m.previous = previousOf(d)
	r.remembered[key] = m
}

// previous returns the worker on which a job ran last, empty if it never did.
func (r *Reconciler) previous(f facts) v1alpha1.ClusterName {
	if f.dispatch != nil {
		return previousOf(f.dispatch)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return cmp.Or(r.recall(f).previous, f.buried.worker)
}
