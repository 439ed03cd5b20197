// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

const runtimeName = "own"

// ownRuntime has the job name a runtime of its namespace, which is on the hub.
func (s *scene) ownRuntime(t *testing.T) *trainer.TrainingRuntime {
	t.Helper()
	source := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch-distributed"}}
	must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(source), source))
	own := &trainer.TrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: s.key.Namespace, Name: runtimeName, Labels: map[string]string{"trainer.kubeflow.org/framework": "torch", "team": "a"},
		},
		Spec: source.Spec,
	}
	own.Spec.MLPolicy.NumNodes = ptr.To[int32](3)
	must(t, s.Hub.Admin.Create(t.Context(), own))
	return own
}

// ownRuntimeOf is the setting of a job that names it.
func ownRuntimeOf() setting {
	return setting{spec: map[string]any{"runtimeRef": map[string]any{
		"apiGroup": "trainer.kubeflow.org", "kind": trainer.TrainingRuntimeKind, "name": runtimeName,
	}}}
}

// there is the runtime on the worker, once the worker's cache shows it.
func (s *scene) there(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	found := &unstructured.Unstructured{}
	found.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind))
	eventually(t, "runtime on the worker", func(g gomega.Gomega) {
		key := client.ObjectKey{Namespace: s.key.Namespace, Name: runtimeName}
		g.Expect(s.worker.Admin.Get(t.Context(), key, found)).To(gomega.Succeed())
		seen := &metav1.PartialObjectMetadata{}
		seen.SetGroupVersionKind(found.GroupVersionKind())
		g.Expect(s.worker.Connection.Cache().Get(t.Context(), key, seen)).To(gomega.Succeed())
		g.Expect(seen.ResourceVersion).To(gomega.Equal(found.GetResourceVersion()))
	})
	return found
}

// nextAttempt makes the job need a copy again, and everything that a copy needs.
func (s *scene) nextAttempt(t *testing.T) {
	t.Helper()
	if copy := s.copy(t); copy != nil {
		must(t, s.worker.Admin.Delete(t.Context(), copy))
		s.settle(t)
	}
	d := s.dispatch(t)
	d.Spec.Attempt++
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.reconcile(t)
}

// If a runtime on a worker came from the hub, it follows the hub's runtime: a field that is removed on the hub is
// removed on the worker, whoever wrote it last. Annotations of the worker's admin stay.
func TestRuntimeIsReplaced(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		// before happens to the worker's runtime before the hub's runtime is changed.
		before func(t *testing.T, s *scene, onWorker *unstructured.Unstructured)
	}{
		"Changed": {reason: "the usual course"},
		"Noted": {reason: "an annotation is somebody else's", before: func(t *testing.T, s *scene, onWorker *unstructured.Unstructured) {
			t.Helper()
			annotations := onWorker.GetAnnotations()
			annotations["example.com/note"] = "keep"
			onWorker.SetAnnotations(annotations)
			must(t, s.worker.Admin.Update(t.Context(), onWorker))
		}},
		"NoAnnotations": {reason: "somebody has removed ours", before: func(t *testing.T, s *scene, onWorker *unstructured.Unstructured) {
			t.Helper()
			onWorker.SetAnnotations(nil)
			must(t, s.worker.Admin.Update(t.Context(), onWorker))
		}},
		"Applied": {reason: "an earlier release applied it", before: func(t *testing.T, s *scene, onWorker *unstructured.Unstructured) {
			t.Helper()
			applied := &unstructured.Unstructured{Object: map[string]any{"spec": onWorker.Object["spec"]}}
			applied.SetGroupVersionKind(onWorker.GroupVersionKind())
			applied.SetNamespace(onWorker.GetNamespace())
			applied.SetName(onWorker.GetName())
			applied.SetLabels(onWorker.GetLabels())
			must(t, s.worker.Admin.Apply(t.Context(), client.ApplyConfigurationFromUnstructured(applied), client.FieldOwner("trainyard"), client.ForceOwnership))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, ownRuntimeOf())
			own := s.ownRuntime(t)
			s.reconcile(t)
			onWorker := s.there(t)
			if tc.before != nil {
				tc.before(t, s, onWorker)
				onWorker = s.there(t)
			}
			own.Spec.MLPolicy.NumNodes = nil
			delete(own.Labels, "team")
			must(t, s.Hub.Admin.Update(t.Context(), own))
			s.nextAttempt(t)

			now := s.there(t)
			if nodes, found, _ := unstructured.NestedInt64(now.Object, "spec", "mlPolicy", "numNodes"); found && nodes == 3 {
				t.Errorf("%s: numNodes is still 3 on the worker", tc.reason)
			}
			want := map[string]string{"trainer.kubeflow.org/framework": "torch", v1alpha1.LabelPropagatedBy: stage.HubID}
			check.Diff(t, want, now.GetLabels(), "labels")
			source := fmt.Sprintf("%s.%d.replaced", own.UID, own.Generation)
			check.Equal(t, source, now.GetAnnotations()[v1alpha1.AnnotationSource], "the source")
			check.Equal(t, now.GetAnnotations()["example.com/note"], onWorker.GetAnnotations()["example.com/note"],
				"the note of the worker's admin is gone")
			s.nextAttempt(t)
			check.Equal(t, now.GetResourceVersion(), s.there(t).GetResourceVersion(),
				"the runtime was written again, though nothing has changed")
		})
	}
}

