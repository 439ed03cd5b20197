// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/failover"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// isMoved checks that the attempt of a job was given up completely, and only once.
func (s *scene) isMoved(t *testing.T, key client.ObjectKey) {
	t.Helper()
	d := s.Dispatch(t, key.Name)
	mirrored := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored)
	if !d.AttemptEnded() || mirrored.Reason != v1alpha1.ReasonWorkerLost {
		t.Fatalf("%s: the attempt goes on: %+v", key.Name, d.Status.Conditions)
	}
	if lost(d) != "" || d.Status.Phase != v1alpha1.PhasePending || d.Status.CopyUID != "" || len(d.Status.Refusals) != 0 {
		t.Errorf("%s: the status is %+v", key.Name, d.Status)
	}
	if len(d.Status.History) != 1 || d.Status.History[0].Outcome != v1alpha1.OutcomeWorkerLost {
		t.Errorf("%s: the history is %+v", key.Name, d.Status.History)
	}
	check.Equal(t, nil, s.job(t, key).Object["status"], "%s: the TrainJob still says", key.Name)
	s.checkTombstone(t, d)
}

// checkTombstone checks that there is one Tombstone of the attempt.
func (s *scene) checkTombstone(t *testing.T, d *v1alpha1.Dispatch) {
	t.Helper()
	var found int
	for _, tombstone := range s.tombstones(t) {
		want := v1alpha1.TombstoneSpec{
			Cluster: s.worker, ClusterID: clusterID, TrainJob: d.Spec.TrainJob, Namespace: d.Namespace, Attempt: d.Spec.Attempt,
		}
		if tombstone.Spec == want {
			found++
		}
	}
	if found != 1 {
		t.Errorf("%s: there are %d Tombstones, want 1 among %+v", d.Name, found, s.tombstones(t))
	}
}

// goesOn checks that the attempt is still the current attempt.
func (s *scene) goesOn(t *testing.T, key client.ObjectKey, reason string) *v1alpha1.Dispatch {
	t.Helper()
	d := s.Dispatch(t, key.Name)
	if d == nil {
		t.Fatalf("%s: the Dispatch has gone", key.Name)
	}
	if d.AttemptEnded() || lost(d) != reason {
		t.Fatalf("%s: the status is %+v, want an attempt that goes on, and %q", key.Name, d.Status, reason)
	}
	return d
}

func TestShortLossChangesNothing(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverImmediate)
	gone := s.place(t, "gone", v1alpha1.FailoverFenced)
	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t, gone)))
	must(t, s.Hub.Admin.Delete(t.Context(), s.Dispatch(t, gone.Name)))
	var writes meter
	s.options.Hub = &wrapped{Client: s.Cached, around: writes.around}
	s.restart()
	after := s.reconcile(t)
	if after <= 3*time.Minute+55*time.Second || after > 4*time.Minute {
		t.Errorf("looks again after %s, want when the grace is over", after)
	}
	s.Clock.Step(after - 2*time.Second)
	s.reconcile(t)
	if events := s.Events.Take(); writes.writes != 0 || len(events) != 0 {
		t.Errorf("%d writes and the Events %q within the grace", writes.writes, events)
	}
	// The worker returns, and is lost again: the grace period starts again.
	s.answer(t, s.worker)
	s.reconcile(t)
	s.lose(t, s.worker, 0)
	s.Clock.Step(4 * time.Minute)
	s.reconcile(t)
	s.goesOn(t, key, "")
	s.Clock.Step(2 * time.Minute)
	s.reconcile(t)
	s.isMoved(t, key)
}

func TestHold(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverHold)
	unsaid := s.place(t, "unsaid", "")
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	for _, key := range []client.ObjectKey{key, unsaid} {
		d := s.goesOn(t, key, v1alpha1.ReasonHold)
		if d.Status.Phase != v1alpha1.PhaseWorkerLost || d.Status.Reason != v1alpha1.ReasonHold {
			t.Errorf("phase %s, reason %s", d.Status.Phase, d.Status.Reason)
		}
		if words := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchWorkerLost).Message; !strings.Contains(
			words, "kubectl trainyard forget "+string(s.worker)) {
			t.Errorf("the words do not say what an admin can do: %s", words)
		}
		if events := s.Events.About(key.Name); len(events) != 1 || !strings.Contains(events[0], "WorkerLost Hold: ") {
			t.Errorf("the Events are %q", events)
		}
		if s.job(t, key).Object["status"] == nil {
			t.Error("the status of the TrainJob was taken back")
		}
	}
}

