// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// A copy without a record is left alone, as it may be training. The manager reports it, and its job waits until it is
// gone.
func TestUnknownCopyIsLeftAlone(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// dispatch is the UID of the TrainJob that the Dispatch belongs to; empty: there is no Dispatch.
		dispatch types.UID
		cluster  v1alpha1.ClusterName
		attempt  string
	}{
		"NoDispatch":   {reason: "the hub was restored from before the job", attempt: "1"},
		"OtherJob":     {reason: "a new job has the name", dispatch: "other", cluster: workerName, attempt: "1"},
		"LaterAttempt": {reason: "the hub was restored from before the attempt, and the job is not there", dispatch: "origin", cluster: workerName, attempt: "3"},
		"Twice":        {reason: "another worker has the same attempt", dispatch: "origin", cluster: otherName, attempt: "2"},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			if test.dispatch != "" {
				s.place(t, test.dispatch, test.cluster, 2)
			}
			copy := s.createCopy(t, "origin", test.attempt)
			for range 2 {
				s.Clock.Step(24 * time.Hour)
				s.sweep(t, workerName)
				check.Equal(t, 0, s.collect(t).RequeueAfter, "looked at again after")
				registration := s.report(t, workerName)
				s.expectListed(t, registration, copy)
				s.expectListed(t, s.report(t, workerName), copy)
				check.Equal(t, registration.ResourceVersion, s.report(t, workerName).ResourceVersion,
					"the same was written again")
			}
			check.Diff(t, copy, s.copy(t), "the copy was touched: "+test.reason)
			check.Equal(t, 1, s.told(t, "kubectl trainyard adopt|release"), "Events that tell of the copy")
			if worker, ok := s.quarantine.Of(s.key, "whichever"); !ok || worker != workerName {
				t.Errorf("Of() = %q, %t: the job of that name could be placed", worker, ok)
			}

			endPod := s.run(t, workerName)
			must(t, s.Worker(workerName).Admin.Delete(t.Context(), copy))
			s.settle(t)
			if result := s.collect(t); result.RequeueAfter == 0 {
				t.Error("nobody looks whether the pods of the copy have gone")
			}
			s.expectListed(t, s.report(t, workerName), nil)
			if _, ok := s.quarantine.Of(s.key, "origin"); !ok {
				t.Error("the job can be placed while a pod of its unknown copy is alive")
			}
			endPod()
			s.collect(t)
			if worker, ok := s.quarantine.Of(s.key, "origin"); ok {
				t.Errorf("Of() = %q after the copy and its pods have gone", worker)
			}
		})
	}
}

// expectListed checks the unknown copies in the status of a worker and in the metric. nil means none.
func (s *scene) expectListed(t *testing.T, registration *v1alpha1.WorkerCluster, copy *unstructured.Unstructured) {
	t.Helper()
	var want []v1alpha1.UnknownCopy
	if copy != nil {
		var attempt int32
		_, _ = fmt.Sscan(copy.GetAnnotations()[v1alpha1.AnnotationAttempt], &attempt)
		want = []v1alpha1.UnknownCopy{{
			Namespace: copy.GetNamespace(), Name: copy.GetName(), UID: copy.GetUID(), Attempt: attempt,
			OriginUID: types.UID(copy.GetLabels()[v1alpha1.LabelOriginUID]),
		}}
	}
	check.Diff(t, want, registration.Status.UnknownCopies, "status.unknownCopies")
	condition := meta.FindStatusCondition(registration.Status.Conditions, v1alpha1.WorkerClusterUnknownCopies)
	if (condition != nil) != (copy != nil) {
		t.Errorf("condition UnknownCopies: %v", condition)
	}
	if condition != nil && (condition.Status != metav1.ConditionTrue || condition.Reason != v1alpha1.ReasonQuarantined ||
		!strings.Contains(condition.Message, "kubectl trainyard adopt|release worker NAMESPACE/NAME")) {
		t.Errorf("condition UnknownCopies: %+v", condition)
	}
	if got := unknownCopies(t); int(got) != len(want) {
		t.Errorf("trainyard_unknown_copies is %g, want %d", got, len(want))
	}
}

