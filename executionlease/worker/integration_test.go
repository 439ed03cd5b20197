// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker_test

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	workerlease "github.com/trainyard/trainyard/executionlease/worker"
	"github.com/trainyard/trainyard/test/check"
)

// TestFencing has one agent that leads, and a standby that makes the JobSets. Each case has its own hubs.
func TestFencing(t *testing.T) {
	e := withLeases(t)
	first := e.startAgent(t, "first", with{})
	e.awaitLeader(t, first)
	second := e.startAgent(t, "the second", with{trainJobs: true})
	t.Run("Silence", func(t *testing.T) { testSilence(t, e) })
	t.Run("LateAnswer", func(t *testing.T) { testLateAnswer(t, e) })
	t.Run("LateCreation", func(t *testing.T) { testLateCreation(t, e) })
	t.Run("OldAttempt", func(t *testing.T) { testOldAttempt(t, e) })
	t.Run("ForgedCopy", func(t *testing.T) { testForgedCopy(t, e) })
	t.Run("SecondCopy", func(t *testing.T) { testSecondCopy(t, e) })
	t.Run("NoLease", func(t *testing.T) { testNoLease(t, e) })
	t.Run("Takeover", func(t *testing.T) { testTakeover(t, e, first, second) })
}

// testSilence: copies run while the hub answers. When a hub is silent, the agent stops the hub's fenced copies in time.
func testSilence(t *testing.T, e *environment) {
	a, b := e.newHub(t), e.newHub(t)
	short, long, unheeded := a.runCopy(t, "short", 1, nil), a.runCopy(t, "long", 3600, nil), a.runCopy(t, deaf+"one", 3600, nil)
	held := a.runCopy(t, "held", 1, map[string]string{v1alpha1.AnnotationFailover: string(v1alpha1.FailoverHold)})
	others := b.runCopy(t, "others", 1, nil)
	for range 4 {
		e.step(t, fenceAfter*4/10)
	}
	e.checkRuns(t, short, long, unheeded, held, others)

	// The time counts from the last answered challenge. The stop begins after 50 s: it gets at most half of fenceAfter.
	a.setSilent(true)
	e.step(t, 51*time.Second)
	e.awaitFenced(t, long)
	e.awaitFenced(t, unheeded)
	e.checkRuns(t, short, held, others)
	eventually(t, "pod of "+long.Name+" to be deleted", func(g gomega.Gomega) {
		pod := newPod()
		g.Expect(e.Get(t.Context(), client.ObjectKeyFromObject(long), pod)).To(gomega.Succeed())
		g.Expect(pod.DeletionTimestamp.IsZero()).To(gomega.BeFalse())
	})
	e.step(t, 10*time.Second)
	// After 70 s, half of the time for a stop is over, and nobody has deleted the pod of one copy.
	e.step(t, 10*time.Second)
	eventually(t, "deletion of "+unheeded.Name, func(g gomega.Gomega) {
		g.Expect(e.get(t, unheeded).DeletionTimestamp.IsZero()).To(gomega.BeFalse())
	})
	// After 84 s, there are 15 s of slack and one second of grace to the deadline.
	e.checkRuns(t, short)
	e.step(t, 14*time.Second)
	e.awaitFenced(t, short)
	e.awaitNoPod(t, short)
	check.Must(t, e.Get(t.Context(), client.ObjectKeyFromObject(long), newPod()))
	// After 90 s, the agent shortens the grace of the remaining pods. 9 s before the deadline no pod is alive.
	e.step(t, 6*time.Second)
	e.awaitNoPod(t, long)
	e.awaitNoPod(t, unheeded)
	e.checkRuns(t, held, others)
	if !e.get(t, long).DeletionTimestamp.IsZero() {
		t.Error("a copy was deleted though its pods had been told to end")
	}
	e.checkEvent(t, long, workerlease.ReasonFenced, "suspended, because its hub "+a.id+" has not answered this cluster's agent for 51s")
	e.checkEvent(t, long, workerlease.ReasonFenced, "the hub resumes it")
	if state := a.lease(t).Status.State; state != v1alpha1.LeaseValid {
		t.Errorf("the lease is %s before its deadline", state)
	}
	e.step(t, 10*time.Second)
	a.awaitState(t, v1alpha1.LeaseExpired)

	a.setSilent(false)
	a.awaitState(t, v1alpha1.LeaseValid)
	e.step(t, interval)
	if got := a.lease(t).Status; got.Fenced != 3 || got.Agent != "first" {
		t.Errorf("the lease says that %d copies are stopped, by %q, want 3 by first", got.Fenced, got.Agent)
	}
	if !isFenced(e.get(t, short)) {
		t.Error("the agent has resumed a copy; only the hub knows whether it is the current one")
	}
	a.resume(t, short)
	e.step(t, interval)
	if isSuspended(e.get(t, short)) {
		t.Error("a copy that its hub has resumed was suspended again")
	}
}