func TestImmediate(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverImmediate)
	s.Clock.Step(5 * time.Minute)
	s.reconcile(t)
	s.isMoved(t, key)
	if events := s.Events.About(key.Name); len(events) != 1 || !strings.Contains(events[0], "Gave up attempt 1") {
		t.Errorf("the Events are %q", events)
	}
	// Nothing more happens until placement has continued.
	version := s.Dispatch(t, key.Name).ResourceVersion
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	check.Equal(t, version, s.Dispatch(t, key.Name).ResourceVersion, "it was written again")
}

func TestFenced(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverFenced)
	s.agents.set(s.worker, s.Clock.Now().Add(20*time.Minute))
	s.Clock.Step(10 * time.Minute)
	check.Equal(t, 10*time.Minute, s.reconcile(t), "looks again after, when the agent must have stopped")
	s.goesOn(t, key, v1alpha1.ReasonFencing)
	s.Clock.Step(10*time.Minute - time.Millisecond)
	s.reconcile(t)
	s.goesOn(t, key, v1alpha1.ReasonFencing)
	// A manager that starts now counts from now.
	s.restart()
	s.agents.set(s.worker, s.Clock.Now().Add(30*time.Minute))
	s.reconcile(t)
	s.Clock.Step(29 * time.Minute)
	s.reconcile(t)
	s.goesOn(t, key, v1alpha1.ReasonFencing)
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	s.isMoved(t, key)
}

// The condition is written first, however late the loss is seen: mirror needs it to take back when the worker returns.
func TestFencedIsSaidBeforeItEnds(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverFenced)
	s.Clock.Step(24 * time.Hour)
	s.reconcile(t)
	s.goesOn(t, key, v1alpha1.ReasonFencing)
	s.reconcile(t)
	s.isMoved(t, key)
}

// A manager was paused. It believes that a worker is away, while another manager leads and reaches that worker. So it
// writes nothing on the hub, whatever it wants to write.
func TestFormerLeaderWritesNothing(t *testing.T) {
	s := newScene(t)
	var leads atomic.Bool
	leads.Store(true)
	s.options.Hub = s.leader(t, leads.Load)
	s.restart()
	key, held := s.place(t, "job", v1alpha1.FailoverFenced), s.place(t, "held", v1alpha1.FailoverHold)
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	leads.Store(false)
	gone := s.place(t, "gone", v1alpha1.FailoverHold)
	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t, gone)))
	writesNothing := func(what string) {
		t.Helper()
		before := stage.Versions(t, s.Hub.Admin)
		check.Equal(t, time.Second, s.reconcile(t), "%s: looks again after", what)
		check.Diff(t, before, stage.Versions(t, s.Hub.Admin), fmt.Sprintf("%s: something was written", what))
	}
	writesNothing("the end of a fenced attempt, and the deletion of a Dispatch without a job")
	s.place(t, "new", v1alpha1.FailoverHold)
	writesNothing("the condition WorkerLost")
	s.forget(t, clusterID)
	writesNothing("the end of a forgotten attempt")
	s.goesOn(t, key, v1alpha1.ReasonFencing)
	s.goesOn(t, held, v1alpha1.ReasonHold)
	leads.Store(true)
	s.reconcile(t)
	s.isMoved(t, key)
	s.isMoved(t, held)
	if d := s.Dispatch(t, gone.Name); d.DeletionTimestamp == nil {
		t.Error("the leader does not delete the Dispatch without a job")
	}
}

