// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// waiting has all jobs that wait, for workers or for something else.
type waiting struct {
	mu sync.Mutex
	// runtimes are the runtimes that the jobs name, under mu. Runtimes of the cluster have no namespace.
	runtimes map[types.NamespacedName]types.NamespacedName
	// withQuota are the jobs that have quota of the hub's Kueue while they wait, under mu.
	withQuota sets.Set[types.NamespacedName]
}

func newWaiting() *waiting {
	return &waiting{
		runtimes: map[types.NamespacedName]types.NamespacedName{}, withQuota: sets.Set[types.NamespacedName]{},
	}
}

// put notes that a job waits, and the runtime that it names.
func (w *waiting) put(key types.NamespacedName, job *unstructured.Unstructured) {
	w.mu.Lock()
	defer w.mu.Unlock()
	_, w.runtimes[key] = trainjobs.RuntimeOf(job)
}

// hasQuota notes whether a waiting job has quota of the hub's Kueue.
func (w *waiting) hasQuota(job types.NamespacedName, has bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.withQuota.Delete(job); has {
		w.withQuota.Insert(job)
	}
}

// keepingQuota returns the waiting jobs that have quota of the hub's Kueue.
func (w *waiting) keepingQuota() []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.withQuota.UnsortedList()
}

// drop notes that a job does not wait any more.
func (w *waiting) drop(job types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.runtimes, job)
	w.withQuota.Delete(job)
}

// naming returns the waiting jobs that name a runtime.
func (w *waiting) naming(runtime types.NamespacedName) (jobs []types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for job, named := range w.runtimes {
		if named == runtime {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// after returns all waiting jobs: first some in the given order, then the others.
func (w *waiting) after(first []types.NamespacedName) []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	others := maps.Clone(w.runtimes)
	for _, key := range first {
		delete(others, key)
	}
	return slices.AppendSeq(first, maps.Keys(others))
}
