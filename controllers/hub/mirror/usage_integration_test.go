// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// requestGPUs makes the job one of two pods with four GPUs each.
func (s *scene) requestGPUs(t *testing.T) {
	t.Helper()
	d := s.dispatch(t)
	d.Spec.PodSets = []v1alpha1.PodSet{{
		Name: "node", Count: 2, Requests: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("4"), "cpu": resource.MustParse("8")},
	}}
	must(t, s.Hub.Admin.Update(t.Context(), d))
}

// countedGPUSeconds is what the metric has for the namespace of the scene.
func (s *scene) countedGPUSeconds(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	must(t, err)
	sum := 0.0
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			for _, label := range metric.GetLabel() {
				if family.GetName() == "trainyard_gpu_seconds_total" && label.GetValue() == s.key.Namespace {
					sum += metric.GetCounter().GetValue()
				}
			}
		}
	}
	return sum
}

// The history says what a finished job has cost, by the worker's clock, in the write that says its end.
func TestCostOfAFinishedJob(t *testing.T) {
	s := newScene(t, setting{})
	s.requestGPUs(t)
	writes := s.watchDispatch(t)
	s.reconcile(t)
	s.jobSet(t, 0, resumedAt)
	s.Clock.Step(time.Hour)
	s.trains(t, "succeeded", "Complete")
	s.reconcile(t)
	d := s.dispatch(t)
	const want = 2 * 4 * (4*60 + 5) // Between resumedAt and endedAt.
	if last := d.Status.History[0]; last.GPUSeconds == nil || *last.GPUSeconds != want || moment(last.StartTime) != resumedAt {
		t.Errorf("the history says %+v, want %d GPU-seconds since %s", last, want, resumedAt)
	}
	check.Equal(t, want, s.countedGPUSeconds(t), "the metric")
	check.Equal(t, 1, writes(d.ResourceVersion), "how often the Dispatch was written")
}

// An evicted attempt has cost what it ran until its deletion began. A process that has not seen that beginning reports
// no cost.
func TestCostOfAnEvictedAttempt(t *testing.T) {
	for name, restarts := range map[string]bool{"Seen": false, "NotSeen": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.requestGPUs(t)
			s.getUnderWay(t)
			resumed := time.Now().Add(-100 * time.Second).UTC().Truncate(time.Second)
			s.jobSet(t, 0, resumed.Format(time.RFC3339))
			s.Clock.Step(time.Hour)
			s.reconcile(t)
			s.evict(t)
			s.reconcile(t)
			s.reconcile(t) // It sees that the copy is being deleted.
			going := s.copy(t)
			if going == nil || going.GetDeletionTimestamp() == nil {
				t.Fatalf("the copy is %v, want it to be deleted in the foreground", going)
			}
			s.collect(t)
			s.deleteJobSet(t)
			if restarts {
				s.restart()
			}
			for range 2 {
				s.reconcileGone(t)
			}
			s.expectPreempted(t)
			last := s.dispatch(t).Status.History[0]
			want := int64(8 * going.GetDeletionTimestamp().Sub(resumed).Seconds())
			switch {
			case restarts && (last.GPUSeconds != nil || s.countedGPUSeconds(t) != 0):
				t.Errorf("the history says %+v, want no GPU-seconds: nobody knows when the copy was stopped", last)
			case !restarts && (last.GPUSeconds == nil || *last.GPUSeconds != want || s.countedGPUSeconds(t) != float64(want)):
				t.Errorf("the history says %+v, want %d GPU-seconds", last, want)
			}
		})
	}
}

// A job that is deleted while it runs has cost what it ran until the deletion of its copy began. The same holds if
// somebody deletes the Dispatch only. A process that has not seen that beginning reports no cost.
func TestCostOfADeletedJob(t *testing.T) {
	for name, test := range map[string]struct {
		reason               string
		dispatchOnly, misses bool
		// ended: the copy has ended before its deletion, and the hub has not said so yet.
		ended bool
	}{
		"Deleted":         {reason: "the metric says what users have used"},
		"DispatchDeleted": {reason: "the attempt ends with its Dispatch", dispatchOnly: true},
		"NotSeen":         {reason: "nobody knows when the copy was stopped", misses: true},
		"EndedBefore":     {reason: "it has not run since its end", ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.requestGPUs(t)
			s.getUnderWay(t)
			resumed := time.Now().Add(-100 * time.Second).UTC().Truncate(time.Second)
			if test.ended {
				resumed, _ = time.Parse(time.RFC3339, resumedAt)
			}
			s.jobSet(t, 0, resumed.Format(time.RFC3339))
			s.Clock.Step(time.Hour)
			s.reconcile(t)
			if test.ended {
				s.trains(t, "succeeded", "Complete")
			}
			if test.dispatchOnly {
				must(t, s.Hub.Admin.Delete(t.Context(), s.dispatch(t)))
			} else {
				must(t, s.Hub.Admin.Delete(t.Context(), s.job(t)))
			}
			s.reconcile(t)
			going := s.copy(t)
			if going == nil || going.GetDeletionTimestamp() == nil {
				t.Fatalf("the copy is %v, want it to be deleted in the foreground", going)
			}
			if !test.misses {
				s.reconcile(t)
			}
			s.collect(t)
			s.deleteJobSet(t)
			if test.misses {
				s.restart()
			}
			for range 10 {
				s.Clock.Step(time.Second)
				s.reconcile(t)
			}
			if d := s.dispatch(t); d != nil {
				t.Fatalf("the Dispatch is still there: %+v", d)
			}
			want := 8 * going.GetDeletionTimestamp().Sub(resumed).Seconds()
			switch {
			case test.misses:
				want = 0
			case test.ended:
				want = 2 * 4 * (4*60 + 5) // Between resumedAt and endedAt.
			}
			if got := s.countedGPUSeconds(t); got != want {
				t.Errorf("the metric has %g GPU-seconds, want %g: %s", got, want, test.reason)
			}
		})
	}
}