func TestFencedIsHeldWithoutProof(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		change func(*scene)
		words  string
		says   string
		// moves: the job moves when there is proof, without the worker.
		moves bool
	}{
		"NoAgent": {
			reason: "nobody stops the job",
			change: func(s *scene) { delete(s.agents.stop, s.worker) }, words: "no agent", says: v1alpha1.ReasonHold, moves: true,
		},
		"SomethingAnswers": {
			reason: "its API server may be down, and the agent stops nothing",
			change: func(s *scene) {
				s.contacts.set(s.worker, failover.Contact{UnreachableSince: s.Clock.Now().Add(-time.Minute)})
			},
			words: "something at its address", says: v1alpha1.ReasonAddressAnswers,
		},
		"SomethingAnswered": {
			reason: "the agent may have been cut off from its API server when the hub was not",
			change: func(s *scene) {
				s.contacts.set(s.worker, failover.Contact{UnreachableSince: s.Clock.Now().Add(-time.Minute), SilentSince: s.Clock.Now()})
			},
			words: "something at its address", says: v1alpha1.ReasonAddressAnswers,
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			key := s.place(t, "job", v1alpha1.FailoverFenced)
			test.change(s)
			s.Clock.Step(time.Hour)
			s.reconcile(t)
			d := s.goesOn(t, key, test.says)
			if words := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchWorkerLost).Message; !strings.Contains(words, test.words) {
				t.Errorf("the words are %q, want %q in them: %s", words, test.words, test.reason)
			}
			// A manager that starts now does not know what answered before.
			since := s.Clock.Now()
			s.contacts.set(s.worker, failover.Contact{UnreachableSince: since, SilentSince: since})
			s.agents.set(s.worker, since)
			s.restart()
			s.Clock.Step(time.Hour)
			s.reconcile(t)
			if test.moves {
				s.isMoved(t, key)
			} else {
				s.goesOn(t, key, test.says)
			}
		})
	}
}

// A worker that is not lost causes no moves, however long that lasts. The conditions of an earlier loss are taken back.
func TestUnusableIsNotLost(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverImmediate)
	fenced := s.place(t, "fenced", v1alpha1.FailoverFenced)
	before := s.Dispatch(t, key.Name).ResourceVersion
	s.contacts.set(s.worker, failover.Contact{})
	s.is(t, s.worker, v1alpha1.ReasonCredentialsInvalid, func(*v1alpha1.WorkerCluster) {})
	s.Clock.Step(24 * time.Hour)
	s.reconcile(t)
	check.Equal(t, before, s.Dispatch(t, key.Name).ResourceVersion, "a 401 was taken for a loss")
	d := s.Dispatch(t, fenced.Name)
	d.Status.Phase = v1alpha1.PhaseWorkerLost
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: v1alpha1.DispatchWorkerLost, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFencing, Message: "it is being fenced",
	})
	must(t, s.Hub.Admin.Status().Update(t.Context(), d))
	s.reconcile(t)
	if words := meta.FindStatusCondition(
		s.goesOn(t, fenced, v1alpha1.ReasonHold).Status.Conditions, v1alpha1.DispatchWorkerLost).Message; !strings.Contains(
		words, v1alpha1.ReasonCredentialsInvalid) {
		t.Errorf("the words are %q", words)
	}
}

// Right after a start, the record is from an earlier process: the worker may have returned since.
func TestRestartDoesNotBelieveTheRecord(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverImmediate)
	s.Clock.Step(time.Hour)
	s.contacts.set(s.worker, failover.Contact{})
	s.reconcile(t)
	s.goesOn(t, key, "")
	s.contacts.set(s.worker, failover.Contact{UnreachableSince: s.Clock.Now()})
	check.Equal(t, 30*time.Second, s.reconcile(t), "looks again after")
	s.goesOn(t, key, "")
	s.Clock.Step(30 * time.Second)
	s.reconcile(t)
	s.isMoved(t, key)
}

