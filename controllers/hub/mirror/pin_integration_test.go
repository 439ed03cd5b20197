// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// newPinnedScene is a scene of a job whose policy pins its runtime.
func newPinnedScene(t *testing.T, with setting) *scene {
	t.Helper()
	s := newScene(t, with)
	d := s.dispatch(t)
	d.Spec.Runtime = v1alpha1.RuntimePin
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.restart()
	s.Clock.Step(time.Minute) // The hub's caches are believed.
	return s
}

// pinned is the runtime that the copy names, which must be on the worker, once the worker's cache shows it.
func (s *scene) pinned(t *testing.T) *trainer.TrainingRuntime {
	t.Helper()
	copy := s.copy(t)
	if copy == nil {
		t.Fatalf("there is no copy: %+v", s.dispatch(t).Status)
	}
	kind, key := trainjobs.RuntimeOf(copy)
	check.Equal(t, trainer.TrainingRuntimeKind, kind, "the kind of runtime that the copy names")
	check.Equal(t, key.Name, copy.GetAnnotations()[v1alpha1.AnnotationPinnedRuntime], "the annotation of the copy")
	found := &trainer.TrainingRuntime{}
	must(t, s.worker.Admin.Get(t.Context(), key, found))
	s.seen(t, key.Name)
	return found
}

// The copy runs what the hub's runtime says, whatever the worker has under the name. Jobs share one pinned runtime, which
// costs the next one no request, and a runtime that changes on the hub gets another beside it.
func TestPinnedRuntime(t *testing.T) {
	s := newPinnedScene(t, ownRuntimeOf())
	own := s.ownRuntime(t)
	own.Spec.Template.Spec.TTLSecondsAfterFinished = ptr.To[int32](60)
	must(t, s.Hub.Admin.Update(t.Context(), own))
	theirs := own.DeepCopy()
	theirs.UID, theirs.ResourceVersion, theirs.Spec.MLPolicy.NumNodes = "", "", ptr.To[int32](9)
	must(t, s.worker.Admin.Create(t.Context(), theirs))
	s.there(t)
	s.reconcile(t)

	first := s.pinned(t)
	if !strings.HasPrefix(first.Name, runtimeName+"-") || len(first.Name) != len(runtimeName)+9 {
		t.Errorf("the pinned runtime is called %q", first.Name)
	}
	check.Equal(t, int32(3), ptr.Deref(first.Spec.MLPolicy.NumNodes, 0), "numNodes, as on the hub")
	check.Equal(t, nil, first.Spec.Template.Spec.TTLSecondsAfterFinished, "the TTL of its JobSets")
	check.Equal(t, stage.HubID, first.Labels[v1alpha1.LabelPropagatedBy], "the hub that has made it")
	check.Equal(t, "torch", first.Labels["trainer.kubeflow.org/framework"], "the framework, which SDKs read")
	check.Equal(t, fmt.Sprintf("%s.%d.replaced", own.UID, own.Generation), first.Annotations[v1alpha1.AnnotationSource], "the source")
	kind, key := trainjobs.RuntimeOf(s.job(t))
	check.Equal(t, trainer.TrainingRuntimeKind+" "+runtimeName, kind+" "+key.Name, "the runtime that the job names")

	reader := &countingReader{Reader: s.Hub.Admin}
	s.options.HubReader = reader
	s.restart()
	s.Clock.Step(time.Minute)
	s.nextAttempt(t)
	check.Equal(t, first.ResourceVersion, s.pinned(t).ResourceVersion, "the pinned runtime of the next copy")
	before := reader.reads
	s.nextAttempt(t)
	check.Equal(t, first.ResourceVersion, s.pinned(t).ResourceVersion, "the pinned runtime of the copy after that")
	check.Equal(t, before, reader.reads, "reads from the hub's API server for a runtime that is known")
	s.expectQuiet(t, "the copy is as it should be")

	own.Spec.MLPolicy.NumNodes = ptr.To[int32](4)
	must(t, s.Hub.Admin.Update(t.Context(), own))
	s.reconcile(t)
	check.Equal(t, first.Name, s.pinned(t).Name, "the runtime of a copy that is there, after a change on the hub")
	s.nextAttempt(t)
	second := s.pinned(t)
	check.Equal(t, int32(4), ptr.Deref(second.Spec.MLPolicy.NumNodes, 0), "numNodes of the next copy")
	must(t, s.worker.Admin.Get(t.Context(), client.ObjectKeyFromObject(first), first))
	check.Equal(t, int32(3), ptr.Deref(first.Spec.MLPolicy.NumNodes, 0), "numNodes of the first pinned runtime, after the change")
	check.Equal(t, int64(1), s.there(t).GetGeneration(), "the generation of the worker's own runtime")

	own.Spec.MLPolicy.NumNodes = ptr.To[int32](3)
	must(t, s.Hub.Admin.Update(t.Context(), own))
	s.nextAttempt(t)
	check.Equal(t, first.Name, s.pinned(t).Name, "the runtime of a copy, after the change was taken back")
}

