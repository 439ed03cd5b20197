// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands_test

import (
	"context"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/registration"
	"github.com/trainyard/trainyard/test/check"
)

// What the manager does not delete in time, as without the right to do so, does not keep a worker from leaving, also if the
// caller has less time than leave would take.
func TestLeaveDoesNotWaitForEver(t *testing.T) {
	setUpPair(t)
	hub, _ := pairOf(t, &cutter{left: 1 << 30})
	worker := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainyard.dev/v1alpha1", "kind": "WorkerCluster", "metadata": map[string]any{"name": "brought"},
		"spec": map[string]any{"connection": map[string]any{"kubeconfigPath": "/none"}},
	}}
	check.Must(t, hub.Create(t.Context(), worker))
	t.Cleanup(func() { check.Must(t, hub.Delete(context.Background(), worker)) })
	worker.Object["status"] = map[string]any{"dependencies": []any{map[string]any{"namespace": "a", "kind": "Secret", "name": "hf"}}}
	check.Must(t, hub.Status().Update(t.Context(), worker))
	l, err := registration.NewLeave(t.Context(), hub, nil, registration.Options{Name: "brought", Namespace: "trainyard-system"}, func(string) error { return nil })
	check.Must(t, err)
	ctx, cancel := registration.Limited(t.Context(), time.Second)
	defer cancel()
	waited := 0
	check.Must(t, l.AwaitBrought(ctx, func(string) error { waited++; return nil }))
	if waited == 0 {
		t.Error("it has not waited")
	}
}

// leave deletes the pinned runtimes that the manager would delete later, and no others.
func TestLeaveDeletesPinnedRuntimes(t *testing.T) {
	setUpPair(t)
	hub, far := pairOf(t, &cutter{left: 1 << 30})
	system, err := world.kubernetes.CoreV1().Namespaces().Get(t.Context(), metav1.NamespaceSystem, metav1.GetOptions{})
	check.Must(t, err)
	create := func(kind, name string, labels map[string]any, spec map[string]any) *unstructured.Unstructured {
		t.Helper()
		o := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": trainer.SchemeGroupVersion.String(), "kind": kind, "spec": spec,
			"metadata": map[string]any{"namespace": metav1.NamespaceDefault, "name": name, "labels": labels},
		}}
		check.Must(t, far.Create(t.Context(), o))
		t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(far.Delete(context.Background(), o))) })
		return o
	}
	marks := func(hub string) map[string]any {
		return map[string]any{v1alpha1.LabelPropagatedBy: hub, v1alpha1.LabelPinned: "0123456789"}
	}
	runtime := func(name string, labels map[string]any) *unstructured.Unstructured {
		t.Helper()
		return create(trainer.TrainingRuntimeKind, name, labels, map[string]any{"mlPolicy": map[string]any{"numNodes": int64(1)}})
	}
	ours := string(system.UID)
	goes := runtime("unneeded", marks(ours))
	stay := []*unstructured.Unstructured{
		runtime("named", marks(ours)), runtime("of-another-hub", marks("hub-2")), runtime("own", nil),
		runtime("propagated", map[string]any{v1alpha1.LabelPropagatedBy: ours}),
	}
	create(trainer.TrainJobKind, "names", nil, map[string]any{"suspend": true, "runtimeRef": map[string]any{
		"apiGroup": trainer.SchemeGroupVersion.Group, "kind": trainer.TrainingRuntimeKind, "name": "named",
	}})
	l, err := registration.NewLeave(t.Context(), hub, far, registration.Options{Name: "left", Namespace: "trainyard-system"}, func(string) error { return nil })
	check.Must(t, err)
	_, err = l.Revoke(t.Context())
	check.Must(t, err)
	if err := far.Get(t.Context(), client.ObjectKeyFromObject(goes), goes); !apierrors.IsNotFound(err) {
		t.Errorf("a runtime that nothing names is still there: %v", err)
	}
	for _, o := range stay {
		check.Must(t, far.Get(t.Context(), client.ObjectKeyFromObject(o), o))
	}
}