func TestPause(t *testing.T) {
	s := newScene(t)
	immediate := s.place(t, "immediate", v1alpha1.FailoverImmediate)
	fenced := s.place(t, "fenced", v1alpha1.FailoverFenced)
	s.lose(t, s.peer(), 0)
	s.Clock.Step(10 * time.Minute)
	s.reconcile(t)
	for _, key := range []client.ObjectKey{immediate, fenced} {
		s.goesOn(t, key, v1alpha1.ReasonFailoverPaused)
	}
	if condition := s.paused(t); condition == nil || condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonManyWorkersLost {
		t.Fatalf("the WorkerCluster says %+v", condition)
	}
	// The other worker returns. This worker may return soon.
	s.answer(t, s.peer())
	check.Equal(t, 5*time.Minute, s.reconcile(t), "looks again after, when the grace is over once more")
	if condition := s.paused(t); condition == nil || condition.Status != metav1.ConditionFalse {
		t.Fatalf("the WorkerCluster says %+v", condition)
	}
	s.restart()
	s.Clock.Step(4 * time.Minute)
	s.reconcile(t)
	for _, key := range []client.ObjectKey{immediate, fenced} {
		s.goesOn(t, key, v1alpha1.ReasonFailoverPaused)
	}
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	s.isMoved(t, immediate)
	s.isMoved(t, fenced)
	s.answer(t, s.worker)
	s.reconcile(t)
	check.Equal(t, nil, s.paused(t), "the worker is back, and its WorkerCluster says that work is paused")
	if events := s.Events.About(string(s.worker)); len(events) != 2 ||
		!strings.Contains(events[0], "FailoverPaused 1 other workers") || !strings.Contains(events[1], "FailoverResumed") {
		t.Errorf("the Events are %q", events)
	}
}

func TestForget(t *testing.T) {
	s := newScene(t)
	hold := s.place(t, "hold", v1alpha1.FailoverHold)
	fenced := s.place(t, "fenced", v1alpha1.FailoverFenced)
	deleted := s.place(t, "deleted", v1alpha1.FailoverHold)
	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t, deleted)))
	record := s.Dispatch(t, deleted.Name)
	must(t, s.Hub.Admin.Delete(t.Context(), record))
	s.lose(t, s.peer(), time.Minute) // Without the annotation this would be a pause.
	s.reconcile(t)
	s.goesOn(t, hold, "")
	s.forget(t, clusterID)
	s.reconcile(t)
	s.isMoved(t, hold)
	s.isMoved(t, fenced)
	check.Equal(t, nil, s.Dispatch(t, deleted.Name), "the deletion still waits")
	s.checkTombstone(t, record)
	// The worker returns all the same. A later loss of it is an ordinary loss.
	later := s.place(t, "later", v1alpha1.FailoverHold)
	s.answer(t, s.worker)
	s.reconcile(t)
	if forget, ok := s.WorkerCluster(t, s.worker).Annotations[v1alpha1.AnnotationForget]; ok {
		t.Errorf("the worker answers, and %q is forgotten", forget)
	}
	s.lose(t, s.worker, time.Minute)
	s.reconcile(t)
	s.goesOn(t, later, "")
}

// A worker that was built again has another ID. Jobs on the former cluster stay until an admin says that it is gone.
func TestFormerCluster(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverImmediate)
	s.answer(t, s.worker)
	s.is(t, s.worker, v1alpha1.ReasonConnected, func(worker *v1alpha1.WorkerCluster) { worker.Status.ClusterID = "another" })
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	s.goesOn(t, key, v1alpha1.ReasonHold)
	s.forget(t, clusterID)
	s.reconcile(t)
	s.isMoved(t, key)
	if _, ok := s.WorkerCluster(t, s.worker).Annotations[v1alpha1.AnnotationForget]; !ok {
		t.Error("the annotation does not name the cluster that answers, and was taken off")
	}
}

func TestWorkerClusterDeleted(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverImmediate)
	s.Unregister(t, s.worker)
	s.contacts.set(s.worker, failover.Contact{})
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	d := s.goesOn(t, key, v1alpha1.ReasonHold)
	words := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchWorkerLost).Message
	if hint := fmt.Sprintf("%s: %q", v1alpha1.AnnotationForget, clusterID); !strings.Contains(words, hint) {
		t.Fatalf("the words %q do not say %q", words, hint)
	}
	// The hint is right even if the worker is not connected.
	s.register(t, s.worker)
	s.forget(t, clusterID)
	s.reconcile(t)
	s.isMoved(t, key)
}

