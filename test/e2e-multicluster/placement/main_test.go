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
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// Three nodes with four GPUs, three with eight, and six with one: 42 in all.
const quads, octets, singles = "quads", "octets", "singles"

var y = yard.Suite{
	Options: yard.Options{
		Workers: []yard.Worker{
			worker(quads, yard.GPUNodes("quad", 3, 4, "NVIDIA-A10")),
			worker(octets, yard.GPUNodes("octet", 3, 8, "NVIDIA-H100")),
			worker(singles, yard.GPUNodes("single", 6, 1, "NVIDIA-L4")),
		},
		Lease:    yard.PatientLease,
		Progress: yard.Print,
	},
	Timeout: 5 * time.Minute, // for steps that bring hundreds of pods through four clusters on a busy machine
	Poll:    100 * time.Millisecond,
}

func TestMain(m *testing.M) { yard.Main(m, y.Start) }

func worker(name string, nodes clusters.NodeShape) yard.Worker {
	return yard.Worker{Name: name, Labels: map[string]string{"pool": name}, Nodes: []clusters.NodeShape{nodes}}
}

// namespace makes one for the jobs of a test. When the test ends it waits until nothing of them is left.
func namespace(t *testing.T, name string) string {
	t.Helper()
	object := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	check.Must(t, y.Hub.Create(t.Context(), object))
	t.Cleanup(func() {
		all := client.InNamespace(name)
		if err := y.Hub.DeleteAllOf(context.Background(), yard.Job{Namespace: name}.TrainJob(), all); err != nil {
			t.Error(err)
		}
		y.Eventually(t, func(g gomega.Gomega) {
			var left v1alpha1.DispatchList
			g.Expect(y.Hub.List(context.Background(), &left, all)).To(gomega.Succeed())
			g.Expect(left.Items).To(gomega.BeEmpty())
		})
	})
	return name
}
