// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// clusterRuntime has the job name a runtime of the cluster, which only the hub has.
func (s *scene) clusterRuntime(t *testing.T) *trainer.ClusterTrainingRuntime {
	t.Helper()
	source := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "torch-distributed"}}
	must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(source), source))
	own := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: s.TrainJob(t, jobName).Spec.RuntimeRef.Name, Labels: source.Labels}, Spec: source.Spec}
	must(t, s.Hub.Admin.Create(t.Context(), own))
	t.Cleanup(func() {
		must(t, client.IgnoreNotFound(s.Hub.Admin.Delete(context.Background(), own)))
		must(t, client.IgnoreNotFound(s.worker.Admin.Delete(context.Background(), &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: own.Name}})))
	})
	return own
}

// count records on the Dispatch, as placement does, that the demand was derived from the job as it is and from runtime.
func (s *scene) count(t *testing.T, runtime client.Object) {
	t.Helper()
	d, job := s.dispatch(t), s.job(t)
	d.Spec.Counted = &v1alpha1.Counted{
		Generation: job.GetGeneration(), Digest: trainjobs.Digest(job),
		Runtime: fmt.Sprintf("%s.%d", runtime.GetUID(), runtime.GetGeneration()),
	}
	must(t, s.Hub.Admin.Update(t.Context(), d))
}

func (s *scene) changeJob(change func(job *unstructured.Unstructured)) func(*testing.T, client.Object) {
	return func(t *testing.T, _ client.Object) {
		t.Helper()
		job := s.job(t)
		change(job)
		must(t, s.Hub.Admin.Update(t.Context(), job))
	}
}

// grow changes a runtime on the hub so that the job needs more.
func (s *scene) grow(t *testing.T, runtime client.Object) {
	t.Helper()
	switch runtime := runtime.(type) {
	case *trainer.TrainingRuntime:
		runtime.Spec.MLPolicy.NumNodes = ptr.To[int32](64)
	case *trainer.ClusterTrainingRuntime:
		runtime.Spec.MLPolicy.NumNodes = ptr.To[int32](64)
	}
	must(t, s.Hub.Admin.Update(t.Context(), runtime))
}

// renew deletes a runtime on the hub and creates it again as it was.
func (s *scene) renew(t *testing.T, runtime client.Object) {
	t.Helper()
	must(t, s.Hub.Admin.Delete(t.Context(), runtime.DeepCopyObject().(client.Object)))
	runtime.SetResourceVersion("")
	runtime.SetUID("")
	must(t, s.Hub.Admin.Create(t.Context(), runtime))
}

// A copy is made from the job and the runtime for which its worker was chosen. If one of them has changed since, the
// attempt ends. That does not speak against the worker.
func TestJobThatChangesBeforeItsCopy(t *testing.T) {
	type change = func(*testing.T, client.Object)
	for name, tc := range map[string]struct {
		reason string
		// cluster: the runtime is a ClusterTrainingRuntime.
		cluster bool
		// change happens between the decision and the creation of the copy.
		change func(*scene) change
		// uncounted: the Dispatch does not say what was counted.
		uncounted bool
		// words are in the message of the end. None: there is a copy.
		words []string
	}{
		"Unchanged":        {reason: "the usual course", change: func(*scene) change { return func(*testing.T, client.Object) {} }},
		"RuntimeEdited":    {reason: "it may have another class now", change: func(s *scene) change { return s.grow }, words: []string{"TrainingRuntime", runtimeName}},
		"RuntimeMadeAnew":  {reason: "another object", change: func(s *scene) change { return s.renew }, words: []string{"TrainingRuntime", runtimeName}},
		"OfClusterEdited":  {reason: "the same for the other kind", cluster: true, change: func(s *scene) change { return s.grow }, words: []string{"ClusterTrainingRuntime"}},
		"OfClusterMade":    {reason: "the same for the other kind", cluster: true, change: func(s *scene) change { return s.renew }, words: []string{"ClusterTrainingRuntime"}},
		"ClusterUnchanged": {reason: "the usual course", cluster: true, change: func(*scene) change { return func(*testing.T, client.Object) {} }},
		"RuntimeDeleted": {reason: "there is nothing to make the copy from", change: func(s *scene) change {
			return func(t *testing.T, runtime client.Object) {
				t.Helper()
				must(t, s.Hub.Admin.Delete(t.Context(), runtime))
			}
		}, words: []string{"TrainingRuntime", "deleted"}},
		"RuntimeLabelled": {reason: "its spec is the same", change: func(s *scene) change {
			return func(t *testing.T, runtime client.Object) {
				t.Helper()
				runtime.SetLabels(map[string]string{"trainer.kubeflow.org/framework": "torch", "team": "b"})
				must(t, s.Hub.Admin.Update(t.Context(), runtime))
			}
		}},
		"JobEdited": {reason: "it needs more", change: func(s *scene) change {
			return s.changeJob(func(job *unstructured.Unstructured) {
				specOf(job)["trainer"] = map[string]any{"numNodes": int64(64)}
			})
		}, words: []string{"TrainJob", "generation 1", "2 now"}},
		"JobRelabelled": {reason: "another policy, another class of its Workload", change: func(s *scene) change {
			return s.changeJob(func(job *unstructured.Unstructured) {
				job.SetLabels(map[string]string{"kueue.x-k8s.io/priority-class": "urgent"})
			})
		}, words: []string{"labels of the TrainJob"}},
		"JobSuspendedAndResumed": {reason: "it is the same job", change: func(s *scene) change {
			return func(t *testing.T, runtime client.Object) {
				t.Helper()
				for _, suspend := range []bool{true, false} {
					s.changeJob(func(job *unstructured.Unstructured) { specOf(job)["suspend"] = suspend })(t, runtime)
				}
			}
		}},
		"JobAnnotated": {reason: "nothing is counted by it", change: func(s *scene) change {
			return s.changeJob(func(job *unstructured.Unstructured) { job.SetAnnotations(map[string]string{"note": "x"}) })
		}},
		"EarlierRelease": {reason: "nobody knows what was counted", uncounted: true, change: func(s *scene) change { return s.grow }},
	} {
		t.Run(name, func(t *testing.T) {
			with := ownRuntimeOf()
			if tc.cluster {
				with = setting{spec: map[string]any{"runtimeRef": map[string]any{"name": strings.ToLower(name)}}}
			}
			s := newScene(t, with)
			var runtime client.Object
			if tc.cluster {
				runtime = s.clusterRuntime(t)
			} else {
				runtime = s.ownRuntime(t)
			}
			if !tc.uncounted {
				s.count(t, runtime)
			}
			tc.change(s)(t, runtime)
			s.Clock.Step(time.Minute) // The hub's caches are believed.
			s.reconcile(t)
			if len(tc.words) == 0 {
				if s.copy(t) == nil {
					t.Errorf("%s: there is no copy", tc.reason)
				}
				return
			}
			check.Equal(t, nil, s.copy(t), "%s: there is a copy", tc.reason)
			onWorker := runtime.DeepCopyObject().(client.Object)
			if err := s.worker.Admin.Get(t.Context(), client.ObjectKeyFromObject(runtime), onWorker); !apierrors.IsNotFound(err) {
				t.Errorf("the runtime was brought to the worker: %v", err)
			}
			s.expectEnd(t, v1alpha1.OutcomeJobChanged, tc.words...)
			if refusals := s.dispatch(t).Status.Refusals; len(refusals) > 0 {
				t.Errorf("it counts as a refusal: %+v", refusals)
			}
		})
	}
}

