// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"
	"slices"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// waiting knows all jobs that wait, for workers or for something else, and which runtime each of them names. The zero value is empty.
type waiting struct {
	mu sync.Mutex
	// runtimes are by job, and jobs by runtime. Runtimes of the cluster have no namespace. Both under mu.
	runtimes map[types.NamespacedName]types.NamespacedName
	jobs     map[types.NamespacedName]map[types.NamespacedName]struct{}
}

// put notes that a job waits, and the runtime that it names.
func (w *waiting) put(job, runtime types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.runtimes == nil {
		w.runtimes = map[types.NamespacedName]types.NamespacedName{}
		w.jobs = map[types.NamespacedName]map[types.NamespacedName]struct{}{}
	}
	if before, known := w.runtimes[job]; known && before == runtime {
		return
	}
	w.remove(job)
	w.runtimes[job] = runtime
	if w.jobs[runtime] == nil {
		w.jobs[runtime] = map[types.NamespacedName]struct{}{}
	}
	w.jobs[runtime][job] = struct{}{}
}

// drop notes that a job does not wait any more.
func (w *waiting) drop(job types.NamespacedName) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.remove(job)
}

// remove is drop. The caller holds mu.
func (w *waiting) remove(job types.NamespacedName) {
	runtime, known := w.runtimes[job]
	if !known {
		return
	}
	delete(w.runtimes, job)
	if delete(w.jobs[runtime], job); len(w.jobs[runtime]) == 0 {
		delete(w.jobs, runtime)
	}
}

// of returns the waiting jobs that name a runtime.
func (w *waiting) of(runtime types.NamespacedName) []types.NamespacedName {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Collect(maps.Keys(w.jobs[runtime]))
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

// runtimeOf returns the runtime that a TrainJob names, without a namespace if it is one of the cluster.
func runtimeOf(job *unstructured.Unstructured) types.NamespacedName {
	name, _, _ := unstructured.NestedString(job.Object, "spec", "runtimeRef", "name")
	kind, _, _ := unstructured.NestedString(job.Object, "spec", "runtimeRef", "kind")
	if kind == trainer.TrainingRuntimeKind {
		return types.NamespacedName{Namespace: job.GetNamespace(), Name: name}
	}
	return types.NamespacedName{Name: name}
}