func TestDeletion(t *testing.T) {
	s := newScene(t)
	s.lose(t, s.worker, time.Hour)
	key := s.place(t, "job", v1alpha1.FailoverHold)
	finished := s.place(t, "finished", v1alpha1.FailoverHold)
	d := s.Dispatch(t, finished.Name)
	d.Status.Phase = v1alpha1.PhaseFinished
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonComplete,
	})
	must(t, s.Hub.Admin.Status().Update(t.Context(), d))
	records := []*v1alpha1.Dispatch{s.Dispatch(t, key.Name), d}
	// This hub has no garbage collector. The controller itself deletes the Dispatch of a job that is gone.
	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t, key)))
	s.reconcile(t)
	if s.Dispatch(t, key.Name).DeletionTimestamp == nil {
		t.Fatal("the Dispatch of a job that is gone stays")
	}
	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t, finished)))
	must(t, s.Hub.Admin.Delete(t.Context(), s.Dispatch(t, finished.Name)))
	after := s.reconcile(t)
	// The API server stamps the deletion with the real clock, which runs while the test's clock stands still.
	if after < 14*time.Minute || after > 16*time.Minute {
		t.Errorf("looks again after %s, want when the deletion has waited long enough", after)
	}
	s.goesOn(t, key, v1alpha1.ReasonDeletionPending)
	check.Equal(t, v1alpha1.PhaseFinished, s.goesOn(t, finished, v1alpha1.ReasonDeletionPending).Status.Phase,
		"the phase of a job that has ended")
	check.Equal(t, 0, len(s.tombstones(t)), "a Tombstone was written too early")
	// The API server counts whole seconds: it may have deleted the two in one second or in two.
	s.Clock.Step(after)
	s.Clock.Step(s.reconcile(t))
	s.reconcile(t)
	for _, record := range records {
		check.Equal(t, nil, s.Dispatch(t, record.GetName()), "Dispatch %s still waits", record.Name)
		s.checkTombstone(t, record)
	}
}

// The Dispatch of a job that stays prevents a second placement, however somebody deleted the Dispatch.
func TestDispatchDeletedByHand(t *testing.T) {
	s := newScene(t)
	hold := s.place(t, "hold", v1alpha1.FailoverHold)
	fenced := s.place(t, "fenced", v1alpha1.FailoverFenced)
	record := s.Dispatch(t, fenced.Name)
	for _, key := range []client.ObjectKey{hold, fenced} {
		must(t, s.Hub.Admin.Delete(t.Context(), s.Dispatch(t, key.Name)))
	}
	s.Clock.Step(24 * time.Hour)
	s.reconcile(t)
	s.goesOn(t, hold, v1alpha1.ReasonHold)
	s.goesOn(t, fenced, v1alpha1.ReasonFencing)
	s.reconcile(t)
	s.goesOn(t, hold, v1alpha1.ReasonHold)
	check.Equal(t, nil, s.Dispatch(t, fenced.Name), "the copy must have stopped, and the Dispatch still waits")
	s.checkTombstone(t, record)
	check.Equal(t, nil, s.job(t, fenced).Object["status"], "the TrainJob still says")
}

// If the job also loses its second worker, that worker gets its own Tombstone.
func TestTombstonesOfTwoWorkers(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverImmediate)
	d := s.Dispatch(t, key.Name)
	d.Spec.Attempt = 2
	must(t, s.Hub.Admin.Update(t.Context(), d))
	s.Tombstone(t, v1alpha1.TombstoneSpec{Cluster: s.peer(), ClusterID: "peer-id", TrainJob: d.Spec.TrainJob, Attempt: 1})
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	s.checkTombstone(t, s.Dispatch(t, key.Name))
	s.reconcile(t)
	if all := s.tombstones(t); len(all) != 2 {
		t.Errorf("there are the Tombstones %+v", all)
	}
}

