// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"context"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
)

// rooms answers as a test wants. The zero value has room for all jobs on the worker "b".
type rooms struct {
	// lacks is what the worker "b" lacks, by job, and lacksAll for all jobs.
	lacks    map[string]string
	lacksAll string
	// unknown: placement does not know yet.
	unknown bool
	// alike: all jobs are, so that one of them is tried.
	alike bool
	asked []string
	// kept has the jobs for which room is kept.
	kept map[types.UID]bool
}

// Elsewhere implements Room.
func (r *rooms) Elsewhere(
	_ context.Context, d *v1alpha1.Dispatch, full map[string]v1alpha1.ClusterExplanation,
) (v1alpha1.ClusterExplanation, error) {
	if answer, known := full["all"]; known {
		return answer, nil
	}
	r.asked = append(r.asked, d.Name)
	lacks := r.lacksAll
	if lacks == "" {
		lacks = r.lacks[d.Name]
	}
	switch {
	case r.unknown:
		return v1alpha1.ClusterExplanation{}, nil
	case lacks != "":
		answer := v1alpha1.ClusterExplanation{Cluster: "b", Reason: v1alpha1.ReasonInsufficientResources, Message: lacks}
		if r.alike {
			full["all"] = answer
		}
		return answer, nil
	}
	if r.kept == nil {
		r.kept = map[types.UID]bool{}
	}
	r.kept[d.Spec.TrainJob.UID] = true
	return v1alpha1.ClusterExplanation{Cluster: "b", Reason: v1alpha1.ReasonFits}, nil
}

// Release implements Room.
func (r *rooms) Release(origin types.UID) { delete(r.kept, origin) }

// Subscribe implements Room. Tests that need it run placement.
func (r *rooms) Subscribe(func()) (cancel func()) { return func() {} }

// placeAgain writes what placement writes when it has found the next worker for a job whose attempt has ended.
func (s *scene) placeAgain(t *testing.T, name string, worker v1alpha1.ClusterName) {
	t.Helper()
	d := s.Dispatch(t, name)
	d.Spec.Cluster, d.Spec.Attempt, d.Spec.Eviction = worker, d.Spec.Attempt+1, nil
	check.Must(t, s.Hub.Admin.Update(t.Context(), d))
}

// The jobs of a drained worker move one after the other: the next job leaves when the job before it has a new copy.
func TestDrainKeepsToTheBudget(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{})
	worker, other := s.Register(t, "a"), s.Register(t, "c")
	for _, name := range []string{"first", "second", "third"} {
		s.place(t, name, worker)
	}
	s.place(t, "elsewhere", other)
	s.reconcile(t, worker)
	s.wantEvicted(t, "nobody drains the worker")
	s.ChangeWorker(t, worker, drain)
	s.ChangeWorker(t, other, drain)
	s.reconcile(t, worker)
	moved := s.evicted(t)
	if len(moved) != 1 {
		t.Fatalf("evicted are %q, want one", moved)
	}
	name, _, _ := strings.Cut(moved[0], " ")
	if message := s.Dispatch(t, name).Spec.Eviction.Message; message != "worker a is being drained, and worker b has room for the job" {
		t.Errorf("the message is %q", message)
	}
	step := func(what string) {
		t.Helper()
		s.reconcile(t, worker)
		s.reconcile(t, other)
		s.wantEvicted(t, what, moved...)
	}
	step("it is being stopped")
	s.restart()
	step("it is still, after a restart")
	s.stopped(t, name)
	step("it has no worker")
	s.placeAgain(t, name, "b")
	moved = nil
	step("its next copy does not exist")
	s.Copied(t, s.Dispatch(t, name))
	s.reconcile(t, worker)
	if got := s.evicted(t); len(got) != 1 || strings.HasPrefix(got[0], name+" ") {
		t.Errorf("evicted are %q, want the next one", got)
	}
}

// An eviction counts before the cache shows it, and each policy has its own budget.
func TestBudgetsCountWhatIsNotSeenYet(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{MaxConcurrentMoves: new(int32(2))})
	worker, other := s.Register(t, "a", drain), s.Register(t, "c", drain)
	for _, name := range []string{"1", "2", "3"} {
		s.place(t, "a"+name, worker)
		s.place(t, "c"+name, other)
	}
	s.Settle(t, s.Cached)
	for range 3 { // The cache mostly shows nothing yet.
		for _, name := range []v1alpha1.ClusterName{worker, other} {
			_, err := s.reconciler.Reconcile(t.Context(), request(name))
			check.Must(t, err)
		}
	}
	if got := s.evicted(t); len(got) != 2 {
		t.Errorf("evicted are %q, want two", got)
	}
}

