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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
)

// heldTrials keeps the questions to workers. The test answers them.
type heldTrials struct {
	asked []heldTrial
	pods  []heldPod
}

type heldTrial struct {
	worker   v1alpha1.ClusterName
	job      *unstructured.Unstructured
	dispatch *v1alpha1.Dispatch
	answer   func(refused string)
}

// Try implements Trials.
func (h *heldTrials) Try(
	worker v1alpha1.ClusterName, job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, answered func(string),
) {
	h.asked = append(h.asked, heldTrial{worker, job, dispatch, answered})
}

// next returns the only question that has come since the last call.
func (h *heldTrials) next(t *testing.T) heldTrial {
	t.Helper()
	if len(h.asked) != 1 {
		t.Fatalf("%d questions were sent to workers, want one", len(h.asked))
	}
	asked := h.asked[0]
	h.asked = nil
	return asked
}

// silent fails if a worker was asked.
func (h *heldTrials) silent(t *testing.T, when string) {
	t.Helper()
	if len(h.asked) > 0 {
		t.Fatalf("worker %s is asked %s", h.asked[0].worker, when)
	}
}

// newTrialScene returns a scene whose workers are full, and the questions to them.
func newTrialScene(t *testing.T) (*scene, *heldTrials) {
	t.Helper()
	s, trials := newScene(t), &heldTrials{}
	s.trials = trials
	s.restart(t)
	s.Policy(t, v1alpha1.DispatchPolicySpec{Preemption: v1alpha1.PreemptLowerPriority})
	s.fill(t)
	trials.silent(t, "for jobs that have room")
	return s, trials
}

// labelled changes a label of a job on the hub.
func (s *scene) labelled(t *testing.T, name, value string) {
	t.Helper()
	job := s.TrainJob(t, name)
	before := job.DeepCopy()
	metav1.SetMetaDataAnnotation(&job.ObjectMeta, "example.com/note", value)
	check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(before)))
}

// placedMessage is what the Dispatch of a job says of its waiting.
func placedMessage(d *v1alpha1.Dispatch) string {
	return meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced).Message
}

// Nobody is stopped for a job before the worker on which the victims run has accepted the copy that the job would get.
func TestVictimsStopAfterATrial(t *testing.T) {
	s, trials := newTrialScene(t)
	s.Submit(t, "high", s.priorityClass(t, 100))
	high := s.expect(t, "high", v1alpha1.ReasonNoFit)
	asked := trials.next(t)
	s.victims(t, high, 0)
	want := v1alpha1.DispatchSpec{
		TrainJob: high.Spec.TrainJob, Cluster: asked.worker, Attempt: 1, Priority: 100, PodSets: high.Spec.PodSets,
		Failover: v1alpha1.FailoverHold, ClusterID: asked.dispatch.Spec.ClusterID, Counted: asked.dispatch.Spec.Counted,
	}
	check.Diff(t, want, asked.dispatch.Spec, "the worker is asked about another Dispatch than it would get")

	s.expect(t, "high", v1alpha1.ReasonNoFit)
	trials.silent(t, "a second time")
	asked.answer("")
	high = s.expect(t, "high", v1alpha1.ReasonPreempting)
	if victim := s.victims(t, high, 1)[0]; victim.Spec.Cluster != asked.worker {
		t.Errorf("a job on worker %s is stopped, and worker %s has accepted the copy", victim.Spec.Cluster, asked.worker)
	}
	trials.silent(t, "after it has accepted the copy")
}

