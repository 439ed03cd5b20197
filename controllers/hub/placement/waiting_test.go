// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/test/check"
)

// A change of a runtime wakes the waiting jobs that name it, and nobody else's.
func TestRuntimeWakesItsJobs(t *testing.T) {
	var woken []string
	clock := clocktesting.NewFakePassiveClock(time.Time{})
	w := &watches{waiting: newWaiting(clock), wake: func(jobs ...types.NamespacedName) {
		for _, key := range jobs {
			woken = append(woken, key.String())
		}
	}}
	stand := func(namespace, name, kind, runtime string) {
		job := trainjobs.New()
		job.SetNamespace(namespace)
		job.SetName(name)
		reference := map[string]any{"name": runtime}
		if kind != "" {
			reference["kind"] = kind
		}
		job.Object["spec"] = map[string]any{"runtimeRef": reference}
		w.waiting.put(job, false)
	}
	stand("a", "own", trainer.TrainingRuntimeKind, "torch")
	stand("b", "own", trainer.TrainingRuntimeKind, "torch")
	stand("a", "shared", "", "torch")
	stand("b", "shared", trainer.ClusterTrainingRuntimeKind, "torch")
	stand("b", "changed", "", "torch")
	stand("b", "changed", "", "other")
	stand("b", "gone", "", "torch")
	w.waiting.drop(types.NamespacedName{Namespace: "b", Name: "gone"})
	for name, test := range map[string]struct {
		runtime client.Object
		want    []string
	}{
		"Own":    {runtime: &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "torch"}}, want: []string{"a/own"}},
		"Shared": {runtime: &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch"}}, want: []string{"a/shared", "b/shared"}},
		"Nobody": {runtime: &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: "c", Name: "torch"}}},
	} {
		t.Run(name, func(t *testing.T) {
			woken = nil
			w.runtimes().Update(t.Context(), event.UpdateEvent{ObjectOld: test.runtime, ObjectNew: test.runtime}, nil)
			slices.Sort(woken)
			check.Diff(t, test.want, woken, "jobs that are looked at")
		})
	}
}