// A ClusterTrainingRuntime is pinned in the namespace of the copy. A worker with an older Kubeflow Trainer gets it too, and a
// copy that is translated.
func TestPinnedClusterRuntime(t *testing.T) {
	for name, older := range map[string]bool{"Present": false, "Older": true} {
		t.Run(name, func(t *testing.T) {
			s := newPinnedScene(t, setting{older: older, spec: map[string]any{"runtimePatches": []any{kueueEntry("user.dev/own", "h100")}}})
			if older {
				d := s.dispatch(t)
				d.Spec.TranslatedInto = v1alpha1.PodTemplateOverrides
				must(t, s.Hub.Admin.Update(t.Context(), d))
			}
			s.reconcile(t)
			check.Equal(t, s.key.Namespace, s.pinned(t).Namespace, "the namespace of the pinned runtime")
			check.Equal(t, older, overrides(s.copy(t)) != nil, "whether the copy is translated")
			s.edit(t, func(copy *unstructured.Unstructured) { specOf(copy)["suspend"] = true })
			s.edit(t, func(copy *unstructured.Unstructured) { specOf(copy)["suspend"] = false })
			version := s.copy(t).GetResourceVersion()
			s.restart()
			s.Clock.Step(time.Minute)
			s.reconcile(t)
			check.Equal(t, version, s.copy(t).GetResourceVersion(), "the copy, which names another runtime than its job, was written")
		})
	}
}

// What has the name of a pinned runtime and is not it, the manager leaves alone, and the job says which object that is.
func TestNameOfThePinnedRuntimeIsTaken(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*trainer.TrainingRuntime)
		words  string
	}{
		"Foreign":      {func(r *trainer.TrainingRuntime) { r.Labels = nil }, "this hub has not made it"},
		"OfAnotherHub": {func(r *trainer.TrainingRuntime) { r.Labels[v1alpha1.LabelPropagatedBy] = "hub-2" }, "this hub has not made it"},
		"OtherDigest":  {func(r *trainer.TrainingRuntime) { r.Labels[v1alpha1.LabelPinned] = "0" }, "this hub has not made it"},
		"Changed":      {func(r *trainer.TrainingRuntime) { r.Spec.MLPolicy.NumNodes = ptr.To[int32](7) }, "has been changed since this hub has made it"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newPinnedScene(t, ownRuntimeOf())
			s.ownRuntime(t)
			s.reconcile(t)
			taken := s.pinned(t)
			tc.change(taken)
			must(t, s.worker.Admin.Update(t.Context(), taken))
			s.seenAs(t, taken)
			must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
			s.settle(t)
			d := s.dispatch(t)
			d.Spec.Attempt++
			must(t, s.Hub.Admin.Update(t.Context(), d))
			s.reconcile(t)
			s.expectEnd(t, v1alpha1.OutcomeRejected, "TrainingRuntime "+s.key.Namespace+"/"+taken.Name, tc.words)
			check.Equal(t, nil, s.copy(t), "there is a copy")
			after := taken.DeepCopy()
			must(t, s.worker.Admin.Get(t.Context(), client.ObjectKeyFromObject(taken), after))
			check.Equal(t, taken.ResourceVersion, after.ResourceVersion, "the version of the runtime that has the name")
		})
	}
}