// One worker has hundreds of jobs. They are written a few at a time, and each only once.
func TestManyJobs(t *testing.T) {
	s := newScene(t)
	const jobs = 40
	for i := range jobs {
		s.place(t, fmt.Sprintf("job-%d", i), []v1alpha1.Failover{v1alpha1.FailoverHold, v1alpha1.FailoverFenced}[i%2])
	}
	s.agents.set(s.worker, s.Clock.Now().Add(24*time.Hour))
	var writes meter
	s.options.Hub = &wrapped{Client: s.Cached, around: writes.around}
	s.restart()
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	if writes.writes != jobs || writes.most > 8 {
		t.Errorf("%d writes, %d of them at a time, want %d and not more than 8", writes.writes, writes.most, jobs)
	}
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	check.Equal(t, jobs, writes.writes, "%d more writes when there was nothing to say", writes.writes-jobs)
}

// Jobs whose writes fail do not stop the other jobs.
func TestSomeFail(t *testing.T) {
	s := newScene(t)
	broken := errors.New("broken")
	var good []client.ObjectKey
	for i := range 12 {
		if i%3 == 0 {
			s.place(t, fmt.Sprintf("bad-%d", i), v1alpha1.FailoverImmediate)
		} else {
			good = append(good, s.place(t, fmt.Sprintf("good-%d", i), v1alpha1.FailoverImmediate))
		}
	}
	s.options.Hub = &wrapped{Client: s.Cached, around: func(object client.Object, write func() error) error {
		if strings.HasPrefix(object.GetName(), "bad") {
			return broken
		}
		return write()
	}}
	s.restart()
	s.Clock.Step(time.Hour)
	if _, err := s.try(t); !errors.Is(err, broken) {
		t.Errorf("the error is %v", err)
	}
	for _, key := range good {
		s.isMoved(t, key)
	}
}

// race calls happens during a write to an object for which on is true.
func (s *scene) race(on func(client.Object) bool, happens func()) {
	done := false
	s.options.Hub = &wrapped{Client: s.Cached, around: func(object client.Object, write func() error) error {
		if on(object) && !done {
			done = true
			happens()
		}
		return write()
	}}
	s.restart()
}

func isDispatch(object client.Object) bool { _, ok := object.(*v1alpha1.Dispatch); return ok }

func isTrainJob(object client.Object) bool { _, ok := object.(*unstructured.Unstructured); return ok }

// A worker returns while the manager handles its loss. The first writer wins, and the second gets a conflict.
func TestReturn(t *testing.T) {
	finish := func(t *testing.T, s *scene, key client.ObjectKey) {
		stage.Report(t, s.Hub.Admin, s.job(t, key), trainer.TrainJobComplete, 0)
		d := s.Dispatch(t, key.Name)
		d.Status.Phase = v1alpha1.PhaseFinished
		meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
			Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonComplete,
		})
		must(t, s.Hub.Admin.Status().Update(t.Context(), d))
	}
	takeBack := func(t *testing.T, s *scene, key client.ObjectKey) {
		d := s.Dispatch(t, key.Name)
		d.Status.Phase = v1alpha1.PhaseRunning
		meta.RemoveStatusCondition(&d.Status.Conditions, v1alpha1.DispatchWorkerLost)
		must(t, s.Hub.Admin.Status().Update(t.Context(), d))
	}
	for name, test := range map[string]struct {
		reason  string
		on      func(client.Object) bool
		happens func(*testing.T, *scene, client.ObjectKey)
		// finished: the job ends as its copy has ended.
		finished bool
	}{
		"BackBeforeTheStatusIsTakenBack": {
			reason: "mirror has taken the loss back", on: isTrainJob, happens: takeBack,
		},
		"BackBeforeTheEnd": {
			reason: "mirror has taken the loss back", on: isDispatch, happens: takeBack,
		},
		"FinishedBeforeTheStatusIsTakenBack": {
			reason: "what has ended is not touched", on: isTrainJob, happens: finish, finished: true,
		},
		"FinishedBeforeTheEnd": {
			reason: "what has ended has not been given up", on: isDispatch, happens: finish, finished: true,
		},
		"CompleteBeforeTheStatusIsTakenBack": {
			reason: "mirror writes the TrainJob first, and this process must not say that it goes on", on: isTrainJob, finished: true,
			happens: func(t *testing.T, s *scene, key client.ObjectKey) {
				stage.Report(t, s.Hub.Admin, s.job(t, key), trainer.TrainJobComplete, 0)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			key := s.place(t, "job", v1alpha1.FailoverFenced)
			s.Clock.Step(time.Hour)
			s.reconcile(t)
			s.goesOn(t, key, v1alpha1.ReasonFencing)
			s.race(test.on, func() { test.happens(t, s, key) })
			s.Clock.Step(time.Minute) // From now on the caches are believed.
			s.reconcile(t)
			if after := s.reconcile(t); !test.finished && after == 0 {
				// By all that is known the worker is still lost, so nothing changes for the job.
				s.goesOn(t, key, v1alpha1.ReasonFencing)
			}
			d := s.Dispatch(t, key.Name)
			if len(d.Status.History) != 0 || d.AttemptEnded() {
				t.Fatalf("the attempt was given up: %s: %+v", test.reason, d.Status)
			}
			check.Equal(t, 0, len(s.tombstones(t)), "a Tombstone was written: %s", test.reason)
			check.Equal(t, test.finished, trainjobs.Terminal(s.job(t, key)) != nil,
				"the TrainJob has ended: %s", test.reason)
		})
	}
}

