// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
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

// nextAttempt goes on counting from the Dispatch, or from the one that somebody has deleted.
func (r *Reconciler) nextAttempt(f facts) int32 {
	if f.dispatch != nil {
		return f.dispatch.Spec.Attempt + 1
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.recall(f).attempt + 1
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
	return r.recall(f).previous
}
