// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// users knows which runtime each waiting job names, so that a change of a runtime wakes these jobs and no others. The
// zero value is empty.
type users struct {
	runtimes map[types.NamespacedName]types.NamespacedName // By job. Runtimes of the cluster have no namespace.
	jobs     map[types.NamespacedName]map[types.NamespacedName]struct{}
}

// put notes the runtime that a job names.
func (u *users) put(job, runtime types.NamespacedName) {
	if u.runtimes == nil {
		u.runtimes = map[types.NamespacedName]types.NamespacedName{}
		u.jobs = map[types.NamespacedName]map[types.NamespacedName]struct{}{}
	}
	if before, known := u.runtimes[job]; known && before == runtime {
		return
	}
	u.drop(job)
	u.runtimes[job] = runtime
	if u.jobs[runtime] == nil {
		u.jobs[runtime] = map[types.NamespacedName]struct{}{}
	}
	u.jobs[runtime][job] = struct{}{}
}

// drop forgets a job.
func (u *users) drop(job types.NamespacedName) {
	runtime, known := u.runtimes[job]
	if !known {
		return
	}
	delete(u.runtimes, job)
	if delete(u.jobs[runtime], job); len(u.jobs[runtime]) == 0 {
		delete(u.jobs, runtime)
	}
}

// of returns the jobs that name a runtime.
func (u *users) of(runtime types.NamespacedName) []types.NamespacedName {
	return slices.Collect(maps.Keys(u.jobs[runtime]))
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