// The controller asks the connection again before it ends an attempt.
func TestReturnBetweenObserveAndAct(t *testing.T) {
	for name, test := range map[string]struct {
		failover v1alpha1.Failover
		contact  failover.Contact
		said     string
	}{
		"Fenced":           {failover: v1alpha1.FailoverFenced, contact: failover.Contact{Answers: true}, said: v1alpha1.ReasonFencing},
		"NoLongerSilent":   {failover: v1alpha1.FailoverFenced, contact: failover.Contact{UnreachableSince: time.Now()}, said: v1alpha1.ReasonFencing},
		"Immediate":        {failover: v1alpha1.FailoverImmediate, contact: failover.Contact{Answers: true}},
		"AnswersStrangely": {failover: v1alpha1.FailoverImmediate},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			key := s.place(t, "job", test.failover)
			if test.said != "" {
				s.Clock.Step(time.Hour)
				s.reconcile(t)
			}
			s.Clock.Step(time.Hour)
			s.options.HubReader = &wrappedReader{Reader: s.Hub.Admin, before: func() { s.contacts.set(s.worker, test.contact) }}
			s.restart()
			s.reconcile(t)
			s.goesOn(t, key, test.said)
			if s.job(t, key).Object["status"] == nil {
				t.Error("the status of the TrainJob was taken back")
			}
		})
	}
}

// A TrainJob that the cache does not show may exist.
func TestTrainJobIsLookedFor(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverImmediate)
	s.options.Hub = &wrapped{Client: s.Cached, hidden: key, around: func(_ client.Object, write func() error) error { return write() }}
	s.restart()
	s.Clock.Step(time.Hour)
	s.reconcile(t)
	check.Equal(t, nil, s.Dispatch(t, key.Name).DeletionTimestamp, "the Dispatch was deleted")
}

// A cache may lag behind the end of a job. Mirror writes that end first to the TrainJob, and then to the Dispatch.
func TestStaleTrainJob(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverImmediate)
	s.options.Hub = &wrapped{
		Client: s.Cached, stale: s.job(t, key), around: func(_ client.Object, write func() error) error { return write() },
	}
	s.restart()
	stage.Report(t, s.Hub.Admin, s.job(t, key), trainer.TrainJobFailed, 0)
	s.Clock.Step(time.Hour)
	check.Equal(t, 20*time.Millisecond, s.reconcile(t), "looks again after")
	s.goesOn(t, key, "")
	if trainjobs.Terminal(s.job(t, key)) == nil {
		t.Error("the end of the job was taken back")
	}
}

