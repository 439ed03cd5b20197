// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/test/check"
)

// priorityClass makes a PriorityClass of the scene's own, and returns what gives it to a job.
func (s *scene) priorityClass(t *testing.T, value int32) func(*trainer.TrainJob) {
	t.Helper()
	class := &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", s.Namespace, value)}, Value: value}
	check.Must(t, s.Hub.Admin.Create(t.Context(), class))
	t.Cleanup(func() { check.Must(t, s.Hub.Admin.Delete(context.Background(), class)) })
	return classed(class.Name)
}

func classed(name string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationPriorityClass, name)
	}
}

// large is a job that takes a whole worker.
func large(job *trainer.TrainJob) {
	requests := corev1.ResourceList{gpu: resource.MustParse("8")}
	job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: requests, Limits: requests}
}

// fill places four jobs, which is all that the two workers have room for, and returns their Dispatches.
func (s *scene) fill(t *testing.T, changes ...func(*trainer.TrainJob)) []*v1alpha1.Dispatch {
	t.Helper()
	var all []*v1alpha1.Dispatch
	for i := range 4 {
		name := fmt.Sprintf("filler-%d", i)
		s.Submit(t, name, changes...)
		d, _ := s.reconcile(t, name)
		if d.Spec.Cluster == "" {
			t.Fatalf("%s waits: %v", name, reasonsOf(d))
		}
		all = append(all, d)
	}
	return all
}

func (s *scene) finish(t *testing.T, d *v1alpha1.Dispatch) {
	t.Helper()
	s.report(t, d, v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.OutcomeComplete)
}

// expect reconciles a waiting job and fails unless it waits for the reason.
func (s *scene) expect(t *testing.T, name, reason string) *v1alpha1.Dispatch {
	t.Helper()
	d, _ := s.reconcile(t, name)
	if d.Spec.Cluster != "" || d.Status.Reason != reason {
		t.Fatalf("%s is on %q, reason %q, want it to wait with %s: %v", name, d.Spec.Cluster, d.Status.Reason, reason, d.Status.Conditions)
	}
	return d
}

// The first job in order gets the room that becomes free, whichever job is looked at first, and after a restart too.
func TestPriorityComesFirst(t *testing.T) {
	for name, between := range map[string]func(t *testing.T, s *scene){
		"InOneProcess": func(*testing.T, *scene) {},
		"Restart":      func(t *testing.T, s *scene) { t.Helper(); s.restart(t) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			high := s.priorityClass(t, 100)
			fillers := s.fill(t)
			s.Submit(t, "low")
			s.expect(t, "low", v1alpha1.ReasonNoFit)
			s.Submit(t, "high", high)
			if d := s.expect(t, "high", v1alpha1.ReasonNoFit); d.Spec.Priority != 100 {
				t.Errorf("spec.priority is %d, want that of the class", d.Spec.Priority)
			}
			s.finish(t, fillers[0])
			between(t, s)
			if d, _ := s.reconcile(t, "low"); d.Spec.Cluster != "" {
				t.Errorf("the job of low priority got what the one of high priority waits for")
			}
			if d, _ := s.reconcile(t, "high"); d.Spec.Cluster != fillers[0].Spec.Cluster {
				t.Errorf("the job of high priority is on %q, want %q, where a job has ended", d.Spec.Cluster, fillers[0].Spec.Cluster)
			}
			s.expect(t, "low", v1alpha1.ReasonNoFit)
		})
	}
}

// If the PriorityClass of a job is missing, its Dispatch says so, and names the classes that exist.
func TestPriorityClassIsMissing(t *testing.T) {
	s := newScene(t)
	s.priorityClass(t, 7)
	s.Submit(t, "job", classed(s.Namespace+"-8"))
	d := s.expect(t, "job", v1alpha1.ReasonPriorityClassNotFound)
	want := fmt.Sprintf("annotation trainyard.dev/priority-class: the hub has no PriorityClass %q; did you mean %q?", s.Namespace+"-8", s.Namespace+"-7")
	if got := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced).Message; got != want {
		t.Errorf("the message is\n%s\nwant\n%s", got, want)
	}
	s.priorityClass(t, 8)
	if d, _ := s.reconcile(t, "job"); d.Spec.Cluster == "" || d.Spec.Priority != 8 {
		t.Errorf("the job is on %q with priority %d, want it placed with 8", d.Spec.Cluster, d.Spec.Priority)
	}
}