// testLateAnswer: an answer that took most of fenceAfter to arrive is valid only for the rest of fenceAfter.
func testLateAnswer(t *testing.T, e *environment) {
	h := e.newHub(t)
	h.setSilent(true)
	e.step(t, interval)
	eventually(t, "another challenge", func(g gomega.Gomega) {
		g.Expect(h.lease(t).Status.Challenge).NotTo(gomega.Equal(*h.word.Load()))
	})
	late := h.lease(t).Status.Challenge
	e.step(t, 80*time.Second) // The answer before is valid for 10 s more, this one for 20 s.
	check.Must(t, h.answer(t.Context(), late))
	e.step(t, 15*time.Second)
	h.awaitState(t, v1alpha1.LeaseValid)
	e.step(t, 6*time.Second)
	h.awaitState(t, v1alpha1.LeaseExpired)
	h.checkLeaseEvent(t, workerlease.ReasonHubSilent)
	check.Must(t, h.answer(t.Context(), late)) // It sends the same answer again.
	run := h.lease(t).Status.Challenge
	e.step(t, interval)
	eventually(t, "another challenge", func(g gomega.Gomega) { g.Expect(h.lease(t).Status.Challenge).NotTo(gomega.Equal(run)) })
	if state := h.lease(t).Status.State; state != v1alpha1.LeaseExpired {
		t.Errorf("the lease is %s by an answer that was given before", state)
	}
	h.setSilent(false)
	h.awaitState(t, v1alpha1.LeaseValid)
	h.checkLeaseEvent(t, workerlease.ReasonHubAnswers)
}

// testLateCreation: a copy whose creation took longer than fenceAfter gets no JobSet until the hub stamps it again.
func testLateCreation(t *testing.T, e *environment) {
	h := e.newHub(t)
	old := map[string]string{v1alpha1.AnnotationChallenge: *h.word.Load()}
	early := h.createCopy(t, "early", old)
	h.awaitJobSet(t, early)
	for range 3 {
		e.step(t, fenceAfter*4/10)
	}
	late := h.createCopy(t, "late", old)
	unstamped := h.createCopy(t, "unstamped", map[string]string{v1alpha1.AnnotationChallenge: ""})
	for _, job := range []*trainer.TrainJob{late, unstamped} {
		e.awaitFenced(t, job)
		e.checkEvent(t, job, "Held", "nothing is created for it")
		e.checkEvent(t, job, workerlease.ReasonFenced, "took too long")
		h.checkNoJobSet(t, job)
	}
	if isSuspended(e.get(t, early)) {
		t.Error("a copy that has started in time was stopped for its old challenge")
	}
	h.resume(t, late)
	h.awaitJobSet(t, late)
	h.checkNoJobSet(t, unstamped)
}

