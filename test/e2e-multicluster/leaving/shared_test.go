// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"testing"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// Two hubs have joined the worker. One hub leaves while a job of the other hub runs. That job goes on, and its hub
// still works.
func leaveSharedWorker(t *testing.T) {
	join(t)
	second := startSecondHub(t)
	pair := []string{"--kubeconfig", y.Yard.Workers[leaver].KubeconfigPath, "--hub-kubeconfig", second.KubeconfigPath}
	_, err := y.Plugin(t.Context(), append([]string{"join", leaver, "--agent=none", "--timeout=120s"}, pair...)...)
	check.Must(t, err)
	running := onLeaver(t, "shared")[0]
	token := tokenOf(t)

	other, err := yard.NewClient(second)
	check.Must(t, err)
	id := hubID(t, other)
	leave(t.Context(), t, append([]string{"--drain"}, pair...)...).expect(t, 0, "workercluster/leaver has left",
		"another hub uses them (ID "+hubID(t, y.Hub)+")")
	bound := &corev1.Secret{}
	err = y.Workers[leaver].Get(t.Context(), client.ObjectKey{Namespace: "trainyard-system", Name: "trainyard-hub-" + id}, bound)
	if !apierrors.IsNotFound(err) {
		t.Errorf("the Secret to which the tokens of the hub that has left are bound: %v, want it gone", err)
	}

	// The other hub has its rights, and the agent still runs its jobs.
	_, err = token.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	check.Must(t, err)
	finish(t, leaver, running)
	if d := y.DispatchOf(gomega.NewWithT(t), running); d.Spec.Attempt != 1 {
		t.Errorf("the job of the other hub was placed %d times", d.Spec.Attempt)
	}
	if ready := meta.FindStatusCondition(registered(t).Status.Conditions, v1alpha1.WorkerClusterReady); ready.Status != metav1.ConditionTrue {
		t.Errorf("the worker is not Ready for the other hub: %s: %s", ready.Reason, ready.Message)
	}
	finish(t, leaver, onLeaver(t, "shared-later")[0])
}

// startSecondHub starts a hub with a manager that uses the admin's rights.
func startSecondHub(t *testing.T) *clusters.Cluster {
	t.Helper()
	crds, err := clusters.ModulePaths(t.Context(), clusters.TrainerCRDs, clusters.HubCRDs)
	check.Must(t, err)
	second, err := clusters.Start(t.Context(), clusters.Options{Name: "second-hub", CRDs: crds})
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, second.Stop()) })
	c, err := yard.NewClient(second)
	check.Must(t, err)
	check.Must(t, c.Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "trainyard-system"}}))
	_, err = second.Run(t.Context(), "manager", "manager", "--kubeconfig="+second.KubeconfigPath, "--namespace=trainyard-system",
		"--leader-elect=false", "--health-probe-bind-address=0", "--metrics-bind-address=0")
	check.Must(t, err)
	return second
}
