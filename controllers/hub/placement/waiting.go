// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
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

// waiting has the jobs that wait, for workers or for something else, and the past of unplaced jobs as far as the caches
// do not tell it.
type waiting struct {
	clock clock.PassiveClock

	mu sync.Mutex
	// jobs are the jobs that wait, under mu.
	jobs map[types.NamespacedName]waitingJob
	// pasts are under mu.
	pasts map[types.NamespacedName]*past
}

// waitingJob is what is known of a job that waits.
type waitingJob struct {
	// runtime is what the job names. A runtime of the cluster has no namespace.
	runtime types.NamespacedName
	// hasQuota: the job has quota of the hub's Kueue while it waits.
	hasQuota bool
}

func newWaiting(clock clock.PassiveClock) *waiting {
	return &waiting{
		clock: clock, jobs: map[types.NamespacedName]waitingJob{}, pasts: map[types.NamespacedName]*past{},
	}
}

// put notes that a job waits, the runtime that it names, and whether it has quota of the hub's Kueue.
func (w *waiting) put(job *unstructured.Unstructured, hasQuota bool) {
	_, runtime := trainjobs.RuntimeOf(job)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobs[client.ObjectKeyFromObject(job)] = waitingJob{runtime: runtime, hasQuota: hasQuota}
}

// drop notes that a job does not wait any more. It may wait again.
func (w *waiting) drop(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.jobs, key)
}

// forget notes that a job does not wait any more, and that its record has its past.
func (w *waiting) forget(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.jobs, key)
	delete(w.pasts, key)
}

// has is true for a job that waits.
func (w *waiting) has(key types.NamespacedName) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, waits := w.jobs[key]
	return waits
}

// keepingQuota returns the waiting jobs that have quota of the hub's Kueue.
func (w *waiting) keepingQuota() []types.NamespacedName {
	return w.those(func(_ types.NamespacedName, job waitingJob) bool { return job.hasQuota })
}

// naming returns the waiting jobs that name a runtime.
func (w *waiting) naming(runtime types.NamespacedName) []types.NamespacedName {
	return w.those(func(_ types.NamespacedName, job waitingJob) bool { return job.runtime == runtime })
}

// after returns all waiting jobs: first some in the given order, then the others.
func (w *waiting) after(first []types.NamespacedName) []types.NamespacedName {
	ordered := sets.New(first...)
	return append(first, w.those(func(key types.NamespacedName, _ waitingJob) bool { return !ordered.Has(key) })...)
}

func (w *waiting) those(meant func(types.NamespacedName, waitingJob) bool) (keys []types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key, job := range w.jobs {
		if meant(key, job) {
			keys = append(keys, key)
		}
	}
	return keys
}

// past returns the past of a job, and begins it with the first call.
func (w *waiting) past(key types.NamespacedName, uid types.UID) past {
	w.mu.Lock()
	defer w.mu.Unlock()
	return *w.at(key, uid)
}

// at is past. It replaces the past of an earlier job of the name. The caller holds mu.
func (w *waiting) at(key types.NamespacedName, uid types.UID) *past {
	if p := w.pasts[key]; p == nil || p.uid != uid {
		w.pasts[key] = &past{uid: uid, firstSeen: w.clock.Now()}
	}
	return w.pasts[key]
}

// deleted keeps the attempt of a Dispatch that has been deleted, in case its job goes on.
func (w *waiting) deleted(d *v1alpha1.Dispatch) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.at(client.ObjectKeyFromObject(d), d.Spec.TrainJob.UID)
	p.attempt = max(p.attempt, d.Spec.Attempt)
	p.worker = previousOf(d)
}

// explained notes that the explanation of a job has been written.
func (w *waiting) explained(key types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if p := w.pasts[key]; p != nil {
		p.explained = w.clock.Now()
	}
}

// hope notes whether a worker could take the job if no other job ran there. It returns since when none could, the zero
// time if one can.
func (w *waiting) hope(key types.NamespacedName, hopeful bool) (since time.Time) {
	w.mu.Lock()
	defer w.mu.Unlock()
	p := w.pasts[key]
	switch {
	case p == nil:
		return time.Time{}
	case hopeful:
		p.hopeless = time.Time{}
	case p.hopeless.IsZero():
		p.hopeless = w.clock.Now()
	}
	return p.hopeless
}
