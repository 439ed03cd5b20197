// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/laws"
)

// givesUp makes a policy for the scene's jobs that gives them up after an hour.
func (s *scene) givesUp(t *testing.T) *v1alpha1.DispatchPolicy {
	t.Helper()
	return s.Policy(t, v1alpha1.DispatchPolicySpec{GiveUpAfter: &metav1.Duration{Duration: time.Hour}})
}

// failure is the condition Failed of a TrainJob, nil if it has none.
func (s *scene) failure(t *testing.T, name string) *metav1.Condition {
	t.Helper()
	return meta.FindStatusCondition(s.TrainJob(t, name).Status.Conditions, trainer.TrainJobFailed)
}

// expectGivenUp reconciles a job whose time is over, step by step, and checks each write: first the Dispatch says that the
// job is given up, then the TrainJob is Failed, and then the Dispatch has finished. Nothing is written after that.
func (s *scene) expectGivenUp(t *testing.T, name string, words ...string) {
	t.Helper()
	before := s.Dispatch(t, name)
	given, _ := s.reconcile(t, name)
	check.Must(t, laws.Check(before, given))
	if state := record.StateOf(given); state != record.GivenUp || s.failure(t, name) != nil {
		t.Fatalf("the Dispatch is %s, and the TrainJob says %+v, want that the Dispatch says it first", state, s.failure(t, name))
	}
	s.tell(given)
	s.restart(t) // The next manager goes on from there.
	failed := s.failure(t, name)
	if failed == nil || failed.Status != metav1.ConditionTrue || failed.Reason != v1alpha1.ReasonGivenUp {
		t.Fatalf("the TrainJob says %+v", failed)
	}
	for _, word := range words {
		if !strings.Contains(failed.Message, word) {
			t.Errorf("the TrainJob says %q, want it to say %q", failed.Message, word)
		}
	}
	finished, _ := s.reconcile(t, name)
	check.Must(t, laws.Check(given, finished))
	if state := record.StateOf(finished); state != record.Finished || finished.Status.Phase != v1alpha1.PhaseFinished ||
		finished.Status.Reason != v1alpha1.ReasonGivenUp || finished.Spec.Attempt != before.Spec.Attempt {
		t.Fatalf("the Dispatch is %s: %+v", state, finished)
	}
	job := s.TrainJob(t, name)
	s.Clock.Step(24 * time.Hour)
	if again, result := s.reconcile(t, name); again.ResourceVersion != finished.ResourceVersion || result.RequeueAfter != 0 ||
		s.TrainJob(t, name).ResourceVersion != job.ResourceVersion {
		t.Errorf("a job that was given up is written again, or looked at again after %s", result.RequeueAfter)
	}
}

// A job that has waited for giveUpAfter is given up at that time, and not before. It is looked at exactly then, also
// after a restart, and the TrainJob says what each worker lacked.
func TestGiveUp(t *testing.T) {
	s := newScene(t)
	s.givesUp(t)
	s.fill(t)
	s.Submit(t, "job")
	s.expect(t, "job", v1alpha1.ReasonNoFit)
	s.Clock.Step(59 * time.Minute)
	s.restart(t) // When the job began to wait is on record.
	if d, result := s.reconcile(t, "job"); record.StateOf(d) != record.Waiting || result.RequeueAfter != time.Minute {
		t.Fatalf("after 59 minutes the job is %s, and looked at again after %s, want 1m", record.StateOf(d), result.RequeueAfter)
	}
	s.Clock.Step(time.Minute)
	s.expectGivenUp(t, "job", "no worker took the job within 1h0m0s (giveUpAfter of DispatchPolicy", "NoFit: east: InsufficientResources: lacks 8 ",
		"; west: InsufficientResources: ")
}

