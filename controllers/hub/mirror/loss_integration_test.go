// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/client-go/tools/events"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// A copy that is to be fenced is created only where an agent would stop it, and with the challenge by which the agent
// tells how old the creation is. Other copies do not need an agent.
func TestFencedCopyNeedsAnAgent(t *testing.T) {
	t.Run("AnswersInTime", func(t *testing.T) {
		s := newScene(t, setting{failover: v1alpha1.FailoverFenced})
		for range 2 {
			check.Equal(t, time.Second, s.expectQuiet(t, "the agent is silent").RequeueAfter, "looked at again after")
			s.Clock.Step(29 * time.Second)
			s.expectNoCopy(t)
		}
		s.challenge = "1.7"
		s.reconcile(t)
		s.expectAnnotations(t, map[string]string{v1alpha1.AnnotationFailover: "Fenced", v1alpha1.AnnotationChallenge: "1.7"})
	})
	t.Run("Silent", func(t *testing.T) {
		s := newScene(t, setting{failover: v1alpha1.FailoverFenced})
		s.reconcile(t)
		s.Clock.Step(30 * time.Second)
		s.reconcile(t)
		s.expectEnd(t, v1alpha1.OutcomeRejected, "the worker's agent does not answer")
		s.expectNoCopy(t)
	})
	for _, failover := range []v1alpha1.Failover{v1alpha1.FailoverHold, v1alpha1.FailoverImmediate} {
		t.Run(string(failover), func(t *testing.T) {
			s := newScene(t, setting{failover: failover})
			s.reconcile(t)
			s.expectAnnotations(t, map[string]string{v1alpha1.AnnotationFailover: string(failover), v1alpha1.AnnotationChallenge: ""})
		})
	}
}

// When a lost worker is back, its return is on record before anything is done there. A copy that its agent has stopped
// goes on when the agent lets it. It gets a challenge that says how old the resumption is.
func TestWorkerReturns(t *testing.T) {
	s := newScene(t, setting{failover: v1alpha1.FailoverFenced})
	s.challenge = "1.1"
	s.getUnderWay(t)
	s.reportRunning(t)
	s.lose(t)
	s.stopByAgent(t)
	recorder := events.NewFakeRecorder(10)
	s.options.Recorder = recorder
	s.challenge = "1.2"
	s.restart()
	before := s.copy(t)

	s.reconcile(t)
	d := s.dispatch(t)
	if d.Status.Phase != v1alpha1.PhaseRunning || meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchWorkerLost) != nil {
		t.Errorf("the status is %+v, want Running without WorkerLost", d.Status)
	}
	check.Diff(t, before, s.copy(t), "the copy was touched before it was on record that the worker is back")
	s.challenge = ""
	if result := s.reconcile(t); result.RequeueAfter != time.Second {
		t.Errorf("looked at again after %s while the agent is silent, want 1s", result.RequeueAfter)
	}
	if !trainjobs.Suspended(s.copy(t)) {
		t.Error("the copy was resumed while the agent is silent")
	}
	s.challenge = "2.3"
	s.reconcile(t)
	if trainjobs.Suspended(s.copy(t)) {
		t.Error("the copy was not resumed")
	}
	s.expectAnnotations(t, map[string]string{v1alpha1.AnnotationFenced: "", v1alpha1.AnnotationChallenge: "2.3"})
	if len(recorder.Events) > 0 {
		t.Errorf("what the agent did was taken for somebody's: %s", <-recorder.Events)
	}
}

// If a lost worker is back before the copy was created, the copy is created when the return is on record. An eviction
// goes on.
func TestWorkerReturnsToWhatWasToBeDone(t *testing.T) {
	t.Run("Creation", func(t *testing.T) {
		s := newScene(t, setting{})
		s.lose(t)
		s.reconcile(t)
		s.expectNoCopy(t)
		if d := s.dispatch(t); d.Status.Phase != v1alpha1.PhasePending {
			t.Errorf("the status is %+v, want Pending", d.Status)
		}
		s.reconcile(t)
		if s.copy(t) == nil {
			t.Error("no copy was created")
		}
	})
	t.Run("Eviction", func(t *testing.T) {
		s := newScene(t, setting{})
		s.getUnderWay(t)
		s.evict(t)
		s.lose(t)
		for range 2 {
			s.reconcile(t)
		}
		s.expectEvicting(t)
		s.collect(t)
		s.reconcileGone(t)
		s.expectPreempted(t)
	})
}

