// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// evictionWords are for the owner of the job.
const evictionWords = "a job of priority 100 takes the room"

// First the Dispatch says that the job is evicted. Then the copy is deleted in the foreground. When the copy and its
// pods are gone, the attempt ends. A new process goes on where another process stopped. A job that is suspended in that
// time is stopped too.
func TestEviction(t *testing.T) {
	s := newScene(t, setting{})
	recorder := events.NewFakeRecorder(10)
	s.getUnderWay(t)
	s.options.Recorder = recorder
	s.restart()
	s.evict(t)

	s.reconcile(t)
	said := s.expectEvicting(t)
	going := s.copy(t)
	if going == nil || !slices.Contains(going.GetFinalizers(), metav1.FinalizerDeleteDependents) {
		t.Fatalf("the copy is not being deleted in the foreground: %v", going)
	}
	if !said.WasCopied() || said.Status.CopyUID != going.GetUID() {
		t.Errorf("the Dispatch does not say that there is a copy: %+v", said.Status)
	}
	s.restart()
	s.expectQuiet(t, "the copy is going")
	job := s.job(t)
	job.Object["spec"].(map[string]any)["suspend"] = true
	must(t, s.Hub.Admin.Update(t.Context(), job))
	pod := s.createPod(t)
	s.collect(t)
	s.restart()
	check.Equal(t, time.Second, s.expectQuiet(t, "a pod of it runs").RequeueAfter, "the pods are looked at again after")
	s.deletePod(t, pod)
	for range 2 {
		s.reconcileGone(t)
	}
	s.expectPreempted(t)
	check.Equal(t, "Normal Preempted Stopped on worker worker: "+evictionWords, <-recorder.Events, "the Event")
	s.restart()
	s.Clock.Step(time.Hour)
	s.expectQuiet(t, "the attempt has ended")
	check.Equal(t, nil, s.copy(t), "a copy was created after the end")
}

// An eviction before the copy is created: no copy is created any more. The attempt ends at once, unless the worker has
// a copy that no cache shows.
func TestEvictionBeforeTheCopy(t *testing.T) {
	t.Run("NothingThere", func(t *testing.T) {
		s := newScene(t, setting{})
		s.evict(t)
		s.reconcile(t)
		s.expectPreempted(t)
	})
	t.Run("AnswerLost", func(t *testing.T) { // The copy was created, the cache does not show it, and no process remembers it.
		s := newScene(t, setting{})
		lagging := stuckWorker{cached: s.stuck(t, s.worker.Cluster), live: s.worker.Admin}
		s.reconcile(t)
		s.evict(t)
		s.options.Worker = lagging
		s.restart()
		if result := s.reconcile(t); result.RequeueAfter == 0 {
			t.Error("it was not to be looked at again, and no event tells of the end of the copy")
		}
		s.expectEvicting(t)
		if copy := s.copy(t); copy == nil || copy.GetDeletionTimestamp() == nil {
			t.Errorf("the copy is not being deleted: %v", copy)
		}
	})
	t.Run("OldCopyInTheWay", func(t *testing.T) { // Of the attempt before, and the cache does not show it.
		s := newScene(t, setting{})
		lagging := stuckWorker{cached: s.stuck(t, s.worker.Cluster), live: s.worker.Admin}
		s.reconcile(t)
		old, d := s.copy(t), s.dispatch(t)
		d.Spec.Attempt = 2
		must(t, s.Hub.Admin.Update(t.Context(), d))
		s.evict(t)
		s.options.Worker = lagging
		s.restart()
		if result := s.expectQuiet(t, "the old copy may run"); result.RequeueAfter == 0 {
			t.Error("it was not to be looked at again, and no event tells of the end of the copy")
		}
		check.Diff(t, old, s.copy(t), "a copy that is garbagecollection's was touched")
	})
	t.Run("ForeignTrainJob", func(t *testing.T) {
		s := newScene(t, setting{})
		foreign := s.createForeign(t)
		s.evict(t)
		s.createPod(t)
		s.reconcile(t)
		s.expectEnd(t, v1alpha1.OutcomeNameConflict, s.key.String())
		check.Diff(t, foreign, s.copy(t), "the foreign TrainJob was touched")
	})
}

