// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"strings"
	"testing"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// displaced has a job on east, which is being drained, and room for one more on west.
func (s *scene) displaced(t *testing.T) *v1alpha1.Dispatch {
	t.Helper()
	s.Submit(t, "moved", pinned("region=east"))
	s.Submit(t, "filler", pinned("region=west"))
	s.reconcile(t, "filler")
	d, _ := s.reconcile(t, "moved")
	if d.Spec.Cluster != east {
		t.Fatalf("the job is on %q: %v", d.Spec.Cluster, reasonsOf(d))
	}
	before := d.DeepCopy()
	job := s.TrainJob(t, "moved")
	old := job.DeepCopy()
	job.Annotations = nil // It may go anywhere now.
	check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(old)))
	s.worker(t, east, drain)
	return before
}

// elsewhere asks while the decider does its passes.
func (s *scene) elsewhere(t *testing.T, d *v1alpha1.Dispatch) v1alpha1.ClusterExplanation {
	t.Helper()
	ctx, stop := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.reconciler.decider.Run(ctx) }()
	answer, err := s.reconciler.Elsewhere(t.Context(), d)
	stop()
	check.Must(t, err)
	check.Must(t, <-ended)
	return answer
}

// The room for a job that moves is kept until the job comes. It is on another worker than the job's present worker.
func TestRoomElsewhereIsPromised(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// then is what happens to the promise. other and want are where the other job and the moved job are in the end.
		then        func(t *testing.T, s *scene, d *v1alpha1.Dispatch)
		other, want v1alpha1.ClusterName
	}{
		"Comes": {
			reason: "it was evicted, and comes", want: west,
			then: func(t *testing.T, s *scene, d *v1alpha1.Dispatch) {
				t.Helper()
				s.endsAttempt(t, d, v1alpha1.OutcomeDrained)
			},
		},
		"Released": {
			reason: "it was not evicted after all", other: west, want: east,
			then: func(_ *testing.T, s *scene, d *v1alpha1.Dispatch) { s.reconciler.Release(d.Spec.TrainJob.UID) },
		},
		"Finished": {
			reason: "it has ended before it could be stopped", other: west, want: east,
			then: func(t *testing.T, s *scene, d *v1alpha1.Dispatch) {
				t.Helper()
				s.finish(t, d)
			},
		},
		"Deleted": {
			reason: "it is gone", other: west, want: "gone",
			then: func(t *testing.T, s *scene, d *v1alpha1.Dispatch) {
				t.Helper()
				check.Must(t, s.Hub.Admin.Delete(t.Context(), s.TrainJob(t, "moved")))
				s.lose(d)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			d := s.displaced(t)
			for range 2 {
				if got := s.elsewhere(t, d); got.Cluster != west || got.Reason != v1alpha1.ReasonFits {
					t.Fatalf("Elsewhere() = %+v, want west to fit", got)
				}
			}
			if again, _ := s.reconcile(t, "moved"); again.ResourceVersion != d.ResourceVersion {
				t.Errorf("a question has changed the Dispatch")
			}
			s.Submit(t, "other", s.priorityClass(t, -1)) // Waiting jobs come first.
			s.expect(t, "other", v1alpha1.ReasonNoFit)
			test.then(t, s, d)
			other, _ := s.reconcile(t, "other")
			where := v1alpha1.ClusterName("gone")
			if moved, _ := s.reconcile(t, "moved"); test.want != "gone" && moved != nil {
				where = moved.Spec.Cluster
			}
			if other.Spec.Cluster != test.other || where != test.want {
				t.Errorf("the other job is on %q and the moved one on %q, want %q and %q: %s", other.Spec.Cluster, where, test.other, test.want, test.reason)
			}
		})
	}
}

// A job that fits nowhere else is told which worker is the nearest and what it lacks there, and waiting jobs come
// first.
func TestNoRoomElsewhere(t *testing.T) {
	s := newScene(t)
	d := s.displaced(t)
	s.Submit(t, "first", s.priorityClass(t, 5), pinned("region=west"))
	if first, _ := s.reconcile(t, "first"); first.Spec.Cluster != west {
		t.Fatalf("the first job is on %q, want west", first.Spec.Cluster)
	}
	got := s.elsewhere(t, d)
	if got.Cluster != west || got.Reason != v1alpha1.ReasonInsufficientResources || !strings.Contains(got.Message, "lacks 8 nvidia.com/gpu") {
		t.Errorf("Elsewhere() = %+v, want what west lacks", got)
	}
	s.worker(t, west, cordon)
	if got := s.elsewhere(t, d); got.Reason != v1alpha1.ReasonCordoned {
		t.Errorf("Elsewhere() = %+v, want west cordoned", got)
	}
	job := s.TrainJob(t, "moved")
	before := job.DeepCopy()
	pinned("region in (")(job)
	check.Must(t, s.Hub.Admin.Patch(t.Context(), job, client.MergeFrom(before)))
	if got := s.elsewhere(t, d); got.Cluster != "" || got.Reason != v1alpha1.ReasonInvalidPin {
		t.Errorf("Elsewhere() = %+v, want no worker and %s", got, v1alpha1.ReasonInvalidPin)
	}
}

// Elsewhere says nothing that is not known yet. Subscribers are called when it is known, and when a worker changes.
func TestElsewhereIsNotKnownAtFirst(t *testing.T) {
	s := newScene(t)
	d := s.displaced(t)
	shown := false
	s.shown = func(v1alpha1.ClusterName) bool { return shown }
	s.restart(t)
	told := 0
	cancel := s.reconciler.Subscribe(func() { told++ })
	if got := s.elsewhere(t, d); got != (v1alpha1.ClusterExplanation{}) {
		t.Errorf("Elsewhere() = %+v before workers have shown what they have, want nothing", got)
	}
	expect := func(what string, more bool) {
		t.Helper()
		before := told
		check.Must(t, s.reconciler.decider.Pass(t.Context()))
		if (told > before) != more {
			t.Errorf("subscribers were told: %t, want %t: %s", told > before, more, what)
		}
	}
	expect("nothing is known", false)
	shown = true
	expect("now it is", true)
	if got := s.elsewhere(t, d); got.Cluster != west {
		t.Errorf("Elsewhere() = %+v, want west", got)
	}
	expect("room has been promised", true)
	expect("nothing has changed", false)
	s.worker(t, west, cordon)
	expect("a worker has changed", true)
	cancel()
	s.worker(t, west, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable = false })
	expect("it was cancelled", false)
}