// A runtime that was changed on the hub between decision and creation ends the attempt: nobody has counted it.
func TestPinnedRuntimeThatWasNotCounted(t *testing.T) {
	s := newPinnedScene(t, ownRuntimeOf())
	own := s.ownRuntime(t)
	d := s.dispatch(t)
	d.Spec.Counted = &v1alpha1.Counted{Generation: 1, Digest: trainjobs.Digest(s.job(t)), Runtime: fmt.Sprintf("%s.%d", own.UID, own.Generation)}
	must(t, s.Hub.Admin.Update(t.Context(), d))
	own.Spec.MLPolicy.NumNodes = ptr.To[int32](4)
	must(t, s.Hub.Admin.Update(t.Context(), own))
	s.reconcile(t)
	s.expectEnd(t, v1alpha1.OutcomeJobChanged, "was counted")
	check.Equal(t, nil, s.copy(t), "there is a copy")
}

// A pinned runtime belongs to the copies that pin it: a job that names it on the hub does not change it.
func TestPinnedRuntimeIsNobodysOwn(t *testing.T) {
	s := newPinnedScene(t, ownRuntimeOf())
	own := s.ownRuntime(t)
	s.reconcile(t)
	pinned := s.pinned(t)
	same := own.DeepCopy()
	same.Name, same.UID, same.ResourceVersion, same.Spec.MLPolicy.NumNodes = pinned.Name, "", "", ptr.To[int32](5)
	must(t, s.Hub.Admin.Create(t.Context(), same))
	must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
	s.settle(t)
	other := s.Submit(t, "other", func(job *trainer.TrainJob) {
		job.Spec.Trainer, job.Spec.RuntimeRef = nil, trainer.RuntimeRef{
			APIGroup: ptr.To(trainer.SchemeGroupVersion.Group), Kind: ptr.To(trainer.TrainingRuntimeKind), Name: pinned.Name,
		}
	})
	s.Place(t, other, workerName, func(d *v1alpha1.Dispatch) { d.Finalizers = []string{v1alpha1.FinalizerCopy} })
	s.key = s.Key("other")
	s.reconcile(t)
	check.Equal(t, nil, s.copy(t), "there is a copy")
	if said := s.Dispatch(t, "other").Status; !strings.Contains(fmt.Sprint(said.Conditions), "was made for other jobs") {
		t.Errorf("the Dispatch does not say why: %v", said.Conditions)
	}
	after := pinned.DeepCopy()
	must(t, s.worker.Admin.Get(t.Context(), client.ObjectKeyFromObject(pinned), after))
	check.Equal(t, pinned.ResourceVersion, after.ResourceVersion, "the version of the pinned runtime")
}

// goingPins are Pins whose runtimes are being deleted until told otherwise.
type goingPins struct {
	going bool
	held  int
}

// Hold implements mirror.Pins.
func (p *goingPins) Hold(types.NamespacedName) (release func(), ok bool) {
	if p.going {
		return nil, false
	}
	p.held++
	return func() { p.held-- }, true
}

// While a pinned runtime is being deleted, no copy is created that names it. Afterwards nothing is held.
func TestPinnedRuntimeThatGoes(t *testing.T) {
	s := newPinnedScene(t, ownRuntimeOf())
	s.ownRuntime(t)
	pins := &goingPins{going: true}
	s.options.Pins = pins
	s.restart()
	s.Clock.Step(time.Minute)
	if result := s.reconcile(t); result.RequeueAfter <= 0 {
		t.Errorf("it does not look again: %v", result)
	}
	check.Equal(t, nil, s.copy(t), "there is a copy")
	pins.going = false
	s.reconcile(t)
	s.pinned(t)
	check.Equal(t, 0, pins.held, "runtimes that are held after the creation")
}