// A worker that has the runtime as it was counted needs no newer one: the next job brings it.
func TestCountedRuntimeIsThere(t *testing.T) {
	s := newScene(t, ownRuntimeOf())
	own := s.ownRuntime(t)
	s.count(t, own)
	s.reconcile(t)
	before := s.there(t)
	s.grow(t, own)
	s.nextAttempt(t) // It was counted before the change.
	if s.copy(t) == nil {
		t.Error("there is no copy")
	}
	check.Equal(t, before.GetResourceVersion(), s.there(t).GetResourceVersion(),
		"the worker has got a runtime that was not counted")
}

// lateReader shows the TrainJob, or the runtime, as it will be.
type lateReader struct {
	client.Reader
	change func(*unstructured.Unstructured)
}

// Get implements client.Reader.
func (r lateReader) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	err := r.Reader.Get(ctx, key, object, options...)
	if found, ok := object.(*unstructured.Unstructured); ok && err == nil {
		r.change(found)
	}
	return err
}

// While the hub's cache is behind, nothing ends: placement would count the earlier version again, or has counted a
// version that this cache does not show yet.
func TestCacheThatIsBehindEndsNoAttempt(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		count  func(*testing.T, *scene, client.Object)
		change func(*unstructured.Unstructured)
	}{
		"Runtime": {
			reason: "only the API server has the new version", count: func(t *testing.T, s *scene, runtime client.Object) { t.Helper(); s.count(t, runtime) },
			change: func(found *unstructured.Unstructured) {
				if found.GetKind() == trainer.TrainingRuntimeKind {
					found.SetGeneration(found.GetGeneration() + 1)
				}
			},
		},
		"Job": {
			reason: "an earlier manager has counted what this cache does not show", count: func(t *testing.T, s *scene, runtime client.Object) {
				t.Helper()
				s.count(t, runtime)
				d, job := s.dispatch(t), s.job(t)
				job.SetLabels(map[string]string{"of": "tomorrow"})
				d.Spec.Counted.Digest = trainjobs.Digest(job)
				must(t, s.Hub.Admin.Update(t.Context(), d))
			},
			change: func(found *unstructured.Unstructured) {
				if found.GetKind() == trainer.TrainJobKind {
					found.SetLabels(map[string]string{"of": "tomorrow"})
				}
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, ownRuntimeOf())
			tc.count(t, s, s.ownRuntime(t))
			s.options.HubReader = lateReader{s.Hub.Admin, tc.change}
			s.restart()
			s.Clock.Step(time.Minute) // The hub's caches are believed.
			result := s.reconcile(t)
			if d := s.dispatch(t); len(d.Status.History) > 0 || s.copy(t) != nil || result == (reconcile.Result{}) {
				t.Errorf("%s: the history is %+v, the copy %v, and the job comes again after %v", tc.reason, d.Status.History, s.copy(t), result)
			}
		})
	}
}
