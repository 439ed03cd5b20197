// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"testing"
	"time"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// A runtime comes to a worker without the TTL of its JobSets, and counts as the hub's. The hub's runtime keeps it.
func TestRuntimeHasNoTTL(t *testing.T) {
	s := newScene(t, ownRuntimeOf())
	own := s.ownRuntime(t)
	own.Spec.Template.Spec.TTLSecondsAfterFinished = ptr.To[int32](60)
	must(t, s.Hub.Admin.Update(t.Context(), own))
	s.settle(t)
	s.reconcile(t)
	onWorker := s.there(t)
	if ttl, found, _ := unstructured.NestedFieldNoCopy(onWorker.Object, "spec", "template", "spec", "ttlSecondsAfterFinished"); found {
		t.Errorf("the runtime on the worker has ttlSecondsAfterFinished %v", ttl)
	}
	must(t, s.Hub.Admin.Get(t.Context(), client.ObjectKeyFromObject(own), own))
	check.Equal(t, int32(60), *own.Spec.Template.Spec.TTLSecondsAfterFinished, "the TTL on the hub")
	s.nextAttempt(t)
	check.Equal(t, onWorker.GetResourceVersion(), s.there(t).GetResourceVersion(), "the runtime was written again, though nothing has changed")
}

// Where another controller has made the JobSet of a copy with a TTL, the Dispatch says what may come of it, once.
func TestTTLOfAForeignControllerIsSaid(t *testing.T) {
	s := newScene(t, setting{})
	s.reconcile(t)
	jobSet := s.jobSet(t, 0, "")
	must(t, unstructured.SetNestedField(jobSet.Object, int64(30), "spec", "ttlSecondsAfterFinished"))
	must(t, s.worker.Admin.Update(t.Context(), jobSet))
	s.settle(t)
	s.Clock.Step(time.Minute)
	said := func(want gomega.OmegaMatcher) {
		t.Helper()
		eventually(t, "the condition Mirrored", func(g gomega.Gomega) {
			s.reconcile(t)
			mirrored := meta.FindStatusCondition(s.dispatch(t).Status.Conditions, v1alpha1.DispatchMirrored)
			g.Expect(mirrored).NotTo(gomega.BeNil())
			g.Expect(mirrored.Reason).To(gomega.Equal(v1alpha1.ReasonCopied))
			g.Expect(mirrored.Message).To(want)
		})
	}
	said(gomega.SatisfyAll(
		gomega.ContainSubstring(`the copy exists on worker "`),
		gomega.ContainSubstring(`its JobSet has ttlSecondsAfterFinished 30, by ClusterTrainingRuntime "torch-distributed" of the worker`),
	))
	s.Clock.Step(time.Minute)
	s.expectQuiet(t, "nothing has changed")
}
