// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// past is what is known of the earlier attempts of an unplaced job.
type past struct {
	uid types.UID
	// attempt is the last attempt, and worker is where the job ran last, empty if it never ran.
	attempt int32
	worker  v1alpha1.ClusterName
	// firstSeen is when this process saw the job first, and explained is when its explanation was last written.
	firstSeen, explained time.Time
	// hopeless is since when no worker could take the job even if no other job ran there, zero if one could.
	hopeless time.Time
}

// history is the past of unplaced jobs as far as the caches do not tell it.
type history struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// jobs under mu.
	jobs map[types.NamespacedName]past
}

// of returns the past of a job, and begins it with the first call.
func (h *history) of(key types.NamespacedName, uid types.UID) past {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.at(key, uid)
}

// at is of. It replaces the past of an earlier job of the name. The caller holds mu.
func (h *history) at(key types.NamespacedName, uid types.UID) past {
	p := h.jobs[key]
	if p.uid != uid {
		p = past{uid: uid, firstSeen: h.clock.Now()}
		h.jobs[key] = p
	}
	return p
}

// deleted keeps the attempt of a Dispatch that has been deleted, in case its job goes on.
func (h *history) deleted(d *v1alpha1.Dispatch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	key := client.ObjectKeyFromObject(d)
	p := h.at(key, d.Spec.TrainJob.UID)
	p.attempt = max(p.attempt, d.Spec.Attempt)
	p.worker = previousOf(d)
	h.jobs[key] = p
}

// explained notes that the explanation of a job has been written.
func (h *history) explained(key types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if p, known := h.jobs[key]; known {
		p.explained = h.clock.Now()
		h.jobs[key] = p
	}
}

// hope notes whether a worker could take the job if no other job ran there. It returns since when none could, the zero
// time if one can.
func (h *history) hope(key types.NamespacedName, hopeful bool) (since time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	p, known := h.jobs[key]
	switch {
	case hopeful || !known:
		p.hopeless = time.Time{}
	case p.hopeless.IsZero():
		p.hopeless = h.clock.Now()
	}
	if known {
		h.jobs[key] = p
	}
	return p.hopeless
}

func (h *history) forget(key types.NamespacedName) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.jobs, key)
}

// past returns what the Dispatch of an unplaced job says of its earlier attempts. If somebody has deleted the Dispatch,
// past returns what it said last. Tombstones have the attempts whose end another process has seen.
func (r *Reconciler) past(ctx context.Context, f observation) (past, error) {
	p := r.history.of(client.ObjectKeyFromObject(f.job), f.job.GetUID())
	if f.dispatch != nil {
		p.attempt, p.worker = f.dispatch.Spec.Attempt, previousOf(f.dispatch)
	}
	tombstones, err := records.Tombstones(ctx, r.Hub, f.job.GetUID())
	var last v1alpha1.TombstoneSpec
	for i := range tombstones {
		if spec := &tombstones[i].Spec; spec.Attempt > last.Attempt {
			last = *spec
		}
	}
	p.attempt = max(p.attempt, last.Attempt)
	if f.dispatch == nil {
		p.worker = cmp.Or(p.worker, last.Cluster)
	}
	return p, err
}

// exhausted says why a job without a next attempt waits. Nil: there is a next attempt.
func exhausted(p past) *dispatch.Decision {
	if p.attempt < record.LastAttempt {
		return nil
	}
	return &dispatch.Decision{Reason: v1alpha1.ReasonAttemptsExhausted, Message: fmt.Sprintf(
		"the last attempt of the job is %d, and there is no higher number; delete the TrainJob and create it again", p.attempt)}
}