// A runtime that an earlier release wrote, and says that it is up to date, is replaced once.
func TestRuntimeOfAnEarlierRelease(t *testing.T) {
	s := newScene(t, ownRuntimeOf())
	own := s.ownRuntime(t)
	left := own.DeepCopy()
	left.ResourceVersion, left.UID = "", ""
	left.Labels[v1alpha1.LabelPropagatedBy] = stage.HubID
	left.Annotations = map[string]string{v1alpha1.AnnotationSource: fmt.Sprintf("%s.%d", own.UID, own.Generation)}
	left.Spec.MLPolicy.NumNodes = ptr.To[int32](7) // It was taken out of the hub's before.
	must(t, s.worker.Admin.Create(t.Context(), left))
	s.there(t)
	s.reconcile(t)
	now := s.there(t)
	if nodes, _, _ := unstructured.NestedInt64(now.Object, "spec", "mlPolicy", "numNodes"); nodes != 3 {
		t.Errorf("numNodes is %d on the worker, want 3, as on the hub", nodes)
	}
}

// fieldAdder reads runtimes with a field that no worker of these tests knows.
type fieldAdder struct{ client.Reader }

// Get implements client.Reader.
func (r fieldAdder) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, object, options...)
	if runtime, ok := object.(*unstructured.Unstructured); ok && err == nil && runtime.GetKind() == trainer.TrainingRuntimeKind {
		return unstructured.SetNestedField(runtime.Object, "x", "spec", "mlPolicy", "ofTomorrow")
	}
	return err
}

// A field of a runtime that the worker does not know is a refusal that names it, never lost in silence.
func TestRuntimeFieldThatTheWorkerDoesNotKnow(t *testing.T) {
	for name, exists := range map[string]bool{"Created": false, "Replaced": true, "Pinned": false} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, ownRuntimeOf())
			if name == "Pinned" {
				s = newPinnedScene(t, ownRuntimeOf())
			}
			own := s.ownRuntime(t)
			if exists {
				s.reconcile(t)
				s.there(t)
				own.Spec.MLPolicy.NumNodes = nil
				must(t, s.Hub.Admin.Update(t.Context(), own))
				must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
				s.settle(t)
				d := s.dispatch(t)
				d.Spec.Attempt++
				must(t, s.Hub.Admin.Update(t.Context(), d))
			}
			s.options.HubReader = fieldAdder{s.Hub.Admin}
			s.restart()
			s.Clock.Step(time.Minute) // The hub's caches are believed.
			s.reconcile(t)
			s.expectEnd(t, v1alpha1.OutcomeRejected, `unknown field "spec.mlPolicy.ofTomorrow"`, runtimeName)
			check.Equal(t, nil, s.copy(t), "there is a copy")
		})
	}
}

