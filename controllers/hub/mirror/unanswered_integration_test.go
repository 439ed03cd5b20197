// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"slices"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/check"
)

// A creation that got no answer may be carried out later. While that is possible, its attempt does not end, its
// Dispatch is not released, and the job runs nowhere else.
func TestUnansweredCreation(t *testing.T) {
	refused := apierrors.NewForbidden(schema.GroupResource{Resource: "trainjobs"}, jobName, nil)
	taken := apierrors.NewAlreadyExists(schema.GroupResource{Resource: "trainjobs"}, jobName)
	cases := map[string]struct {
		reason string
		// after the creation got no answer.
		after func(t *testing.T, s *scene, w *fickleWorker)
		// ended says whether what had to wait has happened.
		ended func(t *testing.T, s *scene) bool
		// arrives: the creation was carried out all the same, and the copy is there. soon: nothing has to wait.
		arrives, soon bool
	}{
		"Refused": {
			reason: "A second creation is refused. The first one may come through.",
			after:  func(_ *testing.T, _ *scene, w *fickleWorker) { w.err = refused },
			ended:  func(t *testing.T, s *scene) bool { return s.dispatch(t).AttemptEnded() },
		},
		"Evicted": {
			reason: "The job has to leave.",
			after:  func(t *testing.T, s *scene, _ *fickleWorker) { s.evict(t) },
			ended:  func(t *testing.T, s *scene) bool { return s.dispatch(t).AttemptEnded() },
		},
		"Deleted": {
			reason: "Nobody would delete a copy that comes when its Dispatch is gone.",
			after: func(t *testing.T, s *scene, _ *fickleWorker) {
				must(t, s.Hub.Admin.Delete(t.Context(), s.dispatch(t)))
			},
			ended: func(t *testing.T, s *scene) bool {
				err := s.Hub.Admin.Get(t.Context(), s.key, &v1alpha1.Dispatch{})
				must(t, client.IgnoreNotFound(err))
				return err != nil
			},
		},
		"NameTaken": {
			reason: "A foreign TrainJob has the name now, and may go before the creation arrives.",
			after:  func(t *testing.T, s *scene, w *fickleWorker) { w.err = taken; s.takeName(t) },
			ended:  func(t *testing.T, s *scene) bool { return s.dispatch(t).AttemptEnded() },
		},
		"NameTakenAndEvicted": {
			reason: "The same, for a job that has to leave.",
			after:  func(t *testing.T, s *scene, _ *fickleWorker) { s.takeName(t); s.evict(t) },
			ended:  func(t *testing.T, s *scene) bool { return s.dispatch(t).AttemptEnded() },
		},
		"Arrived": {
			reason: "The copy is the one that got no answer, and there is no other.",
			after: func(t *testing.T, s *scene, _ *fickleWorker) {
				s.settle(t)
				s.evict(t)
				s.reconcile(t) // It deletes the copy.
				s.collect(t)
				for range makingLag / endCheck {
					s.reconcile(t)
					s.Clock.Step(endCheck)
				}
			},
			ended: func(t *testing.T, s *scene) bool { return s.dispatch(t).AttemptEnded() }, arrives: true, soon: true,
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			w := &fickleWorker{Connection: s.worker.Connection, err: context.DeadlineExceeded, arrives: tc.arrives}
			s.options.Worker = w
			s.restart()
			s.Clock.Step(time.Minute) // The hub's caches are believed.
			if _, err := s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key}); err == nil {
				t.Fatal("a creation without an answer is no error")
			}
			tc.after(t, s, w)
			if !tc.soon {
				for range 6 {
					result := s.reconcile(t)
					if tc.ended(t, s) {
						t.Fatalf("%s\nit did not wait", tc.reason)
					}
					if result.RequeueAfter <= 0 || result.RequeueAfter > 65*time.Second {
						t.Fatalf("it looks again after %s", result.RequeueAfter)
					}
					s.Clock.Step(10 * time.Second)
				}
				s.Clock.Step(10 * time.Second)
			}
			for range 3 {
				if !tc.ended(t, s) {
					s.reconcile(t)
				}
			}
			if !tc.ended(t, s) {
				t.Errorf("%s\nit waits for ever", tc.reason)
			}
		})
	}
}

// takeName gives the name of the copy to a foreign TrainJob.
func (s *scene) takeName(t *testing.T) {
	t.Helper()
	foreign := trainjobs.New()
	foreign.SetNamespace(s.key.Namespace)
	foreign.SetName(s.key.Name)
	foreign.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}, "suspend": true}
	must(t, s.worker.Admin.Create(t.Context(), foreign))
	s.settle(t)
}