// StrictFIFO holds the jobs behind the first job. BestEffortFIFO lets them pass until the first job has waited long
// enough.
func TestQueueing(t *testing.T) {
	s := newScene(t)
	policy := s.Policy(t, v1alpha1.DispatchPolicySpec{Queueing: v1alpha1.StrictFIFO, ReserveAfter: &metav1.Duration{Duration: 10 * time.Minute}})
	first := s.priorityClass(t, 1)
	fillers := s.fill(t)
	s.Submit(t, "big", first, large)
	s.expect(t, "big", v1alpha1.ReasonNoFit)
	s.finish(t, fillers[0])
	s.expect(t, "big", v1alpha1.ReasonNoFit)
	s.Submit(t, "small")
	d := s.expect(t, "small", v1alpha1.ReasonQueued)
	if message := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced).Message; !strings.Contains(message, "StrictFIFO") {
		t.Errorf("the message is %q, want what holds the job", message)
	}

	before := policy.DeepCopy()
	policy.Spec.Queueing = v1alpha1.BestEffortFIFO
	check.Must(t, s.Hub.Admin.Patch(t.Context(), policy, client.MergeFrom(before)))
	small, _ := s.reconcile(t, "small")
	if small.Spec.Cluster != fillers[0].Spec.Cluster {
		t.Fatalf("the small job is on %q, want %q: it may pass now", small.Spec.Cluster, fillers[0].Spec.Cluster)
	}

	s.Clock.Step(10 * time.Minute)
	s.expect(t, "big", v1alpha1.ReasonReserved)
	s.finish(t, fillers[1])
	s.expect(t, "big", v1alpha1.ReasonReserved)
	held := fillers[1].Spec.Cluster
	s.Submit(t, "late")
	late, _ := s.reconcile(t, "late")
	s.finish(t, small)
	big, _ := s.reconcile(t, "big")
	for i := 2; i < 4 && big.Spec.Cluster == ""; i++ {
		if late.Spec.Cluster == "" && late.Status.Reason != v1alpha1.ReasonQueued {
			t.Errorf("the late job waits with %s, want %s", late.Status.Reason, v1alpha1.ReasonQueued)
		}
		s.finish(t, fillers[i])
		big, _ = s.reconcile(t, "big")
	}
	if big.Spec.Cluster == "" {
		t.Errorf("the big job waits though its worker is empty (%s freed first): %v", held, reasonsOf(big))
	}
}

// If its policy allows it, a job of higher priority has as few jobs stopped as make room on one worker, and gets that
// room.
func TestPreemption(t *testing.T) {
	for name, restart := range map[string]func(t *testing.T, s *scene){
		"InOneProcess": func(*testing.T, *scene) {},
		"Restarts":     func(t *testing.T, s *scene) { t.Helper(); s.restart(t) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			policy := s.Policy(t, v1alpha1.DispatchPolicySpec{})
			s.fill(t)
			s.Submit(t, "high", s.priorityClass(t, 100))
			s.expect(t, "high", v1alpha1.ReasonNoFit)
			before := policy.DeepCopy()
			policy.Spec.Preemption = v1alpha1.PreemptLowerPriority
			check.Must(t, s.Hub.Admin.Patch(t.Context(), policy, client.MergeFrom(before)))
			high := s.expect(t, "high", v1alpha1.ReasonPreempting)

			victim := s.victims(t, high, 1)[0]
			restart(t, s)
			s.expect(t, "high", v1alpha1.ReasonPreempting)
			s.Submit(t, "other")
			if d, _ := s.reconcile(t, "other"); d.Spec.Cluster != "" {
				t.Errorf("another job is on %q", d.Spec.Cluster)
			}
			s.endsAttempt(t, victim, v1alpha1.OutcomePreempted)
			restart(t, s)
			waiting, _ := s.reconcile(t, victim.Name)
			if waiting.Spec.Cluster != "" || waiting.Spec.Eviction != nil || waiting.Spec.Attempt != 1 {
				t.Errorf("the victim's spec is %+v, want it to wait, without an eviction", waiting.Spec)
			}
			high, _ = s.reconcile(t, "high")
			if high.Spec.Cluster != victim.Spec.Cluster {
				t.Errorf("the job of high priority is on %q, want %q, where the victim was", high.Spec.Cluster, victim.Spec.Cluster)
			}
			s.victims(t, high, 0)
		})
	}
}

