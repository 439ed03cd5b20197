// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package leaving tests how a worker leaves the fleet, with whole processes: "kubectl trainyard leave" while jobs run,
// for a worker that answers, a worker that does not answer, and a worker of two hubs.
package leaving

import (
	"context"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// leaver leaves, and stayer takes its jobs.
const leaver, stayer = "leaver", "stayer"

var y = yard.Suite{
	Options: yard.Options{
		Workers: []yard.Worker{
			{Name: leaver, Nodes: []clusters.NodeShape{yard.GPUNodes("leaver", 2, 8, "NVIDIA-H100")}},
			{Name: stayer, Nodes: []clusters.NodeShape{yard.GPUNodes("stayer", 2, 8, "NVIDIA-H100")}},
		},
		Audit:    true,
		Progress: yard.Print,
	},
	Timeout: 3 * time.Minute, // for conditions that come in seconds on an idle machine
	Poll:    100 * time.Millisecond,
}

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	if clusters.OnKind() {
		return nil, nil
	}
	return y.Start(ctx)
}

// outcome are the outputs and the exit code of a command.
type outcome struct {
	out, err string
	code     int
}

// leave runs "kubectl trainyard leave" for the leaver.
func leave(ctx context.Context, t *testing.T, flags ...string) outcome {
	t.Helper()
	var out, errOut strings.Builder
	command := y.PluginCommand(ctx, append([]string{"leave", leaver}, flags...)...)
	command.Stdout, command.Stderr = &out, &errOut
	_ = command.Run() // The exit code is judged by the caller.
	t.Logf("leave %s ends with %d:\n%s%s", strings.Join(flags, " "), command.ProcessState.ExitCode(), &out, &errOut)
	return outcome{out.String(), errOut.String(), command.ProcessState.ExitCode()}
}

// onHub names only the hub to leave, and onBoth the worker too.
func onHub(flags ...string) []string { return append(flags, "--kubeconfig", y.Yard.Hub.KubeconfigPath) }

func onBoth(flags ...string) []string {
	return append(flags, "--kubeconfig", y.Yard.Workers[leaver].KubeconfigPath, "--hub-kubeconfig", y.Yard.Hub.KubeconfigPath)
}

// expect fails the test unless the command has ended with the code, and has printed the words.
func (o outcome) expect(t *testing.T, code int, words ...string) {
	t.Helper()
	if o.code != code {
		t.Fatalf("the exit code is %d, want %d", o.code, code)
	}
	for _, word := range words {
		if !strings.Contains(o.out+o.err, word) {
			t.Errorf("leave does not say %q", word)
		}
	}
}

// join registers the leaver with the plugin, if it is not registered so.
func join(t *testing.T) {
	t.Helper()
	check.Must(t, y.Join(t.Context(), leaver))
}

// onLeaver creates jobs that run on the leaver until finish.
func onLeaver(t *testing.T, names ...string) []*trainer.TrainJob {
	t.Helper()
	y.Edit(t, stayer, func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = true })
	var jobs []*trainer.TrainJob
	for _, name := range names {
		job := yard.Job{Name: name, GPUs: 1, RunFor: clusters.RunForever}.TrainJob()
		check.Must(t, y.Hub.Create(t.Context(), job))
		t.Cleanup(func() { check.Must(t, client.IgnoreNotFound(y.Hub.Delete(context.Background(), job))) })
		jobs = append(jobs, job)
	}
	for _, job := range jobs {
		runsOn(t, leaver, job, 1)
	}
	y.Edit(t, stayer, func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = false })
	return jobs
}

// runsOn waits until an attempt of a job runs on a worker. The Dispatch says so ten seconds later.
func runsOn(t *testing.T, worker string, job *trainer.TrainJob, attempt int32) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, job)
		g.Expect(d.Spec.Cluster).To(gomega.BeEquivalentTo(worker))
		g.Expect(d.Spec.Attempt).To(gomega.Equal(attempt))
		g.Expect(y.PodsOf(g, worker, job)).To(gomega.ContainElement(gomega.HaveField("Status.Phase", corev1.PodRunning)))
	})
}

// finish lets the pods of a job on a worker succeed, and waits until the hub says that the job is complete.
func finish(t *testing.T, worker string, job *trainer.TrainJob) {
	t.Helper()
	patch := []byte(`{"status":{"phase":"Succeeded"}}`)
	y.Eventually(t, func(g gomega.Gomega) {
		for _, pod := range y.PodsOf(g, worker, job) {
			err := y.Workers[worker].Status().Patch(t.Context(), &pod, client.RawPatch(types.MergePatchType, patch))
			g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
		}
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue())
	})
}

func hubID(t *testing.T, c client.Reader) string {
	t.Helper()
	namespace := &corev1.Namespace{}
	check.Must(t, c.Get(t.Context(), client.ObjectKey{Name: metav1.NamespaceSystem}, namespace))
	return string(namespace.UID)
}

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
	check.Equal(t, 1, y.DispatchOf(gomega.NewWithT(t), running).Spec.Attempt,
		"how often the job of the other hub was placed")
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
