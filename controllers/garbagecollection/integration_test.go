// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// A finished copy stays for its retention, by the hub's clock, and then goes with its pods.
func TestRetention(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	d := s.place(t, job.GetUID(), workerName, 1)
	copy := s.createCopy(t, job.GetUID(), "1")

	s.clock.Step(24 * time.Hour)
	if result := s.collect(t); result.RequeueAfter != 0 {
		t.Errorf("a copy that runs is looked at again after %s, want never", result.RequeueAfter)
	}
	s.finish(t, d)
	for _, step := range []struct{ passed, left time.Duration }{{0, retention}, {retention - time.Second, time.Second}} {
		s.clock.Step(step.passed)
		s.restart() // The age is on the Dispatch.
		if result := s.collect(t); result.RequeueAfter != step.left {
			t.Errorf("a copy that has %s left is looked at again after %s", step.left, result.RequeueAfter)
		}
	}
	if diff := cmp.Diff(copy, s.copy(t)); diff != "" {
		t.Fatalf("the copy was touched within its retention (-before +after):\n%s", diff)
	}
	s.clock.Step(time.Second)
	s.collect(t)
	expectDeleted(t, s.copy(t))
}

// A finished copy whose job is gone is not kept.
func TestNoRetentionWithoutJob(t *testing.T) {
	s := newScene(t)
	s.finish(t, s.place(t, "gone", workerName, 1))
	s.createCopy(t, "gone", "1")
	s.collect(t)
	expectDeleted(t, s.copy(t))
}

// A copy that the hub has left behind goes, because its Dispatch says so.
func TestOutdatedCopy(t *testing.T) {
	for name, test := range map[string]struct {
		reason  string
		cluster v1alpha1.ClusterName
	}{
		"LaterAttemptHere":      {reason: "the attempt has ended, and its name is needed", cluster: workerName},
		"LaterAttemptElsewhere": {reason: "the job runs on another worker", cluster: "elsewhere"},
		"Waiting":               {reason: "the attempt has ended, and no worker takes the job", cluster: ""},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			job := s.submit(t)
			s.place(t, job.GetUID(), test.cluster, 2)
			s.createCopy(t, job.GetUID(), "1")
			s.collect(t)
			expectDeleted(t, s.copy(t))
			s.collect(t) // It is going: nothing is to be done.
			if unknown := unknownCopies(t); unknown != 0 {
				t.Errorf("%g copies are counted as unknown, want none: %s", unknown, test.reason)
			}
		})
	}
}

// Without a record that speaks of it a copy is left alone, for it may be training, and counted until it is known or gone.
func TestUnknownCopyIsLeftAlone(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// dispatch is of the TrainJob with this UID; empty: there is none.
		dispatch types.UID
		attempt  string
		// known: the hub has a TrainJob of the name.
		known bool
	}{
		"NoDispatch":    {reason: "the hub was restored from before the job", attempt: "1"},
		"NoDispatchYet": {reason: "the hub knows the job and not where it is", attempt: "1", known: true},
		"OtherJob":      {reason: "a new job has the name", dispatch: "other", attempt: "1", known: true},
		"LaterAttempt":  {reason: "the hub was restored from before the attempt", dispatch: "origin", attempt: "3"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if test.known {
				s.submit(t)
			}
			if test.dispatch != "" {
				s.finish(t, s.place(t, test.dispatch, workerName, 2))
			}
			copy := s.createCopy(t, "origin", test.attempt)
			for range 2 {
				s.clock.Step(24 * time.Hour)
				if result := s.collect(t); result.RequeueAfter != 0 {
					t.Errorf("looked at again after %s, want never", result.RequeueAfter)
				}
			}
			if diff := cmp.Diff(copy, s.copy(t)); diff != "" {
				t.Errorf("the copy was touched: %s (-before +after):\n%s", test.reason, diff)
			}
			if unknown := unknownCopies(t); unknown != 1 {
				t.Errorf("%g copies are counted as unknown, want 1: %s", unknown, test.reason)
			}
			must(t, s.worker.Delete(t.Context(), copy))
			s.settle(t)
			s.collect(t)
			if unknown := unknownCopies(t); unknown != 0 {
				t.Errorf("%g copies are counted as unknown after the copy has gone, want none", unknown)
			}
		})
	}
}

// What is deleted is the copy that was judged, not the one of a later attempt that has its name by now.
func TestOnlyTheJudgedCopyIsDeleted(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	s.place(t, job.GetUID(), workerName, 2)
	outdated := s.createCopy(t, job.GetUID(), "1")
	s.options.Worker = worker{lagging{Client: s.worker, seen: outdated.DeepCopy()}}
	s.restart()
	must(t, s.worker.Delete(t.Context(), outdated))
	current := s.createCopy(t, job.GetUID(), "2")

	if _, err := s.collector.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key}); err == nil {
		t.Error("the deletion of a copy that is no longer there succeeded")
	}
	if diff := cmp.Diff(current, s.copy(t)); diff != "" {
		t.Errorf("the current copy was touched (-before +after):\n%s", diff)
	}
}

// expectDeleted checks that a copy is being deleted in the foreground. There is no garbage collector that would end that.
func expectDeleted(t *testing.T, copy *unstructured.Unstructured) {
	t.Helper()
	if copy == nil || copy.GetDeletionTimestamp() == nil {
		t.Fatalf("the copy is not being deleted, or went without its pods: %v", copy)
	}
	if diff := cmp.Diff([]string{metav1.FinalizerDeleteDependents}, copy.GetFinalizers()); diff != "" {
		t.Errorf("finalizers of the copy, which is to go in the foreground (-want +got):\n%s", diff)
	}
}

// unknownCopies is the metric trainyard_unknown_copies of the worker.
func unknownCopies(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == "trainyard_unknown_copies" {
			return family.GetMetric()[0].GetGauge().GetValue()
		}
	}
	return 0
}

// lagging is a client whose cache shows one copy as it once was. Everything else is the worker's.
type lagging struct {
	client.Client
	seen *unstructured.Unstructured
}

// Get implements client.Reader.
func (l lagging) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	l.seen.DeepCopyInto(object.(*unstructured.Unstructured))
	return nil
}

// worker is a connection with a client of the test's.
type worker struct{ client client.Client }

func (w worker) Client() (client.Client, error) { return w.client, nil }