// If a copy ends by itself before it is stopped, the job has ended and does not run again.
func TestEvictionOfACopyThatEnds(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// before: the copy ends before anything is done about the eviction. cache, live: the cache, or the API server, does
		// not show the end.
		before, cache, live bool
	}{
		"CacheLags":       {reason: "the API server is asked before the copy is deleted", before: true, cache: true},
		"EndsAfterAsking": {reason: "only what was seen to run is deleted", before: true, cache: true, live: true},
		"EndsWhileItGoes": {reason: "it had the time"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.getUnderWay(t)
			stale := s.stuck(t, s.worker.Cluster)
			if test.before {
				stage.Report(t, s.worker.Admin, s.copy(t), "Complete", 0)
				s.settle(t)
			}
			usual := s.options.Worker
			lagging := stuckWorker{cached: stale, live: s.worker.Admin}
			if test.live {
				lagging.live = stale
			}
			if test.cache {
				s.options.Worker = lagging
				s.restart()
			}
			s.evict(t)
			result := s.reconcile(t)
			if copy := s.copy(t); test.before && copy.GetDeletionTimestamp() != nil {
				t.Errorf("a copy that has ended is being deleted: %s", test.reason)
			}
			if test.live && result.RequeueAfter == 0 {
				t.Error("it was not to be looked at again")
			}
			if !test.before {
				stage.Report(t, s.worker.Admin, s.copy(t), "Complete", 0)
				s.settle(t)
			}
			s.options.Worker = usual
			s.restart()
			s.reconcile(t)
			d := s.dispatch(t)
			if !d.IsFinished() || d.Status.Phase != v1alpha1.PhaseFinished ||
				meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchEvicting) != nil {
				t.Errorf("the Dispatch does not say that the job has finished, and that alone: %s: %+v", test.reason, d.Status)
			}
			if trainjobs.Terminal(s.job(t)) == nil {
				t.Errorf("the TrainJob does not say its end: %s: %v", test.reason, s.job(t).Object["status"])
			}
		})
	}
}

// Fault: a foreign TrainJob has taken the copy's name before the last pod of the copy has ended.
func TestEvictionWaitsForPodsBesideAForeignTrainJob(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	s.evict(t)
	s.reconcile(t)
	pod := s.createPod(t)
	s.collect(t)
	foreign := s.createForeign(t)
	s.restart()
	s.expectQuiet(t, "a pod of the copy runs")
	s.deletePod(t, pod)
	s.reconcileGone(t)
	s.expectEnd(t, v1alpha1.OutcomePreempted, evictionWords)
	check.Diff(t, foreign, s.copy(t), "the foreign TrainJob was touched")
}

// Fault: this process has written the TrainJob's status, and the hub's cache does not show it yet. The status is taken
// back all the same.
func TestEvictionTakesBackWhatTheCacheDoesNotShow(t *testing.T) {
	s := newScene(t, setting{})
	before, lags := s.job(t), false
	s.options.Hub = interceptor.NewClient(s.Hub.Admin, interceptor.Funcs{
		Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
			if job, ok := object.(*unstructured.Unstructured); ok && lags {
				before.DeepCopyInto(job)
				return nil
			}
			return c.Get(ctx, key, object, options...)
		},
	})
	s.restart()
	s.getUnderWay(t)
	s.evictAndCollect(t)
	for range 3 {
		s.expectLook(t, "a controller may still make the JobSet")
	}
	lags = true
	if result := s.expectQuiet(t, "the TrainJob says that it runs"); result.RequeueAfter == 0 {
		t.Error("it was not to be looked at again")
	}
	lags = false
	s.reconcile(t)
	s.expectPreempted(t)
}

// Fault: the previous leader has placed the evicted job again. The cache of the present leader does not show that yet.
// The status of the TrainJob comes from the next copy.
func TestNewLeaderTakesNothingBack(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	s.evictAndCollect(t)
	s.options.Hub = s.stuck(t, s.Hub.Cluster)
	moved, before := s.dispatch(t), s.job(t)
	moved.Spec.Cluster, moved.Spec.Attempt, moved.Spec.Eviction = "elsewhere", 2, nil
	must(t, s.Hub.Admin.Update(t.Context(), moved))
	s.restart()
	if result := s.expectQuiet(t, "it is not this worker's any more"); result.RequeueAfter == 0 {
		t.Error("it was not to be looked at again")
	}
	check.Diff(t, before, s.job(t), "the TrainJob was written")
}