// Attack: no worker takes the job, and an edit begins it again. No job is stopped.
func TestNobodyStopsForAJobThatNoWorkerTakes(t *testing.T) {
	s, trials := newTrialScene(t)
	s.Submit(t, "high", s.priorityClass(t, 100))
	for _, edit := range []string{"", "a", "b"} {
		if edit != "" {
			s.labelled(t, "high", edit)
		}
		var refused []v1alpha1.ClusterName
		for range 2 {
			s.expect(t, "high", v1alpha1.ReasonNoFit)
			asked := trials.next(t)
			refused = append(refused, asked.worker)
			asked.answer("admission webhook says no")
		}
		if refused[0] == refused[1] {
			t.Errorf("worker %s is asked twice about the same job", refused[0])
		}
		s.expect(t, "high", v1alpha1.ReasonNoFit)
		s.Clock.Step(explanationInterval) // Until then the words of the explanation stay.
		high := s.expect(t, "high", v1alpha1.ReasonNoFit)
		trials.silent(t, "though all have refused")
		s.victims(t, high, 0)
		for _, worker := range refused {
			if words := fmt.Sprintf("worker %s would refuse the job: admission webhook says no", worker); !strings.Contains(placedMessage(high), words) {
				t.Errorf("the Dispatch says %q, want it to say %q", placedMessage(high), words)
			}
		}
	}
	s.Clock.Step(record.MinBackoff)
	s.expect(t, "high", v1alpha1.ReasonNoFit)
	trials.next(t)
}

// An answer that comes late, or about a job that has changed since, stops nobody.
func TestOldAnswersStopNobody(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		age    func(t *testing.T, s *scene)
		want   string // What the Dispatch says.
	}{
		"Late": {
			reason: "a worker that answers late has not accepted",
			age:    func(_ *testing.T, s *scene) { s.Clock.Step(decider.TrialPatience) },
			want:   "has not answered whether it takes the job",
		},
		"JobEdited": {
			reason: "the worker has accepted another copy than it would get",
			age: func(t *testing.T, s *scene) {
				t.Helper()
				s.labelled(t, "high", "edited")
				s.expect(t, "high", v1alpha1.ReasonNoFit)
			},
		},
		"WorkerChanged": {
			reason: "the worker may have other rules now",
			age: func(t *testing.T, s *scene) {
				t.Helper()
				for _, name := range []v1alpha1.ClusterName{east, west} {
					s.worker(t, name, func(worker *v1alpha1.WorkerCluster) { worker.Status.KubernetesVersion = "v1.99.0" })
				}
			},
		},
		"Restart": {
			reason: "a new process asks again",
			age: func(t *testing.T, s *scene) {
				t.Helper()
				s.restart(t)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, trials := newTrialScene(t)
			s.Submit(t, "high", s.priorityClass(t, 100))
			s.expect(t, "high", v1alpha1.ReasonNoFit)
			asked := trials.next(t)
			tc.age(t, s)
			asked.answer("")
			high := s.expect(t, "high", v1alpha1.ReasonNoFit)
			s.victims(t, high, 0)
			if !strings.Contains(placedMessage(high), tc.want) {
				t.Errorf("%s: the Dispatch says %q, want %q", tc.reason, placedMessage(high), tc.want)
			}
			trials.next(t).answer("") // Another worker, or the same worker about the job as it is now.
			s.victims(t, s.expect(t, "high", v1alpha1.ReasonPreempting), 1)
		})
	}
}

// A job that changes after its worker has accepted it takes back what was decided for it.
func TestEditTakesBackPreemption(t *testing.T) {
	s, trials := newTrialScene(t)
	s.Submit(t, "high", s.priorityClass(t, 100))
	s.expect(t, "high", v1alpha1.ReasonNoFit)
	trials.next(t).answer("")
	s.expect(t, "high", v1alpha1.ReasonPreempting)
	s.labelled(t, "high", "edited")
	high, _ := s.reconcile(t, "high")
	s.victims(t, high, 0)
}