// A copy is not unknown only because the caches lag: the manager asks the API servers.
func TestLaggingCachesMakeNoUnknownCopies(t *testing.T) {
	t.Run("Hub", func(t *testing.T) {
		s := newScene(t)
		job := s.submit(t)
		s.place(t, job.GetUID(), workerName, 1)
		s.createCopy(t, job.GetUID(), "1")
		s.options[workerName].Hub = blind{s.Hub.Admin}
		s.restart()
		s.sweep(t, workerName)
		s.collect(t)
		s.expectListed(t, s.report(t, workerName), nil)
		if worker, ok := s.quarantine.Of(s.key, job.GetUID()); ok {
			t.Errorf("Of() = %q for a job that runs there by its record", worker)
		}
	})
	t.Run("Worker", func(t *testing.T) {
		s := newScene(t)
		copy := s.createCopy(t, "origin", "1")
		s.lag(copy.DeepCopy())
		must(t, s.Worker(workerName).Admin.Delete(t.Context(), copy))
		s.settle(t)
		s.sweep(t, workerName)
		s.collect(t)
		s.expectListed(t, s.report(t, workerName), nil)
	})
}

// A manager that starts believes the status of a worker until it reaches the worker.
func TestQuarantineSurvivesARestart(t *testing.T) {
	s := newScene(t)
	copy := s.createCopy(t, "origin", "1")
	s.sweep(t, workerName)
	s.collect(t)
	s.expectListed(t, s.report(t, workerName), copy)
	s.told(t, "")

	s.restart()
	if s.quarantine.Swept(workerName) {
		t.Error("a process that has just begun has not looked at any worker")
	}
	s.expectListed(t, s.report(t, workerName), copy)
	s.sweep(t, workerName)
	s.collect(t)
	s.expectListed(t, s.report(t, workerName), copy)
	check.Equal(t, 0, s.told(t, "kubectl trainyard"), "Events that tell of a copy that one has told of before")
	if !s.quarantine.Swept(workerName) {
		t.Error("the worker has been looked at")
	}
}

// A subscriber that waits for the end of a copy is called.
func TestQuarantineWakes(t *testing.T) {
	s := newScene(t)
	var woken []types.NamespacedName
	cancel := s.quarantine.Subscribe(func(key types.NamespacedName) { woken = append(woken, key) })
	expect := func(when string, want int) {
		t.Helper()
		if got := len(woken); got < want || got > 0 && woken[got-1] != s.key {
			t.Errorf("%s: woken with %v, want %d times %s at least", when, woken, want, s.key)
		}
		woken = nil
	}
	s.sweep(t, workerName)
	if len(woken) == 0 || woken[0] != (types.NamespacedName{}) {
		t.Errorf("woken with %v after the first sweep, want an empty key: jobs have waited for it", woken)
	}
	woken = nil
	copy := s.createCopy(t, "origin", "1")
	s.sweep(t, workerName)
	expect("swept", 1)
	s.collect(t)
	expect("certain", 1)
	s.collect(t)
	expect("nothing new", 0)
	must(t, s.Worker(workerName).Admin.Delete(t.Context(), copy))
	s.settle(t)
	s.collect(t)
	expect("gone", 1)
	cancel()
	s.createCopy(t, "origin", "1")
	s.collect(t)
	expect("cancelled", 0)
}