// Fault: the process dies between any two of its writes. The next process carries out the eviction, and the end is the
// same.
func TestEvictionSurvivesRestarts(t *testing.T) {
	const writes = 4 // Evicting, the deletion, the TrainJob's status, the end.
	for after := range writes + 1 {
		t.Run(fmt.Sprintf("After%d", after), func(t *testing.T) {
			s := newScene(t, setting{})
			s.getUnderWay(t)
			usual := s.options
			left := after
			s.options.Hub = dying(s.Hub.Admin, &left)
			s.options.Worker = dyingWorker{Connection: usual.Worker, left: &left}
			s.restart()
			s.evict(t)
			for died := false; !died && !s.dispatch(t).AttemptEnded(); {
				s.Clock.Step(endCheck)
				_, err := s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key})
				if died = errors.Is(err, errDied); !died {
					must(t, err)
				}
				s.collect(t)
			}
			if died := !s.dispatch(t).AttemptEnded(); died != (after < writes) {
				t.Errorf("of %d writes, not all or more were made: died: %t", writes, died)
			}
			s.options = usual
			for range 3 {
				s.restart()
				s.reconcileGone(t)
				s.collect(t)
			}
			s.reconcile(t)
			s.expectPreempted(t)
		})
	}
}

// An eviction that is taken back before the copy was deleted leaves the job as it was.
func TestEvictionTakenBack(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	usual, left := s.options, 1
	s.options.Worker = dyingWorker{Connection: usual.Worker, left: &left}
	s.options.Hub = dying(s.Hub.Admin, &left)
	s.restart()
	s.evict(t)
	if _, err := s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key}); !errors.Is(err, errDied) {
		t.Fatalf("Reconcile() = %v, want the process to die before it deletes the copy", err)
	}
	d := s.expectEvicting(t)
	d.Spec.Eviction = nil
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.options = usual
	s.restart()
	s.reconcile(t)
	d = s.dispatch(t)
	if d.Status.Phase != v1alpha1.PhaseRunning || meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchEvicting) != nil {
		t.Errorf("the status is %+v, want Running without Evicting", d.Status)
	}
}

// A Dispatch that somebody deletes stays until the last pod of its attempt has ended, with or without an eviction:
// without the Dispatch, the job is placed again at once.
func TestDeletedDispatchWaitsForPods(t *testing.T) {
	s := newScene(t, setting{})
	s.getUnderWay(t)
	s.evict(t)
	s.reconcile(t)
	pod := s.createPod(t)
	s.collect(t)
	d := s.dispatch(t)
	must(t, s.Hub.Admin.Delete(t.Context(), d))
	check.Equal(t, time.Second, s.reconcile(t).RequeueAfter, "the pods are looked at again after")
	if d := s.dispatch(t); d == nil {
		t.Fatal("the Dispatch was let go while a pod of the copy runs")
	}
	s.options.ClusterID = "id"
	s.restart()
	s.deletePod(t, pod)
	s.reconcileGone(t)
	check.Equal(t, nil, s.dispatch(t), "the Dispatch was kept although all is gone")
	s.expectNoStatus(t)
	s.expectAttemptKept(t, d)
}

// expectAttemptKept checks that the attempt of a deleted Dispatch is on record, so that the next placement of the job
// goes on counting.
func (s *scene) expectAttemptKept(t *testing.T, gone *v1alpha1.Dispatch) {
	t.Helper()
	tombstone := &v1alpha1.Tombstone{}
	must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: string(gone.Spec.TrainJob.UID)}, tombstone))
	want := v1alpha1.TombstoneSpec{
		Cluster: workerName, ClusterID: "id", TrainJob: gone.Spec.TrainJob, Namespace: gone.Namespace, Attempt: gone.Spec.Attempt,
	}
	check.Diff(t, want, tombstone.Spec, "what is on record of the attempt")
}

// getUnderWay brings the scene to where the copy runs and the hub TrainJob says so. The Dispatch does not yet.
func (s *scene) getUnderWay(t *testing.T) {
	t.Helper()
	s.reconcile(t)
	s.trains(t, "ready", "")
	s.reconcile(t)
	s.Clock.Step(statusWindow)
	s.reconcile(t)
	if s.job(t).Object["status"] == nil {
		t.Fatal("the TrainJob does not say that it runs")
	}
}

// evict asks for the end of the attempt.
func (s *scene) evict(t *testing.T) {
	t.Helper()
	d := s.dispatch(t)
	d.Spec.Eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionPreempted, Message: evictionWords, For: "preemptor"}
	must(t, s.Hub.Admin.Update(t.Context(), d))
}