// One job that does not stop, or that its user pins to nowhere when it has stopped, holds up the others for ten minutes.
func TestDrainIsNotHeldUpForEver(t *testing.T) {
	for name, hold := range map[string]func(t *testing.T, s *scene, job string){
		"DoesNotStop": func(*testing.T, *scene, string) {},
		"StopsSlowly": func(t *testing.T, s *scene, job string) {
			t.Helper()
			d := s.Dispatch(t, job)
			record.SetEvicting(&d.Status, d, "its pods are ending", s.Clock.Now())
			check.Must(t, s.Hub.Admin.Status().Update(t.Context(), d))
		},
		"GetsNoWorker": func(t *testing.T, s *scene, job string) {
			t.Helper()
			s.stopped(t, job)
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Policy(t, v1alpha1.DispatchPolicySpec{})
			worker := s.Register(t, "a", drain)
			for _, name := range []string{"first", "second"} {
				s.place(t, name, worker)
			}
			s.reconcile(t, worker)
			moved := s.evicted(t)
			if len(moved) != 1 {
				t.Fatalf("evicted are %q, want one", moved)
			}
			job, _, _ := strings.Cut(moved[0], " ")
			hold(t, s, job)
			s.reconcile(t, worker)
			s.Clock.Step(record.MovePatience - 5*time.Second)
			if result := s.reconcile(t, worker); result.RequeueAfter <= 0 || result.RequeueAfter > record.MovePatience {
				t.Errorf("the worker is looked at again in %s, want it when the patience ends", result.RequeueAfter)
			}
			before := s.evicted(t)
			s.Clock.Step(10 * time.Second)
			s.reconcile(t, worker)
			if got := s.evicted(t); len(got) != len(before)+1 {
				t.Errorf("evicted are %q after the patience, and %q before, want one more", got, before)
			}
		})
	}
}

// A job that fits nowhere else stays and says so once, lets other jobs pass, and moves when there is room. Placement
// handles a suspended job: it ends the attempt.
func TestDrainWithoutRoom(t *testing.T) {
	s := newScene(t)
	worker := s.Register(t, "a", drain)
	s.place(t, "large", worker)
	s.place(t, "small", worker)
	s.place(t, "paused", worker, func(job *trainer.TrainJob) { job.Spec.Suspend = new(true) })
	s.room.unknown = true
	s.reconcile(t, worker)
	s.wantEvicted(t, "nothing is known of room for them")

	s.room.unknown, s.room.lacks = false, map[string]string{"large": "lacks 8 nvidia.com/gpu", "small": "lacks 1 nvidia.com/gpu"}
	s.differ(t, "large")
	s.reconcile(t, worker)
	said := s.Dispatch(t, "large")
	condition := meta.FindStatusCondition(said.Status.Conditions, v1alpha1.DispatchEvicting)
	if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != v1alpha1.ReasonNoRoomElsewhere ||
		condition.Message != "worker a is being drained, and the job fits on no other worker; the nearest is worker b: lacks 8 nvidia.com/gpu" {
		t.Fatalf("the condition is %+v", condition)
	}
	s.room.lacks["large"] = "lacks 7 nvidia.com/gpu"
	s.reconcile(t, worker)
	check.Equal(t, said.ResourceVersion, s.Dispatch(t, "large").ResourceVersion,
		"only a number has changed, and it was written")
	delete(s.room.lacks, "small")
	s.reconcile(t, worker)
	s.wantEvicted(t, "it may pass the large one", "small Drained")
	s.stopped(t, "small")
	s.placeAgain(t, "small", "b")
	s.Copied(t, s.Dispatch(t, "small"))
	delete(s.room.lacks, "large")
	s.reconcile(t, worker)
	s.wantEvicted(t, "there is room", "large Drained")
}

// differ gives a job a demand that no other job has.
func (s *scene) differ(t *testing.T, name string) {
	t.Helper()
	d := s.Dispatch(t, name)
	d.Spec.PodSets[0].Count += 1000
	check.Must(t, s.Hub.Admin.Update(t.Context(), d))
}