// The status of a copy whose attempt was given up is not written to the hub any more, whatever the caches show. The
// copy is left to garbagecollection.
func TestGivenUpCopyIsNotHeard(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// stale is what the hub's caches do not show: the end, or the end and what led to it.
		stale, lost bool
	}{
		"Shown":         {reason: "the attempt is over"},
		"NotShown":      {reason: "the return cannot be put on record", stale: true, lost: true},
		"NothingShown":  {reason: "what the copy had said is gone from the TrainJob: the Dispatch is asked for", stale: true},
		"OnlyLossShown": {reason: "the attempt is over", lost: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{failover: v1alpha1.FailoverImmediate})
			s.getUnderWay(t)
			s.reportRunning(t)
			if test.lost {
				s.lose(t)
			}
			shown := s.dispatch(t)
			s.giveUp(t)
			if test.stale {
				s.options.Hub = interceptor.NewClient(s.Hub.Admin, interceptor.Funcs{
					Get: func(ctx context.Context, c client.WithWatch, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
						if d, ok := object.(*v1alpha1.Dispatch); ok {
							shown.DeepCopyInto(d)
							return nil
						}
						return c.Get(ctx, key, object, options...)
					},
				})
			}
			stage.Report(t, s.worker.Admin, s.copy(t), "Complete", 0)
			s.settle(t)
			s.restart()
			s.Clock.Step(time.Minute) // The caches are not doubted any more.
			job, copy := s.job(t), s.copy(t)
			if result := s.expectQuiet(t, test.reason); test.stale && result.RequeueAfter == 0 {
				t.Error("it was not to be looked at again")
			}
			check.Diff(t, job, s.job(t), "the TrainJob was written: "+test.reason)
			check.Diff(t, copy, s.copy(t), "the copy was touched: "+test.reason)
		})
	}
}

// If the agent does not start a copy, because the challenge is from an earlier agent or too old, the copy gets a new
// challenge. A copy that has started does not need one.
func TestOutdatedChallengeIsRenewed(t *testing.T) {
	s := newScene(t, setting{failover: v1alpha1.FailoverFenced})
	recorder := events.NewFakeRecorder(10)
	s.challenge = "1.7"
	s.reconcile(t)
	s.options.Recorder = recorder
	s.restart()
	for _, step := range []struct{ latest, want string }{
		{latest: "1.11", want: "1.7"}, {latest: "1.12", want: "1.12"}, {latest: "", want: "1.12"}, {latest: "2.1", want: "2.1"},
	} {
		s.challenge = step.latest
		if result := s.reconcile(t); step.latest != step.want && result.RequeueAfter != time.Second {
			t.Errorf("looked at again after %s, want 1s", result.RequeueAfter)
		}
		s.expectAnnotations(t, map[string]string{v1alpha1.AnnotationChallenge: step.want})
	}
	stage.Report(t, s.worker.Admin, s.copy(t), "", 1)
	s.settle(t)
	s.challenge = "3.1"
	s.reconcile(t)
	s.expectAnnotations(t, map[string]string{v1alpha1.AnnotationChallenge: "2.1"})
	if len(recorder.Events) > 0 {
		t.Errorf("something was told: %s", <-recorder.Events)
	}
}

// reportRunning brings the scene to where the Dispatch says that there is a copy.
func (s *scene) reportRunning(t *testing.T) {
	t.Helper()
	s.Clock.Step(time.Minute)
	s.reconcile(t)
	if d := s.dispatch(t); !d.WasCopied() {
		t.Fatalf("the Dispatch does not say Running: %+v", d.Status)
	}
}

// lose says on the Dispatch that its worker is lost.
func (s *scene) lose(t *testing.T) {
	t.Helper()
	d := s.dispatch(t)
	meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
		Type: v1alpha1.DispatchWorkerLost, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonFencing, Message: "it is away",
	})
	d.Status.Phase, d.Status.Reason = v1alpha1.PhaseWorkerLost, v1alpha1.ReasonFencing
	must(t, s.Hub.Admin.Status().Update(t.Context(), d))
}

// giveUp ends the attempt of a worker that is lost.
func (s *scene) giveUp(t *testing.T) {
	t.Helper()
	ender := records.Writer{Hub: s.Hub.Admin, Clock: s.Clock}
	must(t, ender.TakeBackStatus(t.Context(), s.job(t)))
	must(t, ender.End(t.Context(), s.dispatch(t), v1alpha1.OutcomeWorkerLost, "it is away"))
}

// stopByAgent is what the worker's agent does when it hears nothing from the hub.
func (s *scene) stopByAgent(t *testing.T) {
	t.Helper()
	s.edit(t, func(copy *unstructured.Unstructured) {
		copy.Object["spec"].(map[string]any)["suspend"] = true
		annotations := copy.GetAnnotations()
		annotations[v1alpha1.AnnotationFenced] = "1.1"
		copy.SetAnnotations(annotations)
	})
}

// edit changes the copy on the worker, as somebody there would.
func (s *scene) edit(t *testing.T, change func(*unstructured.Unstructured)) {
	t.Helper()
	copy := s.copy(t)
	change(copy)
	must(t, s.worker.Admin.Update(t.Context(), copy))
	s.settle(t)
}

// expectAnnotations checks annotations of the copy; an empty value is for none.
func (s *scene) expectAnnotations(t *testing.T, want map[string]string) {
	t.Helper()
	copy := s.copy(t)
	if copy == nil {
		t.Fatal("there is no copy")
	}
	for key, value := range want {
		if got, found := copy.GetAnnotations()[key]; got != value || found != (value != "") {
			t.Errorf("annotation %s of the copy is %q, want %q", key, got, value)
		}
	}
}

func (s *scene) expectNoCopy(t *testing.T) {
	t.Helper()
	check.Equal(t, nil, s.copy(t), "there is a copy")
}
