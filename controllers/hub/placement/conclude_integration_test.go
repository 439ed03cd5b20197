// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/laws"
)

// A worker returns at the moment when an attempt on it is given up, and the copy says that the job is Complete. The job
// is not placed again, even while the cache does not show the end, and its Dispatch says that it has finished.
func TestJobThatEndsAsItIsGivenUp(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// lags: the hub's cache does not show the end at first. cordoned: the job could not be placed anyway.
		lags, cordoned bool
	}{
		"Seen":            {reason: "the usual order of events"},
		"Lagging":         {reason: "the Dispatch's event came before the TrainJob's", lags: true},
		"LaggingCordoned": {reason: "without a worker the Dispatch would say nothing about the end any more", lags: true, cordoned: true},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Submit(t, "job")
			d, _ := s.reconcile(t, "job")
			before := s.TrainJob(t, "job")
			s.endsAttempt(t, d, v1alpha1.OutcomeWorkerLost)
			if test.cordoned {
				s.worker(t, east, cordon)
				s.worker(t, west, cordon)
			}
			ended := s.TrainJob(t, "job")
			meta.SetStatusCondition(&ended.Status.Conditions, metav1.Condition{
				Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "Because", Message: "it is Complete",
			})
			check.Must(t, s.Hub.Admin.Status().Update(t.Context(), ended))
			given := s.Dispatch(t, "job")
			if test.lags {
				s.reconciler.Hub = outdatedHub{Client: s.Hub.Admin, job: before}
				now, result := s.reconcile(t, "job")
				if diff := cmp.Diff(given.Spec, now.Spec); diff != "" || result.RequeueAfter == 0 {
					t.Errorf("looked at again after %s; the Dispatch was written (-before +after):\n%s", result.RequeueAfter, diff)
				}
				s.reconciler.Hub = s.Hub.Admin
			}
			now, _ := s.reconcile(t, "job")
			if now == nil {
				t.Fatal("the Dispatch is gone")
			}
			if err := laws.Check(given, now); err != nil {
				t.Errorf("a write that no table has: %v", err)
			}
			if state := record.StateOf(now); state != record.Finished || now.Status.Reason != v1alpha1.ReasonComplete {
				t.Errorf("the Dispatch is %s by %s, want Finished by Complete: %s", state, now.Status.Reason, test.reason)
			}
			if again, _ := s.reconcile(t, "job"); again.ResourceVersion != now.ResourceVersion {
				t.Error("the same was written again")
			}
		})
	}
}

// The cache shows that a Dispatch waits. The Dispatch is not deleted if it has got a worker since then.
func TestOnlyAWaitingDispatchIsDeleted(t *testing.T) {
	s := newScene(t)
	s.worker(t, east, cordon)
	s.worker(t, west, cordon)
	s.Submit(t, "job")
	waiting, _ := s.reconcile(t, "job")
	s.worker(t, west, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Unschedulable = false })
	placed, _ := s.reconcile(t, "job")
	if placed.Spec.Cluster != west {
		t.Fatalf("the job is on %q, want west", placed.Spec.Cluster)
	}
	ended := s.TrainJob(t, "job")
	meta.SetStatusCondition(&ended.Status.Conditions, metav1.Condition{
		Type: trainer.TrainJobComplete, Status: metav1.ConditionTrue, Reason: "Because", Message: "it is Complete",
	})
	check.Must(t, s.Hub.Admin.Status().Update(t.Context(), ended))
	s.reconciler.Hub = outdatedHub{Client: s.Hub.Admin, dispatch: waiting}
	now, result := s.reconcile(t, "job")
	if now == nil || now.DeletionTimestamp != nil || result.RequeueAfter == 0 {
		t.Errorf("the record of a job that has ended is being deleted: %+v", now)
	}
}

// outdatedHub is a hub whose cache shows the given, earlier objects.
type outdatedHub struct {
	client.Client
	job      *trainer.TrainJob
	dispatch *v1alpha1.Dispatch
}

// Get implements client.Reader.
func (h outdatedHub) Get(ctx context.Context, key client.ObjectKey, object client.Object, options ...client.GetOption) error {
	switch to := object.(type) {
	case *unstructured.Unstructured:
		if h.job != nil && key == client.ObjectKeyFromObject(h.job) {
			if err := h.Client.Get(ctx, key, to, options...); err != nil {
				return err
			}
			delete(to.Object, "status")
			to.SetResourceVersion(h.job.ResourceVersion)
			return nil
		}
	case *v1alpha1.Dispatch:
		if h.dispatch != nil && key == client.ObjectKeyFromObject(h.dispatch) {
			h.dispatch.DeepCopyInto(to)
			return nil
		}
	}
	return h.Client.Get(ctx, key, object, options...)
}
