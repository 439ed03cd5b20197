// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// flavors lets a policy propagate the flavors of Kueue: a job waits for nodes with their labels before Kueue resumes
// the job, and its copy gets what Kueue has written into the job.
func (g *gate) flavors(t *testing.T) {
	t.Helper()
	policy := &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "flavors"},
		Spec:       v1alpha1.DispatchPolicySpec{HubFlavors: v1alpha1.HubFlavorsPropagate},
	}
	check(t, g.Create(t.Context(), policy))
	flavor := kueueObject("ResourceFlavor", "", "any-worker")
	g.patch(t, flavor, `{"spec":{"nodeLabels":{"gpu":"h100"},"tolerations":[{"key":"spot","operator":"Exists"}]}}`)
	job := teamJob{team: "team-a", name: "flavored", gpus: 8}
	g.submit(t, job)
	g.checked(t, job, "Pending", "NoFit")
	g.patchNodes(t, `{"metadata":{"labels":{"gpu":"h100"}}}`)
	g.runs(t, job, 1)

	onHub, copy := trainjobs.New(), trainjobs.New()
	check(t, g.Get(t.Context(), job.key(), onHub))
	check(t, g.worker.Get(t.Context(), job.key(), copy))
	typed, err := trainjobs.Typed(onHub)
	check(t, err)
	want := trainjobs.KueueFlavors(typed)
	typed, err = trainjobs.Typed(copy)
	check(t, err)
	sent := typed.Spec.RuntimePatches
	if len(sent) == 0 {
		t.Fatal("the copy has no runtimePatches")
	}
	last := sent[len(sent)-1]
	last.Time = nil
	if diff := cmp.Diff(want, &last); want == nil || diff != "" {
		t.Errorf("the flavors of the copy (-of Kueue's entry +got):\n%s", diff)
	}
	d, err := g.dispatch(t.Context(), job)
	check(t, err)
	node := want.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template.Spec
	if diff := cmp.Diff(node.NodeSelector, d.Spec.PodSets[0].NodeSelector); diff != "" {
		t.Errorf("the node selector for which room was held (-of Kueue's entry +got):\n%s", diff)
	}
	if diff := cmp.Diff(node.Tolerations, d.Spec.PodSets[0].Tolerations); diff != "" {
		t.Errorf("the tolerations for which room was held (-of Kueue's entry +got):\n%s", diff)
	}

	g.remove(t, job)
	g.patchNodes(t, `{"metadata":{"labels":{"gpu":null}}}`)
	g.patch(t, flavor, `{"spec":{"nodeLabels":null,"tolerations":null}}`)
	check(t, g.Delete(t.Context(), policy))
}

// patchNodes changes all nodes of the worker.
func (g *gate) patchNodes(t *testing.T, change string) {
	t.Helper()
	await(t, "change the nodes", func(ctx context.Context) error {
		var nodes corev1.NodeList
		if err := g.worker.List(ctx, &nodes); err != nil {
			return err
		}
		patch := client.RawPatch("application/merge-patch+json", []byte(change))
		for i := range nodes.Items {
			if err := g.worker.Patch(ctx, &nodes.Items[i], patch); err != nil {
				return err
			}
		}
		return nil
	})
}