// testOldAttempt: a copy of an earlier attempt does not start, whatever its failover is. The agent tells the hub of the
// later attempt.
func testOldAttempt(t *testing.T, e *environment) {
	h := e.newHub(t)
	for name, failover := range map[string]v1alpha1.Failover{"fenced": v1alpha1.FailoverFenced, "hold": v1alpha1.FailoverHold} {
		attempt := func(attempt string) *trainer.TrainJob {
			return h.createCopy(t, name, map[string]string{
				v1alpha1.AnnotationAttempt: attempt, v1alpha1.AnnotationFailover: string(failover),
			})
		}
		job := attempt("3")
		jobSet := h.awaitJobSet(t, job)
		check.Must(t, e.Delete(t.Context(), job))
		check.Must(t, e.Delete(t.Context(), jobSet)) // The test has no garbage collector.
		check.Must(t, e.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(h.namespace)))
		old := attempt("2")
		e.checkEvent(t, old, "Held", "this cluster has had a later attempt of its hub TrainJob")
		if failover == v1alpha1.FailoverFenced {
			e.awaitFenced(t, old)
		}
		eventually(t, "copy of attempt 2 to tell of attempt 3", func(g gomega.Gomega) {
			g.Expect(e.Get(t.Context(), client.ObjectKeyFromObject(old), old)).To(gomega.Succeed())
			g.Expect(old.Annotations).To(gomega.HaveKeyWithValue(v1alpha1.AnnotationLaterAttempt, "3"))
		})
		h.checkNoJobSet(t, old)
		check.Must(t, e.Delete(t.Context(), old))
		h.awaitJobSet(t, attempt("4"))
	}
}

// testForgedCopy: a user of another namespace gives a TrainJob the marks of a copy and the highest attempt. The real
// copy is not outdated by it and gets a new JobSet.
func testForgedCopy(t *testing.T, e *environment) {
	h := e.newHub(t)
	job := h.createCopy(t, "victim", nil)
	jobSet := h.awaitJobSet(t, job)
	forged := &trainer.TrainJob{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: h.namespace + "-of-others", Name: job.Name, Labels: job.Labels,
			Annotations: map[string]string{v1alpha1.AnnotationAttempt: "2147483647"},
		},
		Spec: job.Spec,
	}
	check.Must(t, e.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: forged.Namespace}}))
	check.Must(t, e.Create(t.Context(), forged))
	h.awaitJobSet(t, forged)
	check.Must(t, e.Delete(t.Context(), jobSet))
	eventually(t, "another JobSet", func(g gomega.Gomega) {
		g.Expect(e.Get(t.Context(), client.ObjectKeyFromObject(job), &jobsetv1alpha2.JobSet{})).To(gomega.Succeed())
	})
	if got := e.get(t, job); isFenced(got) || got.Annotations[v1alpha1.AnnotationLaterAttempt] != "" {
		t.Errorf("the copy was stopped: %v", got.Annotations)
	}
	check.Must(t, e.Delete(t.Context(), forged))
}

// testSecondCopy: a creation is sent twice. The second one arrives when the first copy has run and was deleted. The
// second copy does not start before the hub has seen it.
func testSecondCopy(t *testing.T, e *environment) {
	h := e.newHub(t)
	job := h.createCopy(t, "twice", nil)
	jobSet := h.awaitJobSet(t, job)
	e.step(t, interval)
	check.Must(t, e.Delete(t.Context(), job))
	check.Must(t, e.Delete(t.Context(), jobSet)) // The test has no garbage collector.
	check.Must(t, e.DeleteAllOf(t.Context(), &corev1.ConfigMap{}, client.InNamespace(h.namespace)))
	second := h.createCopy(t, "twice", nil)
	e.awaitFenced(t, second)
	e.checkEvent(t, second, workerlease.ReasonFenced, "another copy of the same attempt")
	h.checkNoJobSet(t, second)
	h.resume(t, second)
	h.awaitJobSet(t, second)
}

// testNoLease: a deleted lease stops no copy if the hub creates a new one. A copy of a hub without a lease is stopped.
func testNoLease(t *testing.T, e *environment) {
	h := e.newHub(t)
	job := h.runCopy(t, "job", 1, nil)
	before := h.lease(t)
	check.Must(t, e.Delete(t.Context(), before))
	h.createLease(t)
	h.awaitState(t, v1alpha1.LeaseValid)
	if run := h.lease(t).Status.Run; run <= before.Status.Run {
		t.Errorf("the new lease has run %d, the old one had %d: an answer to that one could be taken for one to this", run, before.Status.Run)
	}
	e.checkRuns(t, job)

	stranger := &hub{environment: e, id: h.id + "-stranger", namespace: h.namespace}
	stranger.word.Store(h.word.Load())
	waiting := stranger.createCopy(t, "waiting", nil)
	e.checkEvent(t, waiting, "Held", "its hub has not answered this cluster's agent yet")
	// The hub's time begins when the leader has taken over, which it does after the watch has shown the copy. Gate may be
	// asked about the copy before that.
	eventually(t, "copy of a hub without a lease", func(g gomega.Gomega) {
		for _, a := range e.agents {
			g.Expect(a.fencer.Knows(waiting)).To(gomega.BeTrue())
		}
		g.Expect(e.agents[0].fencer.Deadline(stranger.id)).NotTo(gomega.BeZero())
	})
	e.step(t, interval)
	if isFenced(e.get(t, waiting)) {
		t.Error("a copy without a lease was stopped before the hub has had its time")
	}
	e.step(t, interval)
	e.awaitFenced(t, waiting)
	h.checkNoJobSet(t, waiting)
}