// Without giveUpAfter a job waits for ever, and it is not looked at.
func TestNobodyIsGivenUpByDefault(t *testing.T) {
	s := newScene(t)
	s.fill(t)
	s.Submit(t, "job")
	s.expect(t, "job", v1alpha1.ReasonNoFit)
	s.Clock.Step(24 * 365 * time.Hour)
	if _, result := s.reconcile(t, "job"); result.RequeueAfter != 0 || s.failure(t, "job") != nil {
		t.Errorf("the job is looked at again after %s, and the TrainJob says %v", result.RequeueAfter, s.failure(t, "job"))
	}
}

// What becomes of jobs whose time would be over.
func TestWhoIsGivenUp(t *testing.T) {
	unschedulable := func(t *testing.T, s *scene) {
		t.Helper()
		s.worker(t, east, cordon)
		s.worker(t, west, cordon)
	}
	for name, test := range map[string]struct {
		reason string
		edit   func(*trainer.TrainJob)
		// passes is what happens until an hour has passed since the job was submitted.
		passes func(t *testing.T, s *scene)
		words  string // Of the job's failure, empty if it is not given up.
		// after is for how long the job waits then.
		after time.Duration
	}{
		"RefusedByAll": {
			reason: "attempts that never ran do not interrupt the waiting", words: "Rejected: east: ",
			passes: func(t *testing.T, s *scene) {
				t.Helper()
				s.refusedByAll(t, "job")
				s.Clock.Step(time.Hour - time.Second)
				s.refusedByAll(t, "job")
				s.Clock.Step(time.Second)
			},
		},
		"Missing": {
			reason: "what the job waits for is in the message", words: "RuntimeNotFound: ",
			edit: func(job *trainer.TrainJob) { job.Spec.RuntimeRef.Name = "none" },
			passes: func(t *testing.T, s *scene) {
				t.Helper()
				s.expect(t, "job", v1alpha1.ReasonRuntimeNotFound)
				s.Clock.Step(time.Hour)
			},
		},
		"PolicyComesLater": {
			reason: "the time counts from when the job began to wait", words: "NoFit: ",
			passes: func(t *testing.T, s *scene) {
				t.Helper()
				unschedulable(t, s)
				s.expect(t, "job", v1alpha1.ReasonNoFit)
				s.Clock.Step(time.Hour)
			},
		},
		"Suspended": {
			reason: "suspended time does not count", after: time.Hour,
			passes: func(t *testing.T, s *scene) {
				t.Helper()
				unschedulable(t, s)
				s.expect(t, "job", v1alpha1.ReasonNoFit)
				s.suspendJob(t, "job", true)
				s.expect(t, "job", v1alpha1.ReasonSuspended)
				s.Clock.Step(time.Hour)
				s.expect(t, "job", v1alpha1.ReasonSuspended)
				s.suspendJob(t, "job", false)
			},
		},
		"Preempted": {
			reason: "the time begins anew after an attempt that ran", after: time.Hour,
			passes: func(t *testing.T, s *scene) {
				t.Helper()
				unschedulable(t, s)
				s.expect(t, "job", v1alpha1.ReasonNoFit)
				s.Clock.Step(time.Hour - time.Second)
				s.worker(t, east, func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = false })
				d, _ := s.reconcile(t, "job")
				s.worker(t, east, cordon)
				s.Clock.Step(time.Hour)
				check.Must(t, records.Writer{Hub: s.Hub.Admin, Clock: s.Clock}.End(t.Context(), d, v1alpha1.OutcomePreempted, "words"))
				s.tell(s.Dispatch(t, "job"))
			},
		},
		"Placed": {
			reason: "it has a worker",
			passes: func(t *testing.T, s *scene) {
				t.Helper()
				s.reconcile(t, "job")
				s.Clock.Step(time.Hour)
			},
		},
		"RoomInTheLastMoment": {
			reason: "it is placed rather than given up",
			passes: func(t *testing.T, s *scene) {
				t.Helper()
				unschedulable(t, s)
				s.expect(t, "job", v1alpha1.ReasonNoFit)
				s.Clock.Step(2 * time.Hour)
				s.worker(t, west, func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = false })
				s.restart(t) // As after a manager that was away for hours.
			},
		},
		"Tombstone": {
			reason: "a worker that was lost may have a copy",
			passes: func(t *testing.T, s *scene) {
				t.Helper()
				unschedulable(t, s)
				job := s.TrainJob(t, "job")
				s.Tombstone(t, v1alpha1.TombstoneSpec{
					Cluster: west, ClusterID: "id", Attempt: 1, TrainJob: v1alpha1.TrainJobReference{Name: job.Name, UID: job.UID},
				})
				s.expect(t, "job", v1alpha1.ReasonNoFit)
				s.Clock.Step(2 * time.Hour)
			},
		},
		"UnknownCopy": {
			reason: "it may be running",
			passes: func(t *testing.T, s *scene) {
				t.Helper()
				s.unknown = &copies{on: map[types.NamespacedName]v1alpha1.ClusterName{s.Key("job"): west}}
				s.restart(t)
				s.expect(t, "job", v1alpha1.ReasonUnknownCopy)
				s.Clock.Step(2 * time.Hour)
			},
		},
		"MultiKueue": {
			reason: "MultiKueue dispatches it",
			passes: func(t *testing.T, s *scene) {
				t.Helper()
				s.kueue = &turning{}
				s.restart(t)
				s.expect(t, "job", v1alpha1.ReasonManagedByMultiKueue)
				s.Clock.Step(2 * time.Hour)
			},
		},
		"PolicyWithFault": {
			reason: "nobody knows what its admin wanted",
			passes: func(t *testing.T, s *scene) {
				t.Helper()
				policy := &v1alpha1.DispatchPolicy{}
				check.Must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: s.Namespace}, policy))
				policy.Spec.Clusters.Expression = "worker.labels["
				check.Must(t, s.Hub.Admin.Update(t.Context(), policy))
				s.expect(t, "job", v1alpha1.ReasonInvalidPolicy)
				s.Clock.Step(2 * time.Hour)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			edits := []func(*trainer.TrainJob){}
			if test.edit != nil {
				edits = append(edits, test.edit)
			}
			s.Submit(t, "job", edits...)
			if name == "PolicyComesLater" {
				test.passes(t, s)
				s.givesUp(t)
			} else {
				s.givesUp(t)
				test.passes(t, s)
			}
			if test.words != "" {
				s.expectGivenUp(t, "job", test.words)
				return
			}
			d, result := s.reconcile(t, "job")
			if state := record.StateOf(d); state == record.GivenUp || s.failure(t, "job") != nil {
				t.Fatalf("the job is %s, the TrainJob says %v: %s", state, s.failure(t, "job"), test.reason)
			}
			if test.after == 0 {
				return
			}
			if result.RequeueAfter != test.after {
				t.Errorf("looked at again after %s, want %s: %s", result.RequeueAfter, test.after, test.reason)
			}
			s.Clock.Step(test.after)
			s.expectGivenUp(t, "job", fmt.Sprintf("within %s", test.after))
		})
	}
}

// The deletion of a Tombstone wakes a job that may be given up then, and no other.
func TestTombstonesWakeWhoWaits(t *testing.T) {
	s := newScene(t)
	s.worker(t, east, cordon)
	s.worker(t, west, cordon)
	s.Submit(t, "job")
	s.expect(t, "job", v1alpha1.ReasonNoFit)
	s.drain()
	for _, name := range []string{"job", "other"} {
		gone := &v1alpha1.Tombstone{Spec: v1alpha1.TombstoneSpec{Namespace: s.Namespace, TrainJob: v1alpha1.TrainJobReference{Name: name}}}
		s.reconciler.watches.tombstones().Delete(t.Context(), event.DeleteEvent{Object: gone}, nil)
	}
	if woken := s.drain(); len(woken) != 1 || !woken[s.Key("job")] {
		t.Errorf("woken are %v, want the job that waits", woken)
	}
}
