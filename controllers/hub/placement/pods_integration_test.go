// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// heldPod is a question about pods that the test answers.
type heldPod struct {
	worker   v1alpha1.ClusterName
	dispatch *v1alpha1.Dispatch
	answer   func(trainjobs.Admission)
}

// Ask implements Trials.
func (h *heldTrials) Ask(
	worker v1alpha1.ClusterName, _ *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, answered func(trainjobs.Admission),
) {
	h.pods = append(h.pods, heldPod{worker, dispatch, answered})
}

// ofPods returns the questions about pods that have come since the last call.
func (h *heldTrials) ofPods(t *testing.T, want int) []heldPod {
	t.Helper()
	asked := h.pods
	if h.pods = nil; len(asked) != want {
		t.Fatalf("%d questions about pods were sent, want %d", len(asked), want)
	}
	return asked
}

// admits answers that admission makes this of the pods.
func (h heldPod) admits(changes ...func(*corev1.PodSpec)) {
	var pods []trainjobs.AdmittedPod
	for _, set := range h.dispatch.Spec.PodSets {
		spec := &corev1.PodSpec{
			Containers:   []corev1.Container{{Resources: corev1.ResourceRequirements{Requests: set.Requests}}},
			NodeSelector: set.NodeSelector, Tolerations: set.Tolerations,
		}
		for _, change := range changes {
			change(spec)
		}
		pods = append(pods, trainjobs.AdmittedPod{Name: set.Name, Spec: spec})
	}
	h.answer(trainjobs.Admission{Pods: pods})
}

// newPodsScene returns a scene whose workers have agents that can say what pods become.
func newPodsScene(t *testing.T) (*scene, *heldTrials) {
	t.Helper()
	s, trials := newScene(t), &heldTrials{}
	s.trials = trials
	s.restart(t)
	s.worker(t, east, withAgent)
	s.worker(t, west, withAgent)
	return s, trials
}

func onlyThere(key string) func(*corev1.PodSpec) {
	return func(spec *corev1.PodSpec) { spec.NodeSelector = map[string]string{key: "yes"} }
}

// Before the first pods of a kind come to a worker, it is asked what it makes of them. Jobs of that kind do not ask again.
func TestTheFirstPodsOfAKindAreAskedAbout(t *testing.T) {
	s, trials := newPodsScene(t)
	s.worker(t, west, cordon)
	small := func(job *trainer.TrainJob) { job.Spec.Trainer.ResourcesPerNode.Requests = list(string(gpu), "1") }
	for _, name := range []string{"first", "second"} {
		s.Submit(t, name, small, func(job *trainer.TrainJob) { job.Spec.Trainer.Args = []string{"--seed=" + name} })
		if d, result := s.reconcile(t, name); d != nil || result.RequeueAfter <= 0 || result.RequeueAfter > podsPatience {
			t.Fatalf("before the answer, %s has the Dispatch %v and is looked at again in %s", name, d, result.RequeueAfter)
		}
	}
	asked := trials.ofPods(t, 1)[0]
	if asked.worker != east || asked.dispatch.Spec.Counted == nil || len(asked.dispatch.Spec.PodSets) == 0 {
		t.Errorf("the question is %+v", asked)
	}
	asked.admits()
	if woken := s.drain(); !woken[s.Key("first")] || !woken[s.Key("second")] {
		t.Errorf("the answer wakes %v, want both jobs", woken)
	}
	for _, name := range []string{"first", "second"} {
		if d, _ := s.reconcile(t, name); d == nil || d.Spec.Cluster != east {
			t.Errorf("after the answer %s is %v, want it on east", name, d)
		}
	}
	trials.ofPods(t, 0)

	s.Clock.Step(podsHold + time.Second)
	s.Submit(t, "third", small)
	s.Submit(t, "other", small, func(job *trainer.TrainJob) { job.Spec.Trainer.Image = new("example.com/other") })
	s.reconcile(t, "third")
	s.reconcile(t, "other")
	trials.ofPods(t, 2) // The answer is too old, and the other job is of another kind.
}

// What a worker makes of the pods is what the decision counts, and what the Dispatch records.
func TestWhatPodsBecomeIsCounted(t *testing.T) {
	s, trials := newPodsScene(t)
	s.worker(t, west, cordon)
	s.Submit(t, "job")
	s.reconcile(t, "job")
	trials.ofPods(t, 1)[0].admits(onlyThere("nowhere"))
	d := s.expect(t, "job", v1alpha1.ReasonNoFit)
	check.Diff(t, v1alpha1.ReasonNoMatchingNode, d.Status.Explanation[0].Reason, "reason for east")
	if strings.Contains(d.Status.Explanation[0].Message, "assumed") {
		t.Errorf("east has answered, and its line says %q", d.Status.Explanation[0].Message)
	}

	s.worker(t, west, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable = false })
	s.reconcile(t, "job")
	asked := trials.ofPods(t, 1)[0]
	grace := func(spec *corev1.PodSpec) { spec.TerminationGracePeriodSeconds = new(int64(7)) }
	asked.admits(grace)
	d, _ = s.reconcile(t, "job")
	if d.Spec.Cluster != west || *d.Spec.PodSets[0].TerminationGracePeriodSeconds != 7 {
		t.Errorf("the job is on %q with the PodSets %+v, want west, with what its admission makes of the pods", d.Spec.Cluster, d.Spec.PodSets)
	}
}