// TestLockLost: an agent that loses the Lease of the election becomes a standby, and leads again later.
func TestLockLost(t *testing.T) {
	e := withLeases(t)
	const lease = 2 * time.Second
	e.startAgent(t, "alone", with{trainJobs: true, lease: lease}) // The agent fails the test if it ends by itself.
	h := e.newHub(t)
	job := h.runCopy(t, "job", 1, nil)
	run := h.lease(t).Status.Run
	lock := &coordinationv1.Lease{}
	check.Must(t, e.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: workerlease.LeaseName}, lock))
	patch := client.MergeFrom(lock.DeepCopy())
	lock.Spec.HolderIdentity, lock.Spec.LeaseDurationSeconds = new("a thief"), new(int32(lease/time.Second))
	check.Must(t, e.Patch(t.Context(), lock, patch))
	eventually(t, "another run", func(g gomega.Gomega) { g.Expect(h.lease(t).Status.Run).To(gomega.BeNumerically(">", run)) })
	h.awaitState(t, v1alpha1.LeaseValid)
	e.step(t, interval)
	e.checkRuns(t, job)
}

// testTakeover: a new leader stops nothing while the hub answers. If the hub is silent, the leader stops its copies in
// bounded time: first as a standby that has seen the answers, then as a process that knows nothing.
func testTakeover(t *testing.T, e *environment, leader, standby *agent) {
	present, lost := e.newHub(t), e.newHub(t)
	stays, goes := present.runCopy(t, "stays", 1, nil), lost.runCopy(t, "goes", 3600, nil)
	for range 12 {
		e.step(t, interval)
	}
	lost.setSilent(true)
	leader.stop()
	present.awaitAgent(t, standby)
	e.step(t, 30*time.Second)
	e.checkRuns(t, stays, goes)
	e.step(t, 21*time.Second)
	e.awaitFenced(t, goes)
	e.step(t, 40*time.Second) // It is 91 s after the last answered challenge was written.
	e.awaitNoPod(t, goes)
	e.checkRuns(t, stays)

	lost.setSilent(false)
	lost.awaitState(t, v1alpha1.LeaseValid)
	e.step(t, interval)
	again := lost.runCopy(t, "again", 3600, nil)
	lost.setSilent(true)
	third := e.startAgent(t, "a third one", with{})
	standby.stop()
	present.awaitAgent(t, third)
	present.awaitState(t, v1alpha1.LeaseValid)
	lost.awaitAgent(t, third)
	e.step(t, 9*time.Second)
	e.checkRuns(t, stays, again)
	e.step(t, 2*time.Second) // The handover is over.
	e.awaitFenced(t, again)
	e.step(t, interval) // 4 s of the slack are left.
	e.awaitNoPod(t, again)
	e.checkRuns(t, stays)
}

var copies atomic.Int32

// checkNoJobSet fails if a copy has a JobSet. It first waits for the JobSet of a copy that was created later.
func (h *hub) checkNoJobSet(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	h.awaitJobSet(t, h.createCopy(t, fmt.Sprintf("after-%d", copies.Add(1)), nil))
	if err := h.Get(t.Context(), client.ObjectKeyFromObject(job), &jobsetv1alpha2.JobSet{}); !apierrors.IsNotFound(err) {
		t.Errorf("copy %s, which must not start, has a JobSet (%v)", job.Name, err)
	}
}

// awaitAgent waits until an agent has taken over the ExecutionLease.
func (h *hub) awaitAgent(t *testing.T, a *agent) {
	t.Helper()
	eventually(t, a.name+" to take over", func(g gomega.Gomega) { g.Expect(h.lease(t).Status.Agent).To(gomega.Equal(a.name)) })
}

