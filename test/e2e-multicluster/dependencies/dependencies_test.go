// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package dependencies tests with whole processes, and the rights of config/, that what the pods of a job name comes to the
// worker and goes again.
package dependencies

import (
	"context"
	"errors"
	"path/filepath"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	west = "west"
	team = "vision"
)

var y = yard.Suite{
	Options: yard.Options{
		Workers:     []yard.Worker{{Name: west, Nodes: []clusters.NodeShape{yard.GPUNodes(west, 2, 8, "NVIDIA-H100")}}},
		ManagerArgs: []string{"--dependencies"},
		Progress:    yard.Print,
	},
	Timeout: 100 * time.Second,
	Poll:    100 * time.Millisecond,
}

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	if stop, err = y.Start(ctx); err != nil {
		return stop, err
	}
	root, err := clusters.ModuleDir(ctx, "github.com/trainyard/trainyard")
	return stop, errors.Join(err,
		y.Yard.Hub.ApplyKustomization(ctx, filepath.Join(root, "config/dependencies")),
		y.Yard.Workers[west].ApplyKustomization(ctx, filepath.Join(root, "config/worker-dependencies")),
		y.Hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}),
		y.Hub.Create(ctx, &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}, Spec: v1alpha1.DispatchPolicySpec{
			Propagate: &v1alpha1.Propagation{Dependencies: []v1alpha1.DependencyKind{v1alpha1.DependSecrets}},
		}}),
	)
}

// A job whose pods name a Secret that only the hub has runs on a worker, whose agent refuses pods without it. While it
// runs, the worker gets the new contents. When the job has gone, the Secret has too, and a Secret of the worker beside it
// stays as it is.
func TestSecretGoesWithItsJob(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "hf", Labels: map[string]string{v1alpha1.LabelPropagate: v1alpha1.PropagateYes}},
		StringData: map[string]string{"token": "one"},
	}
	check.Must(t, y.Hub.Create(t.Context(), secret))
	job := yard.Job{Namespace: team, Name: "job", GPUs: 1, RunFor: clusters.RunForever}.TrainJob()
	job.Spec.Trainer.Env = []corev1.EnvVar{{Name: "HF_TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "hf"}, Key: "token",
	}}}}
	check.Must(t, y.Hub.Create(t.Context(), job))
	worker := y.Workers[west]
	expectToken := func(token string) {
		t.Helper()
		y.Eventually(t, func(g gomega.Gomega) {
			onWorker := &corev1.Secret{}
			g.Expect(worker.Get(t.Context(), client.ObjectKeyFromObject(secret), onWorker)).To(gomega.Succeed())
			g.Expect(string(onWorker.Data["token"])).To(gomega.Equal(token))
		})
	}
	expectToken("one")
	y.Eventually(t, func(g gomega.Gomega) {
		copy := &trainer.TrainJob{}
		g.Expect(worker.Get(t.Context(), client.ObjectKeyFromObject(job), copy)).To(gomega.Succeed())
		g.Expect(y.DispatchOf(g, job).Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
	})
	foreign := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "foreign"}}
	check.Must(t, worker.Create(t.Context(), foreign))

	secret.StringData = map[string]string{"token": "two"}
	check.Must(t, y.Hub.Update(t.Context(), secret))
	expectToken("two")

	check.Must(t, y.Hub.Delete(t.Context(), job))
	y.Eventually(t, func(g gomega.Gomega) {
		err := worker.Get(t.Context(), client.ObjectKeyFromObject(secret), &corev1.Secret{})
		g.Expect(apierrors.IsNotFound(err)).To(gomega.BeTrue(), "the worker still has the Secret: %v", err)
		registered := &v1alpha1.WorkerCluster{}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKey{Name: west}, registered)).To(gomega.Succeed())
		g.Expect(registered.Status.Dependencies).To(gomega.BeEmpty())
	})
	version := foreign.ResourceVersion
	check.Must(t, worker.Get(t.Context(), client.ObjectKeyFromObject(foreign), foreign))
	check.Equal(t, version, foreign.ResourceVersion, "the version of the foreign Secret")
}