// A runtime that has become somebody else's since it was read is left alone.
func TestRuntimeThatBecameForeign(t *testing.T) {
	s := newScene(t, ownRuntimeOf())
	own := s.ownRuntime(t)
	s.reconcile(t)
	onWorker := s.there(t)
	must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
	s.settle(t)
	lagging := s.stuck(t, s.worker.Cluster, &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{
		APIVersion: trainer.SchemeGroupVersion.String(), Kind: trainer.TrainingRuntimeKind,
	}})
	must(t, s.worker.Admin.Delete(t.Context(), onWorker))
	foreign := own.DeepCopy()
	foreign.ResourceVersion, foreign.UID, foreign.Labels = "", "", map[string]string{"of": "somebody"}
	foreign.Spec.MLPolicy.NumNodes = ptr.To[int32](5)
	must(t, s.worker.Admin.Create(t.Context(), foreign))
	own.Spec.MLPolicy.NumNodes = nil
	must(t, s.Hub.Admin.Update(t.Context(), own))
	d := s.dispatch(t)
	d.Spec.Attempt++
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.options.Worker = stuckWorker{cached: lagging, live: s.worker.Admin}
	s.restart()
	result, err := s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key})
	if err != nil || result.RequeueAfter <= 0 {
		t.Errorf("it ends with %v, %v; want it to look again: %+v", result, err, s.dispatch(t).Status)
	}
	now := s.there(t)
	if nodes, _, _ := unstructured.NestedInt64(now.Object, "spec", "mlPolicy", "numNodes"); nodes != 5 || now.GetLabels()["of"] != "somebody" {
		t.Error("the foreign runtime was changed")
	}
}

// Kueue stops and queues again a job whose runtime changes. So a runtime that such copies use stays as it is, and the
// next job gets the newer version under another name. Without a Workload, or after the end of the copy, it follows the
// hub's.
func TestRuntimeInUse(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		kueue  bool
		// before happens before the hub's runtime is changed. user is another copy that uses it.
		before func(t *testing.T, s *scene, user *unstructured.Unstructured)
		beside bool
	}{
		"Queued":     {reason: "Kueue would stop the other copy", kueue: true, before: workloadOf, beside: true},
		"NoWorkload": {reason: "Kueue does not manage the other copy", kueue: true},
		"NoKueue":    {reason: "a changed runtime alone stops nothing"},
		"Ended": {reason: "nothing can be stopped", kueue: true, before: func(t *testing.T, s *scene, user *unstructured.Unstructured) {
			t.Helper()
			workloadOf(t, s, user)
			user.Object["status"] = map[string]any{"conditions": []any{map[string]any{
				"type": "Complete", "status": "True", "reason": "JobsCompleted", "message": "m", "lastTransitionTime": "2026-01-02T03:04:05Z",
			}}}
			must(t, s.worker.Admin.Status().Update(t.Context(), user))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, ownRuntimeOf())
			if tc.kueue {
				s.installKueue(t)
			}
			own := s.ownRuntime(t)
			s.reconcile(t)
			before := s.there(t)
			user := s.copy(t).DeepCopy()
			user.SetName(s.key.Name + "-user")
			user.SetUID("")
			user.SetResourceVersion("")
			delete(user.Object, "status")
			must(t, s.worker.Admin.Create(t.Context(), user))
			if tc.before != nil {
				tc.before(t, s, user)
			}
			s.settleCopy(t, user)
			own.Spec.MLPolicy.NumNodes = nil
			must(t, s.Hub.Admin.Update(t.Context(), own))
			s.nextAttempt(t)

			copy := s.copy(t)
			if copy == nil {
				t.Fatalf("there is no copy: %+v", s.dispatch(t).Status)
			}
			_, key := trainjobs.RuntimeOf(copy)
			if beside := key.Name != runtimeName; beside != tc.beside {
				t.Fatalf("the copy names runtime %q: %s", key.Name, tc.reason)
			}
			used := &trainer.TrainingRuntime{}
			must(t, s.worker.Admin.Get(t.Context(), key, used))
			if used.Spec.MLPolicy.NumNodes != nil && *used.Spec.MLPolicy.NumNodes == 3 {
				t.Errorf("the copy has the earlier version of the runtime: %s", tc.reason)
			}
			changed := s.there(t).GetResourceVersion() != before.GetResourceVersion()
			if changed == tc.beside {
				t.Errorf("the runtime that the other copy uses was changed: %t: %s", changed, tc.reason)
			}
			s.nextAttempt(t)
			if _, again := trainjobs.RuntimeOf(s.copy(t)); again != key {
				t.Errorf("the next copy names runtime %q, want %q", again.Name, key.Name)
			}
			s.expectQuiet(t, "the copy is as it should be")
		})
	}
}