func (e *environment) awaitLeader(t *testing.T, a *agent) {
	t.Helper()
	eventually(t, a.name+" to lead", func(g gomega.Gomega) {
		lease := &coordinationv1.Lease{}
		g.Expect(e.Get(t.Context(), client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: workerlease.LeaseName}, lease)).To(gomega.Succeed())
		g.Expect(lease.Spec.HolderIdentity).NotTo(gomega.BeNil())
		g.Expect(*lease.Spec.HolderIdentity).To(gomega.Equal(a.name))
	})
}

// pinned is a cache that is behind: it shows a lease as it once was.
type pinned struct {
	client.Reader
	lease *v1alpha1.ExecutionLease
}

// Get implements client.Reader.
func (p pinned) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	p.lease.DeepCopyInto(object.(*v1alpha1.ExecutionLease))
	return nil
}

// Fault: the cache still shows a lease that was deleted and created again. The agent takes over the new lease once, and
// goes on with it.
func TestCacheShowsAnEarlierLease(t *testing.T) {
	e := withLeases(t)
	clock := clocktesting.NewFakeClock(time.Now())
	h := &hub{environment: e, id: "behind"}
	h.createLease(t)
	ignore := func(types.NamespacedName) {}
	replica := workerlease.NewReplica(workerlease.Options{Identity: "agent", Clock: clock}, workerlease.Parts{
		Client: e, Leases: pinned{e, h.lease(t)}, Live: e, Recorder: events.NewFakeRecorder(100), Waiting: ignore, Stops: ignore, Hubs: ignore,
	})
	defer replica.Lead()()
	reconcileHub := func() v1alpha1.ExecutionLeaseStatus {
		t.Helper()
		_, err := replica.Hubs.Reconcile(t.Context(), reconcile.Request{NamespacedName: types.NamespacedName{Name: h.id}})
		check.Must(t, err)
		return h.lease(t).Status
	}
	reconcileHub()
	check.Must(t, e.Delete(t.Context(), h.lease(t)))
	h.createLease(t)
	t.Cleanup(func() {
		check.Must(t, e.Delete(context.Background(), &v1alpha1.ExecutionLease{ObjectMeta: metav1.ObjectMeta{Name: h.id}}))
	})

	clock.Step(interval) // The next challenge is due. The agent cannot write it, because the lease is a new object.
	reconcileHub()
	first := reconcileHub()
	if first.Agent != "agent" || first.Challenge == "" {
		t.Fatalf("the agent has not taken over the new lease: %+v", first)
	}
	for range 3 {
		if diff := cmp.Diff(first, reconcileHub()); diff != "" {
			t.Fatalf("the agent has written though nothing is due (-before +after):\n%s", diff)
		}
	}
	clock.Step(interval)
	if next := reconcileHub(); next.Run != first.Run || next.Challenge == first.Challenge {
		t.Errorf("run %d, challenge %s, want the next challenge of run %d after %s", next.Run, next.Challenge, first.Run, first.Challenge)
	}
}

// TestCRDComesLater: fencing begins when the CRD is installed. The agent works without it. This file must be the first.
func TestCRDComesLater(t *testing.T) {
	e := shared.Get(t)
	if err := e.Get(t.Context(), client.ObjectKey{Name: "any"}, &v1alpha1.ExecutionLease{}); !meta.IsNoMatchError(err) {
		t.Skip("another test has installed the CRD already")
	}
	e.startAgent(t, "early", with{trainJobs: true})
	stranger := &hub{environment: e, id: "stranger", namespace: "default"}
	stranger.word.Store(new(""))
	fenced := stranger.createCopy(t, "fenced", nil)
	held := stranger.createCopy(t, "hold", map[string]string{v1alpha1.AnnotationFailover: string(v1alpha1.FailoverHold)})
	stranger.awaitJobSet(t, held)
	e.checkEvent(t, fenced, "Held", "nothing is created for it")
	check.Must(t, e.Delete(t.Context(), fenced))
	check.Must(t, e.Delete(t.Context(), held))

	withLeases(t)
	h := e.newHub(t)
	h.awaitJobSet(t, h.createCopy(t, "job", nil))
}
