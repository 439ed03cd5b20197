// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

const testHub = "hub-of-fencing"

// TestFencing checks two agents with the rights of config/worker-agent, with and without the lease for TrainJobs: a
// copy whose hub is silent is suspended, and its pods get a second to end.
func TestFencing(t *testing.T) {
	setUp(t)
	agents := []*agent{startAgent(t), startAgent(t)}
	lease := &unstructured.Unstructured{}
	lease.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ExecutionLease"))
	lease.SetName(testHub)
	lease.Object["spec"] = map[string]any{"fenceAfter": "20s"}
	check.Must(t, world.client.Create(t.Context(), lease))
	t.Cleanup(func() { _ = world.client.Delete(context.Background(), lease) })
	silence := answer(t) // Also until the pod runs: that may take longer than the lease is valid.
	eventually(t, "a valid lease", func(g gomega.Gomega) {
		g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(lease), lease)).To(gomega.Succeed())
		state, _, _ := unstructured.NestedString(lease.Object, "status", "state")
		g.Expect(state).To(gomega.Equal(string(v1alpha1.LeaseValid)))
	})
	challenge, _, _ := unstructured.NestedString(lease.Object, "spec", "answer")
	j := createFencedCopy(t, challenge)
	pods := client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: j.Name}
	eventually(t, "a running pod", func(g gomega.Gomega) {
		var list corev1.PodList
		g.Expect(world.client.List(t.Context(), &list, client.InNamespace(j.Namespace), pods)).To(gomega.Succeed())
		g.Expect(list.Items).To(gomega.HaveLen(1))
		g.Expect(list.Items[0].Status.Phase).To(gomega.Equal(corev1.PodRunning))
	})
	silence()
	eventually(t, "the copy to be suspended and marked", func(g gomega.Gomega) {
		g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(j), j)).To(gomega.Succeed())
		g.Expect(j.Annotations).To(gomega.HaveKey(v1alpha1.AnnotationFenced))
		g.Expect(*j.Spec.Suspend).To(gomega.BeTrue())
	})
	eventually(t, "pods with a grace of a second", func(g gomega.Gomega) {
		var list corev1.PodList
		g.Expect(world.client.List(t.Context(), &list, client.InNamespace(j.Namespace), pods)).To(gomega.Succeed())
		g.Expect(list.Items).To(gomega.HaveLen(1))
		g.Expect(list.Items[0].DeletionGracePeriodSeconds).To(gomega.HaveValue(gomega.BeEquivalentTo(1)))
	})
	for _, a := range agents {
		a.checkRights(t)
	}
}

// answer acts as a hub: it answers each challenge until silence is called.
func answer(t *testing.T) (silence func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		wait.UntilWithContext(ctx, func(ctx context.Context) {
			lease := &unstructured.Unstructured{}
			lease.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("ExecutionLease"))
			if world.client.Get(ctx, client.ObjectKey{Name: testHub}, lease) != nil {
				return
			}
			challenge, _, _ := unstructured.NestedString(lease.Object, "status", "challenge")
			if answered, _, _ := unstructured.NestedString(lease.Object, "spec", "answer"); challenge != answered {
				patch := client.RawPatch(types.MergePatchType, fmt.Appendf(nil, `{"spec":{"answer":%q}}`, challenge))
				_ = world.client.Patch(ctx, lease, patch)
			}
		}, 200*time.Millisecond)
	}()
	return func() {
		cancel()
		<-ended
	}
}

// createFencedCopy creates a copy with one pod that runs for ever and ignores its deletion.
func createFencedCopy(t *testing.T, challenge string) *trainer.TrainJob {
	t.Helper()
	return createJob(t, "fenced", func(j *trainer.TrainJob) {
		j.Labels = map[string]string{v1alpha1.LabelHub: testHub, v1alpha1.LabelOriginUID: "origin"}
		j.Annotations = map[string]string{
			v1alpha1.AnnotationAttempt: "1", v1alpha1.AnnotationFailover: string(v1alpha1.FailoverFenced),
			v1alpha1.AnnotationChallenge: challenge,
		}
		j.Spec.Trainer.NumNodes = new(int32(1))
		pod := &trainer.PodTemplatePatch{Metadata: &metav1.ObjectMeta{Annotations: map[string]string{
			clusters.RunForAnnotation: clusters.RunForever, clusters.TerminateForAnnotation: time.Minute.String(),
		}}}
		j.Spec.RuntimePatches = []trainer.RuntimePatch{{
			Manager: "example.com/test",
			TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{Spec: &trainer.JobSetSpecPatch{
				ReplicatedJobs: []trainer.ReplicatedJobPatch{{
					Name: "node", Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: pod}},
				}},
			}}},
		}}
	})
}

// TestNoFencing checks that without fencing, copies that need it do not start.
func TestNoFencing(t *testing.T) {
	setUp(t)
	startAgent(t, "--fencing=false")
	fenced := createJob(t, "unfenced", func(j *trainer.TrainJob) {
		j.Labels = map[string]string{v1alpha1.LabelHub: testHub, v1alpha1.LabelOriginUID: "other-origin"}
		j.Annotations = map[string]string{v1alpha1.AnnotationFailover: string(v1alpha1.FailoverFenced)}
	})
	eventually(t, "an Event that says so", func(g gomega.Gomega) {
		var list corev1.EventList
		g.Expect(world.client.List(t.Context(), &list, client.InNamespace(fenced.Namespace))).To(gomega.Succeed())
		var notes []string
		for _, event := range list.Items {
			if event.InvolvedObject.UID == fenced.UID {
				notes = append(notes, event.Reason+": "+event.Message)
			}
		}
		g.Expect(notes).To(gomega.ContainElement(gomega.ContainSubstring("--fencing=false")))
	})
	err := world.client.Get(t.Context(), client.ObjectKeyFromObject(fenced), &jobsetv1alpha2.JobSet{})
	if client.IgnoreNotFound(err) != nil || err == nil {
		t.Errorf("a copy with failover Fenced has a JobSet (%v)", err)
	}
	check.Must(t, world.client.Delete(t.Context(), fenced))
}