// A worker where somebody else's runtime has the name of the newer version is left out.
func TestNameOfTheNewerRuntimeIsTaken(t *testing.T) {
	s := newScene(t, ownRuntimeOf())
	s.installKueue(t)
	own := s.ownRuntime(t)
	s.reconcile(t)
	s.there(t)
	user := s.copy(t).DeepCopy()
	user.SetName(s.key.Name + "-user")
	user.SetUID("")
	user.SetResourceVersion("")
	must(t, s.worker.Admin.Create(t.Context(), user))
	workloadOf(t, s, user)
	s.settleCopy(t, user)
	own.Spec.MLPolicy.NumNodes = nil
	must(t, s.Hub.Admin.Update(t.Context(), own))
	foreign := own.DeepCopy()
	foreign.Name = mirror.NewerName(runtimeName, fmt.Sprintf("%s.%d.replaced", own.UID, own.Generation))
	foreign.ResourceVersion, foreign.UID, foreign.Labels = "", "", nil
	must(t, s.worker.Admin.Create(t.Context(), foreign))
	s.seen(t, foreign.Name)
	must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
	s.settle(t)
	d := s.dispatch(t)
	d.Spec.Attempt++
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.Clock.Step(time.Minute) // The hub's caches are believed.
	s.reconcile(t)
	s.expectEnd(t, v1alpha1.OutcomeRejected, v1alpha1.ReasonRuntimeInUse, foreign.Name)
}

// workloadOf makes the Workload of a TrainJob as Kueue does.
func workloadOf(t *testing.T, s *scene, job *unstructured.Unstructured) {
	t.Helper()
	workload := newWorkload()
	workload.SetNamespace(job.GetNamespace())
	workload.SetName("trainjob-" + job.GetName())
	workload.SetLabels(map[string]string{"kueue.x-k8s.io/job-uid": string(job.GetUID())})
	workload.SetOwnerReferences([]metav1.OwnerReference{*metav1.NewControllerRef(job, trainjobs.GroupVersionKind)})
	must(t, s.worker.Admin.Create(t.Context(), workload))
}

// settleCopy waits until the worker's cache has a TrainJob as it is.
func (s *scene) settleCopy(t *testing.T, job *unstructured.Unstructured) {
	t.Helper()
	eventually(t, "TrainJob "+job.GetName()+" in the cache", func(g gomega.Gomega) {
		seen := trainjobs.New()
		g.Expect(s.worker.Connection.Cache().Get(t.Context(), client.ObjectKeyFromObject(job), seen)).To(gomega.Succeed())
		g.Expect(seen.GetResourceVersion()).To(gomega.Equal(job.GetResourceVersion()))
	})
}

// seen waits until the worker's cache has a runtime.
func (s *scene) seen(t *testing.T, name string) {
	t.Helper()
	eventually(t, "runtime "+name+" in the cache", func(g gomega.Gomega) {
		seen := &metav1.PartialObjectMetadata{}
		seen.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind))
		g.Expect(s.worker.Connection.Cache().Get(t.Context(), client.ObjectKey{Namespace: s.key.Namespace, Name: name}, seen)).To(gomega.Succeed())
	})
}
