// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// collectorTime is longer than the worker's garbage collector has for a JobSet. These workers have no such collector.
const collectorTime = 30 * time.Second

// The JobSet of a finished copy is deleted, even if the worker's garbage collector has forgotten it, and after a
// restart.
func TestLeftoverJobSetIsDeleted(t *testing.T) {
	for name, restart := range map[string]bool{"SameProcess": false, "NextProcess": true} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			copy := s.finishedCopy(t, true)
			s.recordCopy(t, copy.GetUID())
			s.createJobSet(t, copy.GetUID())
			s.Clock.Step(retention)
			s.collect(t)
			if s.copy(t) != nil {
				t.Fatal("the copy is still there")
			}
			if restart {
				s.restart()
			}
			if later := s.collect(t).RequeueAfter; later <= 0 || later > collectorTime || s.jobSet(t) == nil {
				t.Errorf("the JobSet is looked at again after %s, and is there: %t; want the garbage collector to have its time",
					later, s.jobSet(t) != nil)
			}
			s.Clock.Step(collectorTime)
			s.collect(t)
			check.Equal(t, nil, s.jobSet(t), "the JobSet that the finished copy has left is still there")
		})
	}
}

// A JobSet is deleted only if the hub's record says that its owner was the finished copy.
func TestJobSetsOfOthersStay(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// recorded is the copy's UID in the Dispatch, owner the UID of the JobSet's TrainJob.
		recorded, owner types.UID
		live            bool
		cluster         v1alpha1.ClusterName
	}{
		"OtherOwner":   {reason: "it is of another TrainJob", recorded: "copy", owner: "other", cluster: workerName},
		"NoOwner":      {reason: "somebody made it by hand", recorded: "copy", cluster: workerName},
		"NoRecord":     {reason: "nobody knows whose it is", owner: "copy", cluster: workerName},
		"Live":         {reason: "its job has not ended", recorded: "copy", owner: "copy", live: true, cluster: workerName},
		"OtherCluster": {reason: "its job ran elsewhere", recorded: "copy", owner: "copy", cluster: otherName},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			d := s.place(t, s.submit(t).GetUID(), test.cluster, 1)
			if !test.live {
				s.finish(t, d)
			}
			if test.recorded != "" {
				s.recordCopy(t, test.recorded)
			}
			s.createJobSet(t, test.owner)
			for range 2 {
				check.Equal(t, 0, s.collect(t).RequeueAfter,
					"the JobSet is looked at again after: %s", test.reason)
				s.Clock.Step(collectorTime)
			}
			if s.jobSet(t) == nil {
				t.Errorf("the JobSet was deleted, though %s", test.reason)
			}
		})
	}
}

// recordCopy writes the UID of the attempt's copy into the Dispatch.
func (s *scene) recordCopy(t *testing.T, uid types.UID) {
	t.Helper()
	d := s.dispatch(t)
	d.Status.CopyUID = uid
	s.SetCondition(t, d, v1alpha1.DispatchMirrored, metav1.ConditionTrue, v1alpha1.ReasonCopied)
}

// createJobSet creates the JobSet of a TrainJob with this UID on the worker. With an empty UID it has no owner.
func (s *scene) createJobSet(t *testing.T, owner types.UID) {
	t.Helper()
	w := s.Worker(workerName)
	jobSet := newJobSet()
	jobSet.SetNamespace(s.key.Namespace)
	jobSet.SetName(s.key.Name)
	if owner != "" {
		jobSet.SetOwnerReferences([]metav1.OwnerReference{{
			APIVersion: trainjobs.GroupVersionKind.GroupVersion().String(), Kind: trainjobs.GroupVersionKind.Kind,
			Name: s.key.Name, UID: owner, Controller: ptr.To(true),
		}})
	}
	must(t, w.Admin.Create(t.Context(), jobSet))
	t.Cleanup(func() {
		must(t, client.IgnoreNotFound(w.Admin.Delete(context.WithoutCancel(t.Context()), jobSet)))
	})
	eventually(t, "worker's cache of JobSets", func(g gomega.Gomega) {
		g.Expect(w.Connection.Cache().Get(t.Context(), s.key, newJobSet())).To(gomega.Succeed())
	})
}

// jobSet reads the JobSet from the worker. It returns nil if there is none.
func (s *scene) jobSet(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	jobSet := newJobSet()
	if err := s.Worker(workerName).Admin.Get(t.Context(), s.key, jobSet); err != nil {
		must(t, client.IgnoreNotFound(err))
		return nil
	}
	return jobSet
}

func newJobSet() *unstructured.Unstructured {
	jobSet := &unstructured.Unstructured{Object: map[string]any{"spec": map[string]any{}}}
	jobSet.SetGroupVersionKind(jobsetv1alpha2.SchemeGroupVersion.WithKind("JobSet"))
	return jobSet
}