// A worker that refuses the pods gets no copy, and says why. Another worker is tried at once.
func TestPodsAreRefusedBeforePlacement(t *testing.T) {
	s, trials := newPodsScene(t)
	s.Submit(t, "job")
	s.reconcile(t, "job")
	first := trials.ofPods(t, 1)[0]
	first.answer(trainjobs.Admission{Refused: "violates PodSecurity"})
	s.reconcile(t, "job")
	second := trials.ofPods(t, 1)[0]
	second.answer(trainjobs.Admission{Refused: "no such RuntimeClass"})
	d := s.expect(t, "job", v1alpha1.ReasonRejected)
	if first.worker == second.worker || d.Spec.Attempt != 0 {
		t.Errorf("asked were %s and %s, and the job has attempt %d", first.worker, second.worker, d.Spec.Attempt)
	}
	events := strings.Join(s.Events.Take(), "\n")
	for _, line := range d.Status.Explanation {
		if want := "not sent to worker " + string(line.Cluster) + ", which would refuse it: " + line.Message; !strings.Contains(events, want) {
			t.Errorf("no Event says %q: %s", want, events)
		}
		want := map[v1alpha1.ClusterName]string{first.worker: "violates PodSecurity", second.worker: "no such RuntimeClass"}[line.Cluster]
		if line.Message != want {
			t.Errorf("the line of %s says %q, want %q", line.Cluster, line.Message, want)
		}
	}
	s.Clock.Step(podsHold + time.Second)
	s.reconcile(t, "job")
	trials.ofPods(t, 1)
}

// A worker that does not answer delays a job for a moment. Then the job is placed as its runtime says.
func TestNoAnswerAboutPods(t *testing.T) {
	for name, answer := range map[string]func(*scene, heldPod){
		"Silent": func(s *scene, _ heldPod) { s.Clock.Step(podsPatience) },
		"Unable": func(_ *scene, asked heldPod) { asked.answer(trainjobs.Admission{}) },
		"FullNow": func(_ *scene, asked heldPod) {
			asked.answer(trainjobs.Admission{Pods: []trainjobs.AdmittedPod{{Name: "node", Later: "exceeded quota"}}})
		},
	} {
		t.Run(name, func(t *testing.T) {
			s, trials := newPodsScene(t)
			s.Submit(t, "job")
			s.reconcile(t, "job")
			asked := trials.ofPods(t, 1)[0]
			answer(s, asked)
			if d, _ := s.reconcile(t, "job"); d == nil || d.Spec.Cluster != asked.worker {
				t.Errorf("the job is %v, want it on %s", d, asked.worker)
			}
			trials.ofPods(t, 0)

			s.Clock.Step(podsRetry)
			s.Submit(t, "later")
			s.reconcile(t, "later")
			trials.ofPods(t, 1) // It may be able to say more by now.
		})
	}
}

// A job that an assumption keeps off all workers asks them. Until they have answered, the explanation says what it is.
func TestWorkersAreAskedAboutPodsThatNoNodeTakes(t *testing.T) {
	s, trials := newPodsScene(t)
	s.Submit(t, "job", func(job *trainer.TrainJob) {
		job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: list("example.com/nobody", "1")}
	})
	d := s.expect(t, "job", v1alpha1.ReasonNoFit)
	for _, line := range d.Status.Explanation {
		if line.Reason != v1alpha1.ReasonNoMatchingNode || !strings.HasSuffix(line.Message, notAsked) {
			t.Errorf("the line of %s says %s: %q", line.Cluster, line.Reason, line.Message)
		}
	}
	asked := trials.ofPods(t, 2)
	if _, result := s.reconcile(t, "job"); result.RequeueAfter <= 0 || result.RequeueAfter > podsRetry {
		t.Errorf("without an answer, the job is looked at again in %s, want at most %s", result.RequeueAfter, podsRetry)
	}
	trials.ofPods(t, 0)
	asked[0].admits(func(spec *corev1.PodSpec) { spec.Containers[0].Resources.Requests = list(string(gpu), "1") })
	if !s.drain()[s.Key("job")] {
		t.Error("the answer does not wake the job")
	}
	if d, _ := s.reconcile(t, "job"); d.Spec.Cluster != asked[0].worker {
		t.Errorf("the job is on %q, want %s, which makes pods of it that fit", d.Spec.Cluster, asked[0].worker)
	}
}

// Workers without an agent that answers are not asked.
func TestWorkersWithoutAnAgentAreNotAsked(t *testing.T) {
	s, trials := newScene(t), &heldTrials{}
	s.trials = trials
	s.restart(t)
	s.Submit(t, "job")
	if d, _ := s.reconcile(t, "job"); d == nil || d.Spec.Cluster == "" {
		t.Errorf("the job is %v, want it placed", d)
	}
	trials.ofPods(t, 0)
}
