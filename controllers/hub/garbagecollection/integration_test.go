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
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// A finished copy stays for its retention, by the hub's clock. Then it is deleted with its pods.
func TestRetention(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	d := s.place(t, job.GetUID(), workerName, 1)
	copy := s.createCopy(t, job.GetUID(), "1")

	s.Clock.Step(24 * time.Hour)
	check.Equal(t, 0, s.collect(t).RequeueAfter, "a copy that runs is looked at again after")
	s.finish(t, d)
	for _, step := range []struct{ passed, left time.Duration }{{0, retention}, {retention - time.Second, time.Second}} {
		s.Clock.Step(step.passed)
		s.restart() // The age is on the Dispatch.
		if result := s.collect(t); result.RequeueAfter != step.left {
			t.Errorf("a copy that has %s left is looked at again after %s", step.left, result.RequeueAfter)
		}
	}
	if diff := cmp.Diff(copy, s.copy(t)); diff != "" {
		t.Fatalf("the copy was touched within its retention (-before +after):\n%s", diff)
	}
	s.Clock.Step(time.Second)
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

// An outdated copy is deleted, because its Dispatch says that it is outdated.
func TestOutdatedCopy(t *testing.T) {
	for name, test := range map[string]struct {
		reason  string
		cluster v1alpha1.ClusterName
		// ended: the Dispatch still has the copy's attempt, which has ended.
		ended bool
	}{
		"LaterAttemptHere":      {reason: "the attempt has ended, and its name is needed", cluster: workerName},
		"LaterAttemptElsewhere": {reason: "the job runs on another worker", cluster: otherName},
		"Waiting":               {reason: "the attempt has ended, and no worker takes the job", cluster: ""},
		"Ended":                 {reason: "the attempt was ended while the worker was lost", cluster: workerName, ended: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			job := s.submit(t)
			d := s.place(t, job.GetUID(), test.cluster, 2)
			attempt := "1"
			if test.ended {
				attempt = "2"
				s.SetCondition(t, d, v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.ReasonWorkerLost)
			}
			s.createCopy(t, job.GetUID(), attempt)
			s.collect(t)
			expectDeleted(t, s.copy(t))
			s.collect(t) // The copy is already being deleted, so there is nothing to do.
			s.report(t, workerName)
			check.Equal(t, 0, unknownCopies(t), "copies that are counted as unknown: %s", test.reason)
		})
	}
}

// The collector deletes only the copy that it has judged, not a copy of a later attempt that has the same name by now.
func TestOnlyTheJudgedCopyIsDeleted(t *testing.T) {
	s := newScene(t)
	job := s.submit(t)
	s.place(t, job.GetUID(), workerName, 2)
	outdated := s.createCopy(t, job.GetUID(), "1")
	s.lag(outdated.DeepCopy())
	must(t, s.Worker(workerName).Admin.Delete(t.Context(), outdated))
	current := s.createCopy(t, job.GetUID(), "2")

	// This is a conflict, which is retried in silence.
	s.collect(t)
	check.Diff(t, current, s.copy(t), "the current copy was touched")
}

// expectDeleted checks that a copy is being deleted in the foreground. No garbage collector would end the deletion.
func expectDeleted(t *testing.T, copy *unstructured.Unstructured) {
	t.Helper()
	if copy == nil || copy.GetDeletionTimestamp() == nil {
		t.Fatalf("the copy is not being deleted, or went without its pods: %v", copy)
	}
	check.Diff(t, []string{metav1.FinalizerDeleteDependents}, copy.GetFinalizers(),
		"finalizers of the copy, which is to go in the foreground")
}

// unknownCopies returns the metric trainyard_unknown_copies of the worker.
func unknownCopies(t *testing.T) float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	must(t, err)
	for _, family := range families {
		if family.GetName() == "trainyard_unknown_copies" {
			for _, metric := range family.GetMetric() {
				if metric.GetLabel()[0].GetValue() == string(workerName) {
					return metric.GetGauge().GetValue()
				}
			}
		}
	}
	return 0
}

// lag makes the cache of the worker show an old version of one copy, also after a restart.
func (s *scene) lag(seen *unstructured.Unstructured) {
	s.options[workerName].Worker = lagging{Cluster: s.Worker(workerName).Connection, seen: seen}
	s.restart()
}

// lagging is a connection whose cache shows an old version of one copy.
type lagging struct {
	*remote.Cluster
	seen *unstructured.Unstructured
}

func (l lagging) Client() (client.Client, error) {
	cached, err := l.Cluster.Client()
	return laggingClient{Client: cached, seen: l.seen}, err
}

type laggingClient struct {
	client.Client
	seen *unstructured.Unstructured
}

func (l laggingClient) Get(_ context.Context, _ client.ObjectKey, object client.Object, _ ...client.GetOption) error {
	l.seen.DeepCopyInto(object.(*unstructured.Unstructured))
	return nil
}
