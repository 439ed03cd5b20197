// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package benchmark_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/fakeservers"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/stage"
)

const (
	managerNamespace = "trainyard-system"
	// waitLimit is for what takes seconds, on a machine that may be busy.
	waitLimit = 5 * time.Minute
	tick      = 50 * time.Millisecond
)

// bench is a hub with a manager and fake workers.
type bench struct {
	hub   client.WithWatch
	fleet *fakeservers.Fleet

	mu     sync.Mutex
	copies map[types.NamespacedName]copied // Under mu: the first copy of each job.
}

// copied says where and when the copy of a job was created.
type copied struct {
	worker string
	at     time.Time
}

// newBench starts all, and returns when the workers are Ready.
func newBench(b *testing.B, workers int) *bench {
	b.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), waitLimit)
	defer cancel()
	set, err := stage.Start(ctx)
	if err != nil {
		b.Fatalf("benchmarks need a real API server (make controlplane builds it): %v", err)
	}
	b.Cleanup(func() { check.Must(b, set.Stop()) })
	check.Must(b, set.Hub.InstallRuntime(ctx))
	y := &bench{hub: set.Hub.Admin, copies: map[types.NamespacedName]copied{}}
	y.fleet, err = fakeservers.Start(fakeservers.Options{Workers: workers, Nodes: 10, GPUs: 8, RunFor: time.Second, Created: y.created})
	check.Must(b, err)
	b.Cleanup(func() { check.Must(b, y.fleet.Close()) })
	check.Must(b, y.hub.Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: managerNamespace}}))
	// Jobs are spread, or one worker would get them all. Their copies are deleted as soon as they have ended.
	check.Must(b, y.hub.Create(ctx, &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "spread"},
		Spec: v1alpha1.DispatchPolicySpec{
			Scoring: []v1alpha1.Score{{Name: v1alpha1.ScoreLeastAllocated}}, Retention: &metav1.Duration{},
		},
	}))
	y.register(ctx, b)
	manager, err := clusters.Build(ctx, "manager")
	check.Must(b, err)
	_, err = set.Hub.Cluster.Run(ctx, "manager", manager, "--kubeconfig="+set.Hub.Cluster.KubeconfigPath, "--namespace="+managerNamespace,
		"--health-probe-bind-address=0", "--metrics-bind-address=0", "--worker-probe-interval=1s")
	check.Must(b, err)
	y.awaitReady(b)
	return y
}

func (y *bench) register(ctx context.Context, b *testing.B) {
	b.Helper()
	dir := b.TempDir()
	for _, worker := range y.fleet.Workers {
		kubeconfig, err := worker.Kubeconfig()
		check.Must(b, err)
		path := filepath.Join(dir, worker.Name)
		check.Must(b, os.WriteFile(path, kubeconfig, 0o600))
		check.Must(b, y.hub.Create(ctx, &v1alpha1.WorkerCluster{
			ObjectMeta: metav1.ObjectMeta{Name: worker.Name},
			Spec:       v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: path}},
		}))
	}
}

// awaitReady waits until all workers are Ready.
func (y *bench) awaitReady(b *testing.B) {
	b.Helper()
	eventually(b, "all workers to be Ready", func(g gomega.Gomega) {
		var list v1alpha1.WorkerClusterList
		g.Expect(y.hub.List(context.Background(), &list)).To(gomega.Succeed())
		g.Expect(list.Items).To(gomega.HaveLen(len(y.fleet.Workers)))
		for i := range list.Items {
			ready := meta.FindStatusCondition(list.Items[i].Status.Conditions, v1alpha1.WorkerClusterReady)
			g.Expect(ready).NotTo(gomega.BeNil(), list.Items[i].Name)
			g.Expect(ready.Status).To(gomega.Equal(metav1.ConditionTrue), "%s: %s %s", list.Items[i].Name, ready.Reason, ready.Message)
		}
	})
}

// awaitUnreachable waits until the hub knows that a worker does not answer.
func (y *bench) awaitUnreachable(b *testing.B, name string) {
	b.Helper()
	eventually(b, name+" to be Unreachable", func(g gomega.Gomega) {
		worker := &v1alpha1.WorkerCluster{}
		g.Expect(y.hub.Get(context.Background(), types.NamespacedName{Name: name}, worker)).To(gomega.Succeed())
		ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
		g.Expect(ready).NotTo(gomega.BeNil())
		g.Expect(ready.Reason).To(gomega.Equal(v1alpha1.ReasonUnreachable))
	})
}

var eventually = check.Within(waitLimit, tick)

func (y *bench) created(worker *fakeservers.Worker, job types.NamespacedName, at time.Time) {
	y.mu.Lock()
	defer y.mu.Unlock()
	if _, again := y.copies[job]; !again {
		y.copies[job] = copied{worker: worker.Name, at: at}
	}
}

func (y *bench) copyOf(job types.NamespacedName) (copied, bool) {
	y.mu.Lock()
	defer y.mu.Unlock()
	c, ok := y.copies[job]
	return c, ok
}

// namespace makes one for the jobs of a phase.
func (y *bench) namespace(b *testing.B, number int) string {
	b.Helper()
	name := fmt.Sprintf("phase-%d", number)
	check.Must(b, y.hub.Create(context.Background(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}))
	return name
}