// An admin decides about a copy that the hub does not know.
func TestDecisions(t *testing.T) {
	quarantined := func(t *testing.T, attempt string) (*scene, *unstructured.Unstructured) {
		t.Helper()
		s := newScene(t)
		copy := s.createCopy(t, "before-the-restore", attempt)
		s.sweep(t, workerName)
		s.collect(t)
		return s, copy
	}
	t.Run("Delete", func(t *testing.T) {
		s, copy := quarantined(t, "1")
		s.decide(t, copy, "Delete")
		s.collect(t)
		expectDeleted(t, s.copy(t))
	})
	t.Run("Release", func(t *testing.T) {
		s, copy := quarantined(t, "1")
		s.decide(t, copy, "Release")
		s.collect(t)
		released := s.copy(t)
		if released == nil || released.GetUID() != copy.GetUID() || released.GetDeletionTimestamp() != nil {
			t.Fatalf("the released copy does not go on: %v", released)
		}
		check.Diff(t, map[string]string{"team": "a"}, released.GetLabels(), "labels")
		check.Diff(t, map[string]string{"note": "b"}, released.GetAnnotations(), "annotations")
		s.collect(t)
		if worker, ok := s.quarantine.Of(s.key, "before-the-restore"); ok {
			t.Errorf("Of() = %q of a copy that is the worker's own now", worker)
		}
	})
	t.Run("Adopt", func(t *testing.T) {
		s, copy := quarantined(t, "1")
		job := s.submit(t)
		s.place(t, job.GetUID(), "", 4)
		s.decide(t, copy, "Adopt")
		s.collect(t) // The copy is assigned to the job,
		s.collect(t) // and then put on record.
		s.expectAdopted(t, job, 5)
		if now := s.copy(t); now.GetUID() != copy.GetUID() || now.GetDeletionTimestamp() != nil {
			t.Errorf("the copy did not go on: %v", now)
		}
	})
	t.Run("AdoptWithoutDispatch", func(t *testing.T) {
		s, copy := quarantined(t, "3")
		job := s.submit(t)
		s.decide(t, copy, "Adopt")
		s.collect(t)
		s.collect(t)
		s.expectAdopted(t, job, 3)
	})
	for name, test := range map[string]struct {
		decision string
		prepare  func(*testing.T, *scene)
		want     string
	}{
		"UnknownValue": {decision: "adopt", want: `"adopt" is no decision; say Adopt, Release or Delete`},
		"NoJob":        {decision: "Adopt", want: "the hub has no TrainJob"},
		"JobIsOver": {decision: "Adopt", want: "is Complete", prepare: func(t *testing.T, s *scene) {
			s.complete(t, s.submit(t))
		}},
		"JobIsPlaced": {decision: "Adopt", want: `is on worker "other" already`, prepare: func(t *testing.T, s *scene) {
			s.place(t, s.submit(t).GetUID(), otherName, 1)
		}},
		"ForeignJob": {decision: "Adopt", want: "spec.managedBy", prepare: func(t *testing.T, s *scene) {
			must(t, s.Hub.Admin.Create(t.Context(), s.newJob()))
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s, copy := quarantined(t, "1")
			if test.prepare != nil {
				test.prepare(t, s)
			}
			s.decide(t, copy, test.decision)
			s.collect(t)
			s.collect(t)
			if told := s.told(t, test.want); told != 1 {
				t.Errorf("%d Events say %q, want 1", told, test.want)
			}
			check.Diff(t, copy, s.copy(t), "the copy was touched")
		})
	}
}

// complete makes a hub TrainJob Complete.
func (s *scene) complete(t *testing.T, job *trainer.TrainJob) {
	t.Helper()
	job.Status.Conditions = []metav1.Condition{{
		Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "r", Message: "m", LastTransitionTime: metav1.Now(),
	}}
	must(t, s.Hub.Admin.Status().Update(t.Context(), job))
}

// expectAdopted checks that the job is on record on the worker, in this attempt, and that one Event has said so.
func (s *scene) expectAdopted(t *testing.T, job *trainer.TrainJob, attempt int32) {
	t.Helper()
	d := s.dispatch(t)
	if d == nil {
		t.Fatal("there is no Dispatch")
	}
	want := v1alpha1.DispatchSpec{
		TrainJob: v1alpha1.TrainJobReference{Name: job.GetName(), UID: job.GetUID()},
		Cluster:  workerName, ClusterID: s.Worker(workerName).ID, Attempt: attempt, Failover: v1alpha1.FailoverFenced,
		Priority: 7, PodSets: []v1alpha1.PodSet{{Name: "node", Count: 2}},
	}
	check.Diff(t, want, d.Spec, "spec of the Dispatch")
	check.Diff(t, []string{v1alpha1.FinalizerCopy}, d.Finalizers, "finalizers of the Dispatch")
	check.Equal(t, 1, s.told(t, "Adopted"), "Events that tell of the adoption")
	s.collect(t) // The copy is known now.
	if worker, ok := s.quarantine.Of(s.key, job.GetUID()); ok {
		t.Errorf("Of() = %q after the adoption", worker)
	}
	s.report(t, workerName)
	check.Equal(t, 0, unknownCopies(t), "copies that are counted as unknown after the adoption")
}

// blind is a cache of the hub that shows no Dispatches yet.
type blind struct{ client.Client }

func (b blind) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	if _, is := object.(*v1alpha1.Dispatch); is {
		return apierrors.NewNotFound(v1alpha1.GroupVersion.WithResource("dispatches").GroupResource(), key.Name)
	}
	return b.Client.Get(ctx, key, object, options...)
}
