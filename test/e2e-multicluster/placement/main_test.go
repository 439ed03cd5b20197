// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package placement tests where and in which order jobs are placed, with whole processes: a hub and three workers whose
// schedulers say whether a worker was given more than it holds.
package placement

import (
	"context"
	"testing"
	"time"

	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	// Ten nodes with four GPUs, five with eight, and twenty with one: a hundred in all.
	quads, octets, singles = "quads", "octets", "singles"

	// timeout limits steps that bring hundreds of pods through four clusters on a busy machine.
	timeout = 5 * time.Minute
	poll    = 100 * time.Millisecond
)

var (
	hub     client.WithWatch
	workers map[string]client.WithWatch
)

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	y, err := yard.Start(ctx, yard.Options{
		Workers: []yard.Worker{
			worker(quads, yard.GPUNodes("quad", 10, 4, "NVIDIA-A10")),
			worker(octets, yard.GPUNodes("octet", 5, 8, "NVIDIA-H100")),
			worker(singles, yard.GPUNodes("single", 20, 1, "NVIDIA-L4")),
		},
		Progress: yard.Print,
	})
	if err != nil {
		return nil, err
	}
	if hub, workers, err = y.Clients(); err != nil {
		return y.Stop, err
	}
	return y.Stop, yard.InstallRuntimes(ctx, y.Hub)
}

func worker(name string, nodes clusters.NodeShape) yard.Worker {
	return yard.Worker{Name: name, Labels: map[string]string{"pool": name}, Nodes: []clusters.NodeShape{nodes}}
}

func eventually(t *testing.T, check func(g gomega.Gomega)) {
	t.Helper()
	gomega.NewWithT(t).Eventually(check).WithTimeout(timeout).WithPolling(poll).Should(gomega.Succeed())
}

// namespace makes one for the jobs of a test. When the test ends it waits until nothing of them is left.
func namespace(t *testing.T, name string) string {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if err := hub.Create(t.Context(), object); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		all := client.InNamespace(name)
		if err := hub.DeleteAllOf(context.Background(), yard.Job{Namespace: name}.TrainJob(), all); err != nil {
			t.Error(err)
		}
		eventually(t, func(g gomega.Gomega) {
			var left v1alpha1.DispatchList
			g.Expect(hub.List(context.Background(), &left, all)).To(gomega.Succeed())
			g.Expect(left.Items).To(gomega.BeEmpty())
		})
	})
	return name
}