// The owner of a job decides how long the job takes to stop. A job of higher priority waits for ten minutes. Then it
// has another job stopped.
func TestPreemptorDoesNotWaitForEver(t *testing.T) {
	for name, restart := range map[string]func(t *testing.T, s *scene){
		"InOneProcess": func(*testing.T, *scene) {},
		"Restarts":     func(t *testing.T, s *scene) { t.Helper(); s.restart(t) },
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Policy(t, v1alpha1.DispatchPolicySpec{Preemption: v1alpha1.PreemptLowerPriority})
			s.fill(t)
			s.Submit(t, "high", s.priorityClass(t, 100))
			high := s.expect(t, "high", v1alpha1.ReasonPreempting)
			slow := s.victims(t, high, 1)[0]
			restart(t, s)
			s.expect(t, "high", v1alpha1.ReasonPreempting)
			if wait, ok := s.reconciler.decider.Next(); !ok || wait > decider.EvictionPatience {
				t.Fatalf("the next pass is in %s (%t), though the job's patience ends in %s", wait, ok, decider.EvictionPatience)
			}
			s.Clock.Step(decider.EvictionPatience - time.Second)
			s.victims(t, s.expect(t, "high", v1alpha1.ReasonPreempting), 1)
			s.Clock.Step(2 * time.Second)
			var other *v1alpha1.Dispatch
			for _, victim := range s.victims(t, s.expect(t, "high", v1alpha1.ReasonPreempting), 2) {
				if victim.Name != slow.Name {
					other = victim
				}
			}
			s.endsAttempt(t, other, v1alpha1.OutcomePreempted)
			if high, _ = s.reconcile(t, "high"); high.Spec.Cluster != other.Spec.Cluster {
				t.Errorf("the job of high priority is on %q, want %q, where there is room", high.Spec.Cluster, other.Spec.Cluster)
			}
		})
	}
}

// Mirror reports the end of an attempt before the worker reports that the pods of the attempt are gone.
func TestPreemptionWaitsForReports(t *testing.T) {
	s := newScene(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{Preemption: v1alpha1.PreemptLowerPriority})
	for _, filler := range s.fill(t) {
		s.bind(t, filler)
	}
	s.awaitUsed(t, 32)
	s.Submit(t, "high", s.priorityClass(t, 100))
	high := s.expect(t, "high", v1alpha1.ReasonPreempting)
	victim := s.victims(t, high, 1)[0]
	s.endsAttempt(t, victim, v1alpha1.OutcomePreempted)
	s.victims(t, s.expect(t, "high", v1alpha1.ReasonPreempting), 0)

	of := []client.DeleteAllOfOption{client.InNamespace(s.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: victim.Name}, client.GracePeriodSeconds(0)}
	check.Must(t, s.Worker(victim.Spec.Cluster).Admin.DeleteAllOf(t.Context(), &corev1.Pod{}, of...))
	s.awaitUsed(t, 24)
	if high, _ = s.reconcile(t, "high"); high.Spec.Cluster != victim.Spec.Cluster {
		t.Errorf("the job of high priority is on %q, want %q, where the victim was", high.Spec.Cluster, victim.Spec.Cluster)
	}
}

// victims reconciles all fillers and returns the fillers that have to make room for a job.
func (s *scene) victims(t *testing.T, preemptor *v1alpha1.Dispatch, want int) []*v1alpha1.Dispatch {
	t.Helper()
	var victims []*v1alpha1.Dispatch
	for i := range 4 {
		d, _ := s.reconcile(t, fmt.Sprintf("filler-%d", i))
		if d.Spec.Eviction == nil {
			continue
		}
		s.tell(d)
		victims = append(victims, d)
		wanted := &v1alpha1.Eviction{
			Reason: v1alpha1.EvictionPreempted, For: preemptor.Spec.TrainJob.UID,
			Message: fmt.Sprintf("a TrainJob of priority 100 needs the room on worker %s; the priority of this one is 0", d.Spec.Cluster),
		}
		check.Diff(t, wanted, d.Spec.Eviction, "eviction")
	}
	if len(victims) != want {
		t.Fatalf("%d jobs are to make room, want %d", len(victims), want)
	}
	return victims
}

// endsAttempt writes the status of an attempt that is over without a fault of the worker.
func (s *scene) endsAttempt(t *testing.T, d *v1alpha1.Dispatch, outcome v1alpha1.Outcome) {
	t.Helper()
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionFalse, Reason: string(outcome),
	})
	d.Status.Cluster, d.Status.Attempt = d.Spec.Cluster, d.Spec.Attempt
	d.Status.History = append(d.Status.History, v1alpha1.Attempt{
		Attempt: d.Spec.Attempt, Cluster: d.Spec.Cluster, To: metav1.NewTime(s.Clock.Now()), Outcome: outcome,
	})
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), d))
	s.tell(d)
}