// When the drain is taken back, no more jobs leave and no more messages are written. A move that has begun goes on, and
// nothing is written about a job that is being deleted.
func TestDrainIsTakenBack(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{MaxConcurrentMoves: new(int32(2))}) // Both jobs may move.
	worker := s.Register(t, "a", drain)
	s.place(t, "stays", worker)
	s.place(t, "deleted", worker)
	s.place(t, "goes", worker)
	s.differ(t, "stays")
	s.differ(t, "deleted")
	s.room.lacks = map[string]string{"stays": "lacks room", "deleted": "lacks room"}
	s.reconcile(t, worker)
	s.wantEvicted(t, "there is room for it", "goes Drained")
	for _, name := range []string{"stays", "deleted"} {
		if !record.HasNoRoomElsewhere(s.Dispatch(t, name)) {
			t.Fatalf("nothing is said of job %s, which has no room elsewhere", name)
		}
	}
	deleted := s.Dispatch(t, "deleted")
	deleted.Finalizers = []string{v1alpha1.FinalizerCopy} // Its worker still has the copy.
	check.Must(t, s.Hub.Admin.Update(t.Context(), deleted))
	check.Must(t, s.Hub.Admin.Delete(t.Context(), deleted))
	deleted = s.Dispatch(t, "deleted")
	s.ChangeWorker(t, worker, undrain)
	s.restart()
	s.room.lacks = nil
	s.reconcile(t, worker)
	s.wantEvicted(t, "it was begun", "goes Drained")
	check.Equal(t, nil, meta.FindStatusCondition(s.Dispatch(t, "stays").Status.Conditions, v1alpha1.DispatchEvicting),
		"the condition")
	check.Equal(t, deleted.ResourceVersion, s.Dispatch(t, "deleted").ResourceVersion, "the version of the Dispatch that is being deleted")
}

// The controller does not move jobs off a worker that does not answer: that is for failover.
func TestUnreachableWorkerIsNotDrained(t *testing.T) {
	s := newScene(t)
	worker := s.Register(t, "a", drain, s.Ready(v1alpha1.ReasonUnreachable))
	s.place(t, "job", worker)
	before := s.Dispatch(t, "job")
	s.reconcile(t, worker)
	if after := s.Dispatch(t, "job"); after.ResourceVersion != before.ResourceVersion || len(s.room.asked) > 0 {
		t.Errorf("the Dispatch was written, or asked about: %+v, %q", after.Spec.Eviction, s.room.asked)
	}
	s.ChangeWorker(t, worker, s.Ready(v1alpha1.ReasonConnected))
	s.reconcile(t, worker)
	s.wantEvicted(t, "it answers again", "job Drained")
}

// The controller gives the room back if it could not write the eviction.
func TestRoomIsReleased(t *testing.T) {
	s := newScene(t)
	worker := s.Register(t, "a", drain)
	s.place(t, "job", worker)
	s.Settle(t, s.Cached)
	s.reconciler.Hub = failing{s.Cached}
	if _, err := s.reconciler.Reconcile(t.Context(), request(worker)); err == nil || len(s.room.asked) != 1 || len(s.room.kept) != 0 {
		t.Errorf("error %v, asked about %q, kept for %v, want an error and nothing kept", err, s.room.asked, s.room.kept)
	}
	s.reconciler.Hub = s.Cached
	s.reconcile(t, worker)
	s.wantEvicted(t, "it was tried again", "job Drained")
	check.Equal(t, 1, len(s.room.kept), "room is kept for %v, want the job", s.room.kept)
}

// failing refuses all patches.
type failing struct{ client.Client }

func (failing) Patch(context.Context, client.Object, client.Patch, ...client.PatchOption) error {
	return context.DeadlineExceeded
}