// A new mirror does not know what the earlier mirror was doing when it ended: a creation of the earlier mirror may
// still arrive. So an attempt that has no copy on record is held for 65 s from the start of the new mirror. An attempt
// that was placed after that start is not held.
func TestInheritedAttempt(t *testing.T) {
	cases := map[string]struct {
		// recorded: the Dispatch says that the attempt has a copy. placed: the attempt was placed after the mirror had
		// started. copied: the attempt has a copy. Perhaps the creation that is under way did not make that copy.
		recorded, placed, copied bool
		waits                    bool
	}{
		"Unrecorded": {waits: true},
		"Copied":     {copied: true, waits: true},
		"Recorded":   {recorded: true},
		"Placed":     {placed: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			if tc.recorded {
				d := s.dispatch(t)
				record.SetCopied(&d.Status, d, s.Clock.Now())
				must(t, s.Hub.Admin.Status().Update(t.Context(), d))
			}
			if tc.copied {
				s.reconcile(t)
			}
			var err error
			if !tc.placed {
				s.options.Inherited, err = mirror.Inherited(t.Context(), indexed{s.Hub.Admin}, workerName)
				must(t, err)
			}
			s.restart()
			must(t, s.Hub.Admin.Delete(t.Context(), s.dispatch(t)))
			held := time.Duration(0)
			for s.dispatch(t) != nil {
				result := s.reconcile(t)
				if s.dispatch(t) == nil {
					break
				}
				if going := s.copy(t); going != nil {
					s.collect(t)
					continue // Its end wakes the mirror.
				}
				if result.RequeueAfter <= 0 {
					t.Fatal("nobody looks again")
				}
				due := min(result.RequeueAfter, 5*time.Second)
				if held += due; held > 2*time.Minute {
					t.Fatal("its Dispatch is held for ever")
				}
				s.Clock.Step(due)
			}
			limit := time.Duration(0)
			if tc.recorded {
				limit = makingLag // The worker's controllers may still make pods of the copy.
			}
			if tc.waits && (held < time.Minute || held > 70*time.Second) || !tc.waits && held > limit {
				t.Errorf("its Dispatch was held for %s", held)
			}
		})
	}
}

// Of two creations without an answer, the second may be carried out when the copy of the first is gone. An attempt has
// only one copy. So the second copy is deleted, and the job is placed again.
func TestSecondCopyOfAnAttempt(t *testing.T) {
	for name, tc := range map[string]struct {
		evicted bool
		outcome v1alpha1.Outcome
	}{
		"CopyDeleted": {outcome: v1alpha1.OutcomeCopyDeleted},
		"Evicted":     {evicted: true, outcome: v1alpha1.OutcomePreempted},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.reconcile(t)
			first := s.copy(t)
			second := first.DeepCopy()
			second.SetUID("")
			second.SetResourceVersion("")
			must(t, s.worker.Admin.Delete(t.Context(), first))
			must(t, s.worker.Admin.Create(t.Context(), second))
			s.settle(t)
			if tc.evicted {
				s.evict(t)
			}
			for range 5 {
				s.reconcile(t)
				if uid := s.dispatch(t).Status.CopyUID; uid != "" && uid != first.GetUID() {
					t.Fatal("the second copy is on record as the attempt's")
				}
				s.collect(t)
				s.Clock.Step(makingLag)
			}
			check.Equal(t, nil, s.copy(t), "the second copy stays")
			d := s.dispatch(t)
			if !d.AttemptEnded() || len(d.Status.History) != 1 || d.Status.History[0].Outcome != tc.outcome {
				t.Errorf("the attempt did not end with %s: %+v", tc.outcome, d.Status)
			}
		})
	}
}

// indexed answers for the index of live Dispatches, as the manager's cache does.
type indexed struct{ client.Client }

// List implements client.Reader.
func (c indexed) List(ctx context.Context, list client.ObjectList, options ...client.ListOption) error {
	var how client.ListOptions
	how.ApplyOptions(options)
	all := list.(*v1alpha1.DispatchList)
	if err := c.Client.List(ctx, all); err != nil {
		return err
	}
	indexes := indexer{}
	if err := records.AddIndexes(ctx, indexes); err != nil {
		return err
	}
	asked := how.FieldSelector.Requirements()[0]
	all.Items = slices.DeleteFunc(all.Items, func(d v1alpha1.Dispatch) bool {
		return !slices.Contains(indexes[asked.Field](&d), asked.Value)
	})
	return nil
}

// indexer keeps the functions of indexes by field.
type indexer map[string]client.IndexerFunc

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, _ client.Object, field string, of client.IndexerFunc) error {
	i[field] = of
	return nil
}

// fickleWorker is a connection to a worker that answers creations of TrainJobs with this error, and may carry them out.
type fickleWorker struct {
	copies.Connection
	err     error
	arrives bool
}

// Client implements copies.Connection.
func (w *fickleWorker) Client() (client.Client, error) {
	c, err := w.Connection.Client()
	if err != nil {
		return nil, err
	}
	return interceptor.NewClient(watchless{c}, interceptor.Funcs{
		Create: func(ctx context.Context, _ client.WithWatch, object client.Object, options ...client.CreateOption) error {
			if w.arrives {
				if err := c.Create(ctx, object, options...); err != nil {
					return err
				}
			}
			return w.err
		},
	}), nil
}