// The caches of a process that has just started may lag. The process that led before may have placed the job elsewhere.
func TestStaleDispatchAfterStart(t *testing.T) {
	s := newScene(t)
	key := s.place(t, "job", v1alpha1.FailoverImmediate)
	s.Clock.Step(time.Hour)
	reader := &wrappedReader{Reader: s.Hub.Admin}
	reader.before = func() {
		reader.before = nil
		d := s.Dispatch(t, key.Name)
		d.Spec.Cluster, d.Spec.Attempt = s.peer(), 2
		must(t, s.Hub.Admin.Update(t.Context(), d))
	}
	s.options.HubReader = reader
	s.restart()
	s.reconcile(t)
	if s.job(t, key).Object["status"] == nil {
		t.Error("what the copy on the next worker says was taken back")
	}
	if d := s.Dispatch(t, key.Name); d.AttemptEnded() {
		t.Errorf("the next attempt was ended: %+v", d.Status)
	}
}

// A WorkerCluster that the cache does not show may exist.
func TestWorkerClusterIsLookedFor(t *testing.T) {
	s := newScene(t)
	d := s.Dispatch(t, s.place(t, "job", v1alpha1.FailoverHold).Name)
	s.Unregister(t, s.worker)
	s.Settle(t, s.Cached)
	reader := &wrappedReader{Reader: s.Hub.Admin, before: func() {
		if err := s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: string(s.worker)}, &v1alpha1.WorkerCluster{}); err != nil {
			s.register(t, s.worker)
		}
	}}
	s.options.HubReader = reader
	s.restart()
	s.reconcile(t)
	s.goesOn(t, types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, "")
}

// The manager wakes for every change that matters, and for no other change.
func TestManager(t *testing.T) {
	s := newScene(t)
	worker := s.WorkerCluster(t, s.worker)
	worker.Spec.Failover.GracePeriod = &metav1.Duration{Duration: time.Second}
	must(t, s.Hub.Admin.Update(t.Context(), worker))
	s.answer(t, s.worker)
	s.startManager(t)
	immediate := s.place(t, "immediate", v1alpha1.FailoverImmediate)
	fenced := s.place(t, "fenced", v1alpha1.FailoverFenced)
	deleted := s.place(t, "deleted", v1alpha1.FailoverHold)
	// The connection is lost, the record says that, and the grace period ends.
	s.Clock.SetTime(time.Now())
	s.lose(t, s.worker, 0)
	s.agents.set(s.worker, time.Now().Add(time.Hour))
	eventually(t, "the grace ends", func(g gomega.Gomega) {
		g.Expect(s.Dispatch(t, immediate.Name).AttemptEnded()).To(gomega.BeTrue())
		g.Expect(lost(s.Dispatch(t, fenced.Name))).To(gomega.Equal(v1alpha1.ReasonFencing))
	})
	// The agents learn an earlier time.
	s.agents.set(s.worker, time.Now().Add(500*time.Millisecond))
	eventually(t, "the agent must have stopped", func(g gomega.Gomega) {
		g.Expect(s.Dispatch(t, fenced.Name).AttemptEnded()).To(gomega.BeTrue())
	})
	// A job is deleted in the background. Its Dispatch waits until an admin has the worker forgotten.
	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t, deleted)))
	eventually(t, "the deletion waits", func(g gomega.Gomega) {
		g.Expect(lost(s.Dispatch(t, deleted.Name))).To(gomega.Equal(v1alpha1.ReasonDeletionPending))
	})
	s.forget(t, clusterID)
	eventually(t, "the deletion is released", func(g gomega.Gomega) { g.Expect(s.Dispatch(t, deleted.Name)).To(gomega.BeNil()) })
	s.answer(t, s.worker)
	eventually(t, "it is remembered", func(g gomega.Gomega) {
		g.Expect(s.WorkerCluster(t, s.worker).Annotations).NotTo(gomega.HaveKey(v1alpha1.AnnotationForget))
	})
	// If another worker is lost too, this worker is judged again.
	later := s.place(t, "later", v1alpha1.FailoverImmediate)
	s.lose(t, s.peer(), 0)
	s.lose(t, s.worker, 0)
	eventually(t, "failover is paused", func(g gomega.Gomega) {
		g.Expect(lost(s.Dispatch(t, later.Name))).To(gomega.Equal(v1alpha1.ReasonFailoverPaused))
	})
	s.answer(t, s.peer())
	eventually(t, "failover goes on", func(g gomega.Gomega) { g.Expect(s.Dispatch(t, later.Name).AttemptEnded()).To(gomega.BeTrue()) })
}
