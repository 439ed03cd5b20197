// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package leaving

import (
	"context"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// TestLeave takes a worker out while jobs run there. Each part begins with a registered worker. The last part removes
// the agent, so it stays the last.
func TestLeave(t *testing.T) {
	if clusters.OnKind() {
		t.Skip("not on kind: it stops API servers, and reads audit logs")
	}
	t.Run("shared", leaveSharedWorker)
	t.Run("lost", leaveLostWorker)
	t.Run("drained", leaveDrainedWorker)
}

// The worker does not answer, and will not return. Its jobs run elsewhere at once. It returns all the same, and leaves
// for good.
func leaveLostWorker(t *testing.T) {
	join(t)
	jobs := onLeaver(t, "lost-1", "lost-2")
	isReady(t)
	leave(t.Context(), t, onBoth("--force")...).expect(t, 1, "--drain")
	check.Must(t, y.Yard.Workers[leaver].KillAPIServer())
	y.Eventually(t, func(g gomega.Gomega) {
		worker := registered(t)
		g.Expect(worker.Status.Conditions).To(gomega.ContainElement(gomega.And(
			gomega.HaveField("Type", v1alpha1.WorkerClusterReady), gomega.HaveField("Reason", v1alpha1.ReasonUnreachable))))
	})
	leave(t.Context(), t, onHub()...).expect(t, 1, "trainjob default/lost-1 is on the worker", "2 jobs", "--drain", "--force")
	leave(t.Context(), t, onBoth("--force")...).expect(t, 1, "refused", "without --context")
	leave(t.Context(), t, onHub("--drain", "--timeout=5s")...).expect(t, 1, "does not answer", "--force")
	y.Edit(t, leaver, func(w *v1alpha1.WorkerCluster) { w.Spec.Drain = false })
	leave(t.Context(), t, onHub("--force")...).expect(t, 0, "forgotten", "workercluster/leaver has left", "nothing was deleted on the worker")
	isOut(t)
	for _, job := range jobs {
		runsOn(t, stayer, job, 2)
	}

	check.Must(t, y.Yard.Workers[leaver].StartAPIServer(t.Context()))
	leave(t.Context(), t, onBoth()...).expect(t, 0, "there is no WorkerCluster", "copies of this hub: default/lost-1, default/lost-2", "worker-agent")
	for _, job := range jobs {
		copied := &trainer.TrainJob{}
		check.Must(t, y.Workers[leaver].Get(t.Context(), client.ObjectKeyFromObject(job), copied))
		check.Must(t, y.Workers[leaver].Delete(t.Context(), copied))
		finish(t, stayer, job)
	}
}

// The worker answers. Its jobs go to another worker one after the other, and none runs twice. leave is interrupted, and
// repeated.
func leaveDrainedWorker(t *testing.T) {
	join(t)
	ended := onLeaver(t, "ended")[0]
	finish(t, leaver, ended)
	jobs := onLeaver(t, "drained-1", "drained-2", "drained-3")
	token := tokenOf(t)
	leave(t.Context(), t, onBoth()...).expect(t, 1, "trainjob default/drained-1 is on the worker", "3 jobs", "--drain")
	if worker := registered(t); worker.Spec.Unschedulable || worker.Spec.Drain {
		t.Error("a leave that was refused has changed the worker")
	}

	interrupted, cancel := context.WithCancel(t.Context())
	watching := make(chan struct{})
	go func() {
		defer close(watching)
		for interrupted.Err() == nil && !registered(t).Spec.Drain {
			time.Sleep(y.Poll)
		}
		cancel()
	}()
	if o := leave(interrupted, t, onBoth("--drain")...); o.code == 0 {
		t.Error("leave was not interrupted")
	}
	cancel()
	<-watching
	leave(t.Context(), t, onBoth("--drain")...).expect(t, 0, "serviceaccount/trainyard-hub in trainyard-system deleted", "workercluster/leaver has left",
		"left on the worker:", "clustertrainingruntimes that this hub created: torch-distributed", "namespace trainyard-system", "namespace kubeflow-system")
	isOut(t)
	isRevoked(t, token)
	nothingIsLeft(t)
	for _, job := range jobs {
		runsOn(t, stayer, job, 2)
		finish(t, stayer, job)
		ranOnce(t, job)
	}
	leave(t.Context(), t, onBoth("--drain")...).expect(t, 0, "there is no WorkerCluster")

	// Nobody can ask the worker any more about the copy of a job that ended there.
	check.Must(t, y.Hub.Delete(t.Context(), ended))
	y.Eventually(t, func(g gomega.Gomega) {
		err := y.Hub.Get(t.Context(), client.ObjectKeyFromObject(ended), &v1alpha1.Dispatch{})
		g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue(), "the Dispatch waits: %v", err)
	})
}

// registered returns the WorkerCluster of the leaver.
func registered(t *testing.T) *v1alpha1.WorkerCluster {
	t.Helper()
	worker := &v1alpha1.WorkerCluster{}
	if err := y.Hub.Get(context.Background(), client.ObjectKey{Name: leaver}, worker); err != nil {
		t.Error(err)
	}
	return worker
}

// isReady waits until the manager uses the leaver.
func isReady(t *testing.T) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(meta.IsStatusConditionTrue(registered(t).Status.Conditions, v1alpha1.WorkerClusterReady)).To(gomega.BeTrue())
	})
}

// isOut fails the test if the hub has something of the leaver's registration.
func isOut(t *testing.T) {
	t.Helper()
	for name, object := range map[string]client.Object{
		leaver: &v1alpha1.WorkerCluster{}, leaver + "-kubeconfig": &corev1.Secret{},
	} {
		key := client.ObjectKey{Name: name}
		if _, ok := object.(*corev1.Secret); ok {
			key.Namespace = "trainyard-system"
		}
		if err := y.Hub.Get(t.Context(), key, object); !apierrors.IsNotFound(err) {
			t.Errorf("get %T %s: %v, want it gone", object, name, err)
		}
	}
}

// tokenOf returns a client of the leaver with the credentials that the hub has now.
func tokenOf(t *testing.T) kubernetes.Interface {
	t.Helper()
	secret := &corev1.Secret{}
	check.Must(t, y.Hub.Get(t.Context(), client.ObjectKey{Namespace: "trainyard-system", Name: leaver + "-kubeconfig"}, secret))
	config, err := clientcmd.RESTConfigFromKubeConfig(secret.Data["kubeconfig"])
	check.Must(t, err)
	c, err := kubernetes.NewForConfig(config)
	check.Must(t, err)
	_, err = c.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	check.Must(t, err)
	return c
}

func isRevoked(t *testing.T, token kubernetes.Interface) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) { // The API server remembers for some seconds that a token is valid.
		_, err := token.CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
		g.Expect(apierrors.IsUnauthorized(err)).To(gomega.BeTrue(), "the worker answers: %v", err)
	})
}
