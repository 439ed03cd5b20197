// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// The tests in this file are about one fault of the Kubeflow Trainer: it accepts patches that never take effect.

// placed returns a change that patches the spec of the pods. The pods run for ever.
func placed(spec trainer.PodSpecPatch) func(*trainer.TrainJob) {
	return patchRuntime(&trainer.PodTemplatePatch{Metadata: annotated(clusters.RunForAnnotation, clusters.RunForever), Spec: &spec})
}

// suspendAndAwait suspends a running job and waits until it is suspended.
func (e *lifeEnvironment) suspendAndAwait(t *testing.T, j *trainer.TrainJob) {
	t.Helper()
	update(t, e.environment, j, suspend)
	eventually(t, "Jobs to be suspended", func(g gomega.Gomega) {
		var jobs batchv1.JobList
		g.Expect(e.List(t.Context(), &jobs, client.InNamespace(j.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: j.Name})).
			To(gomega.Succeed())
		for _, job := range jobs.Items {
			g.Expect(ptr.Deref(job.Spec.Suspend, false)).To(gomega.BeTrue())
		}
		g.Expect(e.podsOf(t, j)).To(gomega.BeEmpty())
	})
}

func resume(j *trainer.TrainJob) { j.Spec.Suspend = new(false) }

// expectPool checks in which pool the two pods of a job run.
func (e *lifeEnvironment) expectPool(t *testing.T, j *trainer.TrainJob, pool string) {
	t.Helper()
	for _, pod := range e.awaitRunning(t, j, 2) {
		var node corev1.Node
		check.Must(t, e.Get(t.Context(), client.ObjectKey{Name: pod.Spec.NodeName}, &node))
		if got := node.Labels[poolLabel]; got != pool {
			t.Errorf("%s runs in pool %q, want %q", pod.Name, got, pool)
		}
	}
}

func TestHolePatchStuckBeforeStart(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "patched", suspend, placed(trainer.PodSpecPatch{Affinity: poolAffinity("a")}))
	first := e.awaitJobSet(t, j)
	update(t, e.environment, j, placed(trainer.PodSpecPatch{Affinity: poolAffinity("b")}))
	e.awaitNote(t, j, ReasonJobSetRebuilt, "had not started yet")
	e.awaitGone(t, first)
	second := e.awaitJobSet(t, j)
	// One request patches and resumes.
	update(t, e.environment, j, func(j *trainer.TrainJob) {
		placed(trainer.PodSpecPatch{Affinity: poolAffinity("a")})(j)
		resume(j)
	})
	e.awaitGone(t, second)
	e.expectPool(t, j, "a")
}

func TestHolePatchStuckAfterStart(t *testing.T) {
	t.Parallel()
	e := lifeEnv(t)
	ns := e.namespace(t)
	j := e.createJob(t, ns, "patched", placed(trainer.PodSpecPatch{NodeSelector: map[string]string{poolLabel: "a"}}))
	e.expectPool(t, j, "a")
	js := e.awaitJobSet(t, j)
	e.suspendAndAwait(t, j)
	update(t, e.environment, j, placed(trainer.PodSpecPatch{Affinity: poolAffinity("b")}))
	e.awaitNote(t, j, ReasonApplyFailed, "the JobSet has run already", "take back the change", "spec.replicatedJobs")
	update(t, e.environment, j, func(j *trainer.TrainJob) {
		placed(trainer.PodSpecPatch{NodeSelector: map[string]string{poolLabel: "b"}})(j)
		resume(j)
	})
	e.expectPool(t, j, "b")
	if now := e.awaitJobSet(t, j); now.UID != js.UID {
		t.Error("a JobSet that had run was made anew")
	}
}

// TestHolePatchNotTakenBack: when a JobSet is resumed, its controller only adds node selectors, labels, annotations,
// tolerations and scheduling gates to existing Jobs. So what a removed patch had added would stay on the pods, and a
// scheduling gate would keep them waiting for ever.
func TestHolePatchNotTakenBack(t *testing.T) {
	cases := map[string]struct {
		reason string
		patch  trainer.PodSpecPatch
	}{
		"NodeSelector":    {reason: "No node has this label.", patch: trainer.PodSpecPatch{NodeSelector: map[string]string{poolLabel: "none"}}},
		"SchedulingGates": {reason: "This is what gates are for.", patch: trainer.PodSpecPatch{SchedulingGates: []corev1.PodSchedulingGate{{Name: "example.com/wait"}}}},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			e := lifeEnv(t)
			ns := e.namespace(t)
			j := e.createJob(t, ns, "gated", suspend, placed(tc.patch))
			eventually(t, "Jobs", func(g gomega.Gomega) {
				var jobs batchv1.JobList
				g.Expect(e.List(t.Context(), &jobs, client.InNamespace(ns))).To(gomega.Succeed())
				g.Expect(jobs.Items).NotTo(gomega.BeEmpty())
			})
			update(t, e.environment, j, func(j *trainer.TrainJob) {
				placed(trainer.PodSpecPatch{})(j)
				resume(j)
			})
			e.awaitRunning(t, j, 2)
		})
	}
}