// needing returns a job whose pods name the Secret hf.
func needing(name string) *trainer.TrainJob {
	job := yard.Job{Namespace: team, Name: name, GPUs: 1, RunFor: clusters.RunForever}.TrainJob()
	job.Spec.Trainer.Env = []corev1.EnvVar{{Name: "HF_TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
		LocalObjectReference: corev1.LocalObjectReference{Name: "hf"}, Key: "token",
	}}}}
	return job
}

// hasSecret waits until the worker has the Secret hf, or has it no more.
func hasSecret(t *testing.T, want bool) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		err := y.Workers[west].Get(t.Context(), client.ObjectKey{Namespace: team, Name: "hf"}, &corev1.Secret{})
		g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
		g.Expect(err == nil).To(gomega.Equal(want), "whether the worker has the Secret")
	})
}

// The policy is taken back while a job runs: the job keeps its Secret, and the next one is told that the worker lacks it. Then
// the worker leaves, as soon as it has no job any more, and nothing that was brought is left there.
func TestPolicyIsTakenBackAndTheWorkerLeaves(t *testing.T) {
	secret := &corev1.Secret{
		ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: "hf", Labels: map[string]string{v1alpha1.LabelPropagate: v1alpha1.PropagateYes}},
		StringData: map[string]string{"token": "one"},
	}
	check.Must(t, client.IgnoreAlreadyExists(y.Hub.Create(t.Context(), secret)))
	runs := func(job *trainer.TrainJob) {
		t.Helper()
		check.Must(t, y.Hub.Create(t.Context(), job))
		y.Eventually(t, func(g gomega.Gomega) {
			g.Expect(y.DispatchOf(g, job).Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
		})
	}
	first := needing("taken-first")
	runs(first)
	policy := func(kinds ...v1alpha1.DependencyKind) {
		t.Helper()
		p := &v1alpha1.DispatchPolicy{}
		check.Must(t, y.Hub.Get(t.Context(), client.ObjectKey{Name: "all"}, p))
		p.Spec.Propagate.Dependencies = kinds
		check.Must(t, y.Hub.Update(t.Context(), p))
	}
	policy()
	second := needing("taken-second")
	check.Must(t, y.Hub.Create(t.Context(), second))
	// The Secret is there for the first job, and the second one may use it: what goes with the first is not the second's.
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, second)
		g.Expect(d.Spec.Cluster).NotTo(gomega.BeEmpty())
		g.Expect(d.Spec.Dependencies).To(gomega.BeEmpty())
	})
	hasSecret(t, true)
	check.Must(t, y.Hub.Delete(t.Context(), second))
	check.Must(t, y.Hub.Delete(t.Context(), first))
	hasSecret(t, false)
	third := needing("taken-third")
	check.Must(t, y.Hub.Create(t.Context(), third))
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.DispatchOf(g, third).Status.Explanation).To(gomega.ContainElement(gomega.And(
			gomega.HaveField("Cluster", v1alpha1.ClusterName(west)), gomega.HaveField("Message", gomega.ContainSubstring("hf")))))
	})
	check.Must(t, y.Hub.Delete(t.Context(), third))

	policy(v1alpha1.DependSecrets)
	fourth := needing("taken-fourth")
	runs(fourth)
	hasSecret(t, true)
	check.Must(t, y.Hub.Delete(t.Context(), fourth))
	y.Eventually(t, func(g gomega.Gomega) {
		out, err := y.PluginCommand(t.Context(), "leave", west, "--kubeconfig", y.Yard.Workers[west].KubeconfigPath,
			"--hub-kubeconfig", y.Yard.Hub.KubeconfigPath).CombinedOutput()
		g.Expect(err).To(gomega.Succeed(), "%s", out)
		g.Expect(string(out)).NotTo(gomega.ContainSubstring("secrets that this hub created"))
	})
	hasSecret(t, false)
}