// Attack: a dry run passes, and the worker refuses the copy after all. Preemption backs off, for the job and for its
// namespace, whatever is edited, and also if the job is made anew.
func TestPreemptionBacksOff(t *testing.T) {
	s, trials := newTrialScene(t)
	class := s.priorityClass(t, 100)
	s.Submit(t, "high", class)
	s.expect(t, "high", v1alpha1.ReasonNoFit)
	trials.next(t).answer("")
	victim := s.victims(t, s.expect(t, "high", v1alpha1.ReasonPreempting), 1)[0]
	s.endsAttempt(t, victim, v1alpha1.OutcomePreempted)
	high, _ := s.reconcile(t, "high")
	if high.Spec.Cluster != victim.Spec.Cluster {
		t.Fatalf("the job is on %q, want %q", high.Spec.Cluster, victim.Spec.Cluster)
	}
	s.report(t, high, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.OutcomeRejected)
	if back, _ := s.reconcile(t, victim.Name); back.Spec.Cluster == "" {
		t.Fatalf("%s has not come back: %v", victim.Name, reasonsOf(back))
	}

	s.labelled(t, "high", "edited")
	s.expect(t, "high", v1alpha1.ReasonNoFit)
	s.Clock.Step(explanationInterval)
	refused := s.expect(t, "high", v1alpha1.ReasonNoFit)
	trials.silent(t, "for a job that backs off")
	if want := "too early to stop more"; !strings.Contains(placedMessage(refused), want) {
		t.Errorf("the Dispatch says %q, want %q", placedMessage(refused), want)
	}
	s.Submit(t, "another", class)
	if d, _ := s.reconcile(t, "another"); d.Spec.Cluster != "" {
		t.Errorf("another job is on %q", d.Spec.Cluster)
	}
	trials.silent(t, "for jobs whose namespace backs off")
	if wait, ok := s.reconciler.decider.Next(); !ok || wait > record.MinBackoff {
		t.Errorf("the next pass is in %s (%t), want it when the back-off ends", wait, ok)
	}
	s.Clock.Step(record.MinBackoff - explanationInterval - time.Second)
	s.expect(t, "high", v1alpha1.ReasonNoFit)
	trials.silent(t, "a second before the back-off ends")
	s.Clock.Step(time.Second)
	s.expect(t, "high", v1alpha1.ReasonNoFit)
	if len(trials.asked) == 0 {
		t.Error("no worker is asked after the back-off")
	}
}

// A job that has got its copy was worth it: the next one need not wait.
func TestPreemptionThatHelpsDoesNotBackOff(t *testing.T) {
	s, trials := newTrialScene(t)
	class := s.priorityClass(t, 100)
	s.Submit(t, "high", class)
	s.expect(t, "high", v1alpha1.ReasonNoFit)
	trials.next(t).answer("")
	victim := s.victims(t, s.expect(t, "high", v1alpha1.ReasonPreempting), 1)[0]
	s.endsAttempt(t, victim, v1alpha1.OutcomePreempted)
	high, _ := s.reconcile(t, "high")
	record.SetCopied(&high.Status, high, s.Clock.Now())
	high.Status.CopyUID = "copy"
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), high))
	s.tell(high)
	s.Submit(t, "another", class)
	s.expect(t, "another", v1alpha1.ReasonNoFit)
	trials.next(t).answer("")
	s.expect(t, "another", v1alpha1.ReasonPreempting)
}

// The time in which nobody was stopped for a job counts from the end of a job that leaves without a worker, too.
func TestPreemptionForAJobThatLeaves(t *testing.T) {
	s, trials := newTrialScene(t)
	class := s.priorityClass(t, 100)
	s.Submit(t, "high", class)
	s.expect(t, "high", v1alpha1.ReasonNoFit)
	trials.next(t).answer("")
	victim := s.victims(t, s.expect(t, "high", v1alpha1.ReasonPreempting), 1)[0]
	check.Must(t, s.Hub.Admin.Delete(context.Background(), &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "high"}}))
	s.reconcile(t, "high")
	s.endsAttempt(t, victim, v1alpha1.OutcomePreempted)
	if back, _ := s.reconcile(t, victim.Name); back.Spec.Cluster == "" {
		t.Fatalf("%s has not come back: %v", victim.Name, reasonsOf(back))
	}
	s.Submit(t, "again", class)
	s.expect(t, "again", v1alpha1.ReasonNoFit)
	trials.silent(t, "for a job whose namespace backs off")
}