// evictAndCollect evicts the job, and plays the worker's garbage collector when the copy was deleted: the copy is gone,
// and the attempt has not ended.
func (s *scene) evictAndCollect(t *testing.T) {
	t.Helper()
	s.evict(t)
	s.reconcile(t)
	s.collect(t)
}

// createForeign creates a TrainJob of the copy's name that is not ours.
func (s *scene) createForeign(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	foreign := trainjobs.New()
	foreign.SetNamespace(s.key.Namespace)
	foreign.SetName(s.key.Name)
	foreign.Object["spec"] = map[string]any{"runtimeRef": map[string]any{"name": "torch-distributed"}, "suspend": true}
	must(t, s.worker.Admin.Create(t.Context(), foreign))
	return foreign
}

// collect does what the worker's garbage collector does to a copy that is being deleted.
func (s *scene) collect(t *testing.T) {
	t.Helper()
	if going := s.copy(t); going != nil && going.GetDeletionTimestamp() != nil {
		going.SetFinalizers(nil)
		must(t, s.worker.Admin.Update(t.Context(), going))
	}
	s.settle(t)
}

// expectEvicting checks that the Dispatch says that the attempt is being ended, and returns it.
func (s *scene) expectEvicting(t *testing.T) *v1alpha1.Dispatch {
	t.Helper()
	d := s.dispatch(t)
	condition := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchEvicting)
	if condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != string(v1alpha1.OutcomePreempted) ||
		condition.Message != evictionWords {
		t.Errorf("condition Evicting is %+v, want it True by Preempted with the words of the eviction", condition)
	}
	if d.Status.Phase != v1alpha1.PhaseEvicting || d.Status.Reason != string(v1alpha1.OutcomePreempted) || d.AttemptEnded() {
		t.Errorf("status is %+v, want Evicting, Preempted, and the attempt not ended", d.Status)
	}
	return d
}

// expectPreempted checks that the attempt has ended by its eviction, and that nothing of it is left.
func (s *scene) expectPreempted(t *testing.T) {
	t.Helper()
	s.expectEnd(t, v1alpha1.OutcomePreempted, evictionWords)
	d := s.dispatch(t)
	if !d.AttemptEnded() || len(d.Status.Refusals) != 0 || d.Status.CopyUID != "" || d.Status.Phase != v1alpha1.PhasePending ||
		meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchEvicting) != nil {
		t.Errorf("status is %+v, want Pending, without refusals, copy and condition Evicting", d.Status)
	}
	check.Equal(t, nil, s.copy(t), "there is a copy")
	s.expectNoStatus(t)
}

// expectNoStatus checks that the hub TrainJob says nothing of a copy.
func (s *scene) expectNoStatus(t *testing.T) {
	t.Helper()
	check.Equal(t, nil, s.job(t).Object["status"], "the TrainJob still says what a copy said that is gone")
}

// errDied is the result of each request after the death of the process, which a real process does not see.
var errDied = errors.New("the process died")

// dying is a client of a process that dies when left writes have been made.
func dying(c client.WithWatch, left *int) client.WithWatch {
	spend := func() error {
		if *left == 0 {
			return errDied
		}
		*left--
		return nil
	}
	return interceptor.NewClient(c, interceptor.Funcs{
		Delete: func(ctx context.Context, c client.WithWatch, object client.Object, options ...client.DeleteOption) error {
			if err := spend(); err != nil {
				return err
			}
			return c.Delete(ctx, object, options...)
		},
		SubResourcePatch: func(
			ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch, options ...client.SubResourcePatchOption,
		) error {
			if err := spend(); err != nil {
				return err
			}
			return c.SubResource(name).Patch(ctx, object, patch, options...)
		},
	})
}

// dyingWorker is a connection of a process that dies.
type dyingWorker struct {
	copies.Connection
	left *int
}

func (w dyingWorker) Client() (client.Client, error) {
	c, err := w.Connection.Client()
	if err != nil {
		return nil, err
	}
	return dying(watchless{c}, w.left), nil
}

// watchless is a client that is not asked to watch.
type watchless struct{ client.Client }

func (watchless) Watch(context.Context, client.ObjectList, ...client.ListOption) (watch.Interface, error) {
	return nil, errors.ErrUnsupported
}