// A pinned runtime that waits for a finalizer is gone soon, as a rule, and is made again. So the worker has refused nothing yet.
func TestPinnedRuntimeAwaitsFinalizer(t *testing.T) {
	for name, ends := range map[string]bool{"Ends": true, "Stays": false} {
		t.Run(name, func(t *testing.T) {
			s := newPinnedScene(t, ownRuntimeOf())
			s.ownRuntime(t)
			s.reconcile(t)
			goes := s.pinned(t)
			goes.Finalizers = []string{"trainer.kubeflow.org/resource-in-use"}
			must(t, s.worker.Admin.Update(t.Context(), goes))
			t.Cleanup(func() { s.worker.RemoveFinalizers(t, goes) })
			must(t, s.worker.Admin.Delete(t.Context(), goes))
			must(t, s.worker.Admin.Get(t.Context(), client.ObjectKeyFromObject(goes), goes))
			s.seenAs(t, goes)
			s.nextAttempt(t)
			check.Equal(t, nil, s.copy(t), "there is a copy")
			check.Equal(t, 0, len(s.dispatch(t).Status.History), "attempts that have ended")
			if !ends {
				s.Clock.Step(time.Minute)
				s.reconcile(t)
				s.expectEnd(t, v1alpha1.OutcomeRejected, "TrainingRuntime "+s.key.Namespace+"/"+goes.Name, "is being deleted")
				return
			}
			s.worker.RemoveFinalizers(t, goes)
			eventually(t, "runtime gone from the cache", func(g gomega.Gomega) {
				seen := &metav1.PartialObjectMetadata{}
				seen.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind))
				err := s.worker.Connection.Cache().Get(t.Context(), client.ObjectKeyFromObject(goes), seen)
				g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue())
			})
			s.reconcile(t)
			if anew := s.pinned(t); anew.Name != goes.Name || anew.UID == goes.UID {
				t.Errorf("the copy names %s (%s), want %s made anew", anew.Name, anew.UID, goes.Name)
			}
		})
	}
}

// lateWorker is a connection whose cache does not show a runtime yet, and whose admission does not know it yet, for as many
// requests each.
type lateWorker struct {
	copies.Connection
	hidden, refused *int
}

// Client implements copies.Connection.
func (w lateWorker) Client() (client.Client, error) {
	c, err := w.Connection.Client()
	if err != nil {
		return nil, err
	}
	once := func(left *int, object client.Object, kind string) bool {
		if *left == 0 || object.GetObjectKind().GroupVersionKind().Kind != kind {
			return false
		}
		*left--
		return true
	}
	return interceptor.NewClient(watchless{c}, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if once(w.hidden, object, trainer.TrainingRuntimeKind) {
				return apierrors.NewNotFound(trainer.Resource("trainingruntimes"), key.Name)
			}
			return c.Get(ctx, key, object, options...)
		},
		Create: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if once(w.refused, object, trainer.TrainJobKind) {
				return apierrors.NewForbidden(trainer.Resource("trainjobs"), object.GetName(), errors.New("specified runtime not found"))
			}
			return c.Create(ctx, object, options...)
		},
	}), nil
}

// Two jobs need the same new runtime at once, and one of them makes it. The worker's admission may know it later than the cache
// shows it, so its refusal does not count yet for the other job either.
func TestPinnedRuntimeOfAnotherJobIsNew(t *testing.T) {
	s := newPinnedScene(t, ownRuntimeOf())
	s.ownRuntime(t)
	s.reconcile(t)
	made := s.pinned(t)
	hidden, refused := 1, 1
	s.options.Worker = lateWorker{s.options.Worker, &hidden, &refused}
	s.restart()
	s.Clock.Step(time.Minute)
	s.nextAttempt(t) // It is there already, which the cache does not show.
	check.Equal(t, nil, s.copy(t), "there is a copy")
	_, err := s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key})
	check.Equal(t, true, err != nil, "whether it tries again")
	check.Equal(t, 0, len(s.dispatch(t).Status.History), "attempts that have ended")
	s.reconcile(t)
	check.Equal(t, made.UID, s.pinned(t).UID, "the runtime of the copy")
	check.Equal(t, 0, hidden+refused, "what the worker was late for")
}

// seenAs waits until the worker's cache shows a runtime as it is.
func (s *scene) seenAs(t *testing.T, runtime *trainer.TrainingRuntime) {
	t.Helper()
	eventually(t, "runtime "+runtime.Name+" in the cache", func(g gomega.Gomega) {
		seen := &metav1.PartialObjectMetadata{}
		seen.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind))
		g.Expect(s.worker.Connection.Cache().Get(t.Context(), client.ObjectKeyFromObject(runtime), seen)).To(gomega.Succeed())
		g.Expect(seen.ResourceVersion).To(gomega.Equal(runtime.ResourceVersion))
	})
}
