// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestPinnedRuntimesStayAsTheyAre: who may do everything in a namespace of a worker makes no runtime that the hub would take
// for its own, and changes none. The hub, and whoever has its token, deletes no other runtime.
func TestPinnedRuntimesStayAsTheyAre(t *testing.T) {
	e, ns := withMarks(t)
	check.Must(t, e.cluster.ApplyFiles(t.Context(), "../config/admission/pinned.yaml", "../config/worker-pins/cluster_role.yaml",
		"../config/worker-pins/cluster_role_binding.yaml", "../config/worker-pins/policy.yaml"))
	runtime := func(name string, labels map[string]string) *trainer.TrainingRuntime {
		r := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: name, Labels: labels}}
		r.Spec.MLPolicy = &trainer.MLPolicy{NumNodes: ptr.To[int32](1)}
		return r
	}
	marks := map[string]string{v1alpha1.LabelPinned: "0123456789", v1alpha1.LabelPropagatedBy: "hub-1"}
	user, hub := e.as(t, aUser), e.as(t, theHub)
	foreign, pinned := runtime("foreign", nil), runtime("pinned", marks)
	e.create(t, foreign)
	check.Must(t, hub.Create(t.Context(), pinned))
	eventually(t, "policies to be in force, and rights", func(g gomega.Gomega) {
		g.Expect(apierrors.IsForbidden(user.Create(t.Context(), runtime("probe", marks), client.DryRunAll))).To(gomega.BeTrue())
		g.Expect(hub.Delete(t.Context(), pinned.DeepCopy(), client.DryRunAll)).To(gomega.Succeed())
		g.Expect(hub.Delete(t.Context(), foreign.DeepCopy(), client.DryRunAll)).To(gomega.MatchError(gomega.ContainSubstring("trainyard-pins")))
	})
	change := func(who client.Client, of *trainer.TrainingRuntime, change func(*trainer.TrainingRuntime)) error {
		changed := of.DeepCopy()
		change(changed)
		return who.Patch(t.Context(), changed, client.MergeFrom(of))
	}
	spec := func(r *trainer.TrainingRuntime) { r.Spec.MLPolicy.NumNodes = ptr.To[int32](9) }
	source := func(r *trainer.TrainingRuntime) {
		r.Annotations = map[string]string{v1alpha1.AnnotationSource: "uid.1"}
	}
	for what, err := range map[string]error{
		"a runtime that is made in advance":          user.Create(t.Context(), runtime("squatted", marks)),
		"a spec that a user changes":                 change(user, pinned, spec),
		"a spec that the hub changes":                change(hub, pinned, spec),
		"a spec that an admin changes":               change(e, pinned, spec),
		"labels that are taken off":                  change(user, pinned, func(r *trainer.TrainingRuntime) { r.Labels = nil }),
		"the label of another hub":                   change(user, pinned, func(r *trainer.TrainingRuntime) { r.Labels[v1alpha1.LabelPropagatedBy] = "hub-2" }),
		"labels on a foreign runtime":                change(user, foreign, func(r *trainer.TrainingRuntime) { r.Labels = marks }),
		"another source":                             change(user, pinned, source),
		"labels that a stolen token gives":           change(hub, foreign, func(r *trainer.TrainingRuntime) { r.Labels = marks }),
		"a foreign runtime that the hub deletes":     hub.Delete(t.Context(), foreign.DeepCopy()),
		"many runtimes that the hub deletes at once": hub.DeleteAllOf(t.Context(), &trainer.TrainingRuntime{}, client.InNamespace(ns)),
	} {
		if !apierrors.IsForbidden(err) {
			t.Errorf("%s: the answer is %v, and should be that it is forbidden", what, err)
		}
	}
	check.Must(t, change(user, foreign, spec))
	check.Must(t, change(user, pinned, func(r *trainer.TrainingRuntime) {
		r.Labels["team"], r.Finalizers = "a", []string{"trainer.kubeflow.org/resource-in-use"}
	}))
	check.Must(t, e.Get(t.Context(), client.ObjectKeyFromObject(pinned), pinned))
	check.Must(t, change(user, pinned, func(r *trainer.TrainingRuntime) { r.Finalizers = nil }))
	check.Must(t, hub.Delete(t.Context(), pinned))
}
