// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const foreignFinalizer = "backup.example.com/wait"

// Whoever waits for the end of a copy reads on the Dispatch for what, whoever has asked for the end.
func TestAwaitedEndSaysForWhat(t *testing.T) {
	finalizer := func(t *testing.T, s *scene) {
		copy := s.copy(t)
		copy.SetFinalizers([]string{foreignFinalizer})
		must(t, s.worker.Admin.Update(t.Context(), copy))
		s.settle(t)
	}
	pod := func(t *testing.T, s *scene) { s.createPod(t) }
	evict := func(t *testing.T, s *scene) { s.evict(t) }
	remove := func(t *testing.T, s *scene) { must(t, s.Hub.Admin.Delete(t.Context(), s.job(t))) }
	for name, test := range map[string]struct {
		reason string
		// holds keeps the copy, leave asks for its end.
		holds, leave func(*testing.T, *scene)
		// finished: the job has ended, and its status is final.
		finished bool
		want     string
	}{
		"EvictedWithFinalizer": {reason: "the job moves", holds: finalizer, leave: evict, want: foreignFinalizer},
		"EvictedWithPod":       {reason: "its pods end slowly", holds: pod, leave: evict, want: "pod job-node-0-0 on node somewhere"},
		"DeletedWithFinalizer": {reason: "the user waits for the deletion", holds: finalizer, leave: remove, want: foreignFinalizer},
		"DeletedWithPod":       {reason: "its pods end slowly", holds: pod, leave: remove, want: "pod job-node-0-0 on node somewhere"},
		"FinishedWithFinalizer": {
			reason: "the status of a finished job is final", holds: finalizer, leave: remove, finished: true,
		},
		"DeletedOnTheWorker": {
			reason: "the job does not run, though it has a copy", holds: finalizer, want: foreignFinalizer,
			leave: func(t *testing.T, s *scene) {
				must(t, s.worker.Admin.Delete(t.Context(), s.copy(t)))
				s.settle(t)
			},
		},
		"DeletedOnTheWorkerInBackground": {
			reason: "the copy is gone, and its pods are not", holds: pod, want: "pod job-node-0-0 on node somewhere",
			leave: func(t *testing.T, s *scene) {
				must(t, s.worker.Admin.Delete(t.Context(), s.copy(t), client.PropagationPolicy("Background")))
				s.settle(t)
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			s.getUnderWay(t)
			s.Clock.Step(time.Minute)
			s.reconcile(t) // The Dispatch says that there is a copy.
			if test.finished {
				s.trains(t, "succeeded", "Complete")
				s.reconcile(t)
			}
			test.holds(t, s)
			test.leave(t, s)
			for range 3 {
				s.reconcile(t)
			}
			before := s.dispatch(t)
			if said := meta.FindStatusCondition(before.Status.Conditions, v1alpha1.DispatchMirrored); said.Reason == v1alpha1.ReasonAwaitingEnd {
				t.Errorf("the Dispatch says %q at once: pods have their time to end", said.Message)
			}
			s.Clock.Step(time.Minute)
			s.reconcile(t)
			awaited := s.dispatch(t)
			said := meta.FindStatusCondition(awaited.Status.Conditions, v1alpha1.DispatchMirrored)
			if test.finished {
				check.Equal(t, before.ResourceVersion, awaited.ResourceVersion,
					"the Dispatch was written: %s", test.reason)
			} else if said.Reason != v1alpha1.ReasonAwaitingEnd || !strings.Contains(said.Message, test.want) || awaited.Status.Phase != before.Status.Phase {
				t.Errorf("the Dispatch says %s (%q, phase %s), want %q: %s", said.Reason, said.Message, awaited.Status.Phase, test.want, test.reason)
			}
			for range 3 {
				s.Clock.Step(5 * time.Minute)
				s.reconcile(t)
			}
			check.Equal(t, awaited.ResourceVersion, s.dispatch(t).ResourceVersion, "the same was written again")

			var pods corev1.PodList
			must(t, s.worker.Admin.List(t.Context(), &pods, client.InNamespace(s.key.Namespace)))
			for i := range pods.Items {
				s.deletePod(t, &pods.Items[i])
			}
			s.collect(t)
			for range 10 {
				s.Clock.Step(time.Second)
				s.reconcile(t)
			}
			if d := s.dispatch(t); d != nil {
				if said := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored); said.Status != "False" {
					t.Errorf("nothing holds the copy, and the Dispatch says %+v", said)
				}
			}
		})
	}
}