// A job that its worker does not let run leaves after its policy's admissionTimeout, if another worker has room.
func TestAdmissionTimeout(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{AdmissionTimeout: &metav1.Duration{Duration: 10 * time.Minute}})
	worker := s.Register(t, "a")
	s.place(t, "queued", worker)
	inDomain := s.Dispatch(t, "queued")
	inDomain.Spec.Domain = &v1alpha1.Domain{Label: "rack", Value: "r1"}
	check.Must(t, s.Hub.Admin.Update(t.Context(), inDomain))
	s.place(t, "runs", worker)
	s.place(t, "paused", worker, func(job *trainer.TrainJob) { job.Spec.Suspend = new(true) })
	queued := trainer.TrainJobStatus{Conditions: []metav1.Condition{{
		Type: trainer.TrainJobSuspended, Status: metav1.ConditionTrue, Reason: trainer.TrainJobSuspendedReason,
		LastTransitionTime: metav1.NewTime(s.Clock.Now().Add(-100 * time.Hour)), // The time is from the worker's clock.
	}}}
	s.says(t, "queued", queued)
	s.says(t, "paused", queued)
	s.says(t, "runs", trainer.TrainJobStatus{JobsStatus: []trainer.JobStatus{{
		Name: "node", Ready: new(int32(1)), Active: new(int32(1)), Succeeded: new(int32(0)), Failed: new(int32(0)), Suspended: new(int32(0)),
	}}})
	expect := func(what string, due time.Duration, evicted ...string) {
		t.Helper()
		check.Equal(t, due, s.reconcile(t, worker).RequeueAfter, "looked at again after: %s", what)
		s.wantEvicted(t, what, evicted...)
	}
	expect("its time has begun", 10*time.Minute)
	s.Clock.Step(9 * time.Minute)
	expect("it is not over", time.Minute)
	s.restart()
	expect("a restart forgets nothing", time.Minute)
	s.Clock.Step(time.Minute)
	s.room.lacksAll = "lacks room"
	expect("it would only lose its place", 0)
	s.room.lacksAll = ""
	expect("there is room", 0, "queued AdmissionTimeout")
	if message := s.Dispatch(t, "queued").Spec.Eviction.Message; !strings.Contains(message, "has not let the job run in domain rack=r1 for the admissionTimeout of DispatchPolicy "+s.Namespace+", 10m0s") {
		t.Errorf("the message is %q", message)
	}

	s.ChangeWorker(t, worker, s.Ready(v1alpha1.ReasonUnreachable))
	s.place(t, "late", worker)
	s.says(t, "late", queued)
	s.Clock.Step(time.Hour)
	expect("while the worker is away nothing is known of the job", 0, "queued AdmissionTimeout")
	s.ChangeWorker(t, worker, s.Ready(v1alpha1.ReasonConnected))
	expect("it begins anew", 10*time.Minute, "queued AdmissionTimeout")
}

// A gang for whose pods its worker finds no node leaves after the admissionTimeout, counted from when the copy was
// made. Pods that have a node, and pull an image, do not count.
func TestAdmissionTimeoutOfAGangWithoutNodes(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{AdmissionTimeout: &metav1.Duration{Duration: 10 * time.Minute}})
	worker := s.Register(t, "a")
	s.place(t, "pulls", worker)
	s.place(t, "wide", worker)
	pending := trainer.TrainJobStatus{JobsStatus: []trainer.JobStatus{{
		Name: "node", Ready: new(int32(0)), Active: new(int32(2)), Succeeded: new(int32(0)), Failed: new(int32(0)), Suspended: new(int32(0)),
	}}}
	sick := func(name, reason string) {
		t.Helper()
		d := s.Dispatch(t, name)
		d.Status.Phase = v1alpha1.PhaseStarting
		record.SetHealth(&d.Status, d, metav1.Condition{
			Type: v1alpha1.DispatchHealthy, Status: metav1.ConditionFalse, Reason: reason, Message: "words",
		}, s.Clock.Now())
		check.Must(t, s.Hub.Admin.Status().Update(t.Context(), d))
	}
	for _, name := range []string{"pulls", "wide"} {
		s.says(t, name, pending)
	}
	s.reconcile(t, worker)
	s.Clock.Step(6 * time.Minute)
	sick("pulls", "ImagePullFailed")
	sick("wide", v1alpha1.ReasonUnschedulable)
	check.Equal(t, 4*time.Minute, s.reconcile(t, worker).RequeueAfter,
		"looked at again after: want 4m: the gang has waited for 6 of its 10 minutes")
	s.Clock.Step(4 * time.Minute)
	s.room.lacksAll = "lacks room"
	s.reconcile(t, worker)
	s.wantEvicted(t, "it would only lose its place")
	s.room.lacksAll = ""
	s.reconcile(t, worker)
	s.wantEvicted(t, "there is room", "wide AdmissionTimeout")
}
