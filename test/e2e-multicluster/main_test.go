// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package e2e tests Trainyard as whole processes: a hub and two workers with real API servers, controller managers,
// schedulers, JobSet and kwok, the manager, and a worker-agent on each cluster, all with the RBAC of config/.
package e2e

import (
	"context"
	"os"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// small has 4 nodes with 4 GPUs, large 2 nodes with 8.
const small, large = "small", "large"

// y is the yard of all tests. They use jobs and namespaces of their own.
var y = yard.Suite{
	Options: yard.Options{
		Dir:      os.Getenv("E2E_DIR"),
		HubNodes: []clusters.NodeShape{{Count: 1, NamePrefix: "cpu"}},
		Workers: []yard.Worker{
			{Name: small, Labels: map[string]string{"size": small}, Nodes: []clusters.NodeShape{yard.GPUNodes("small", 4, 4, "NVIDIA-A10")}},
			{Name: large, Labels: map[string]string{"size": large}, Nodes: []clusters.NodeShape{yard.GPUNodes("large", 2, 8, "NVIDIA-H100")}},
		},
		Audit:    true,
		Gateway:  true,
		Progress: yard.Print,
	},
	Timeout: 2 * time.Minute, // for conditions that come in seconds on an idle machine
	Poll:    50 * time.Millisecond,
}

func TestMain(m *testing.M) {
	if clusters.OnKind() {
		y.Timeout = 8 * time.Minute // The leases of manager and agents last a minute, and kubelets take time.
	}
	yard.Main(m, y.Start)
}

// submit creates a job on the hub. When the test ends, the job and everything that was made for it are deleted.
func submit(t *testing.T, job yard.Job) *trainer.TrainJob {
	t.Helper()
	created := job.TrainJob()
	if err := y.Hub.Create(t.Context(), created); err != nil {
		t.Fatalf("create TrainJob: %v", err)
	}
	t.Cleanup(func() {
		check.Equal(t, nil, client.IgnoreNotFound(y.Hub.Delete(context.Background(), job.TrainJob())),
			"delete TrainJob")
		y.Eventually(t, func(g gomega.Gomega) {
			err := y.Hub.Get(context.Background(), client.ObjectKeyFromObject(created), &v1alpha1.Dispatch{})
			g.Expect(client.IgnoreNotFound(err)).To(gomega.Succeed())
			g.Expect(err).To(gomega.HaveOccurred(), "the Dispatch is still there")
		})
	})
	return created
}

// current reads an object again.
func current[T client.Object](ctx context.Context, g gomega.Gomega, c client.Reader, object T) T {
	g.Expect(c.Get(ctx, client.ObjectKeyFromObject(object), object)).To(gomega.Succeed())
	return object
}

// ends waits until the hub's job has ended, and returns it.
func ends(t *testing.T, job *trainer.TrainJob, kind string) *trainer.TrainJob {
	t.Helper()
	last := job.DeepCopy()
	y.Eventually(t, func(g gomega.Gomega) {
		current(t.Context(), g, y.Hub, last)
		g.Expect(meta.IsStatusConditionTrue(last.Status.Conditions, kind)).To(gomega.BeTrue(), "conditions: %v", last.Status.Conditions)
	})
	return last
}

// placedOn waits until the job has a worker, and returns its name.
func placedOn(t *testing.T, job *trainer.TrainJob) string {
	t.Helper()
	var worker v1alpha1.ClusterName
	y.Eventually(t, func(g gomega.Gomega) {
		worker = y.DispatchOf(g, job).Spec.Cluster
		g.Expect(worker).NotTo(gomega.BeEmpty())
	})
	return string(worker)
}

// waitsFor waits until the job waits for a reason, and returns its Dispatch.
func waitsFor(t *testing.T, job *trainer.TrainJob, reason string) *v1alpha1.Dispatch {
	t.Helper()
	var d *v1alpha1.Dispatch
	y.Eventually(t, func(g gomega.Gomega) {
		d = y.DispatchOf(g, job)
		placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
		g.Expect(placed).NotTo(gomega.BeNil())
		g.Expect(placed.Status).To(gomega.Equal(metav1.ConditionFalse))
		g.Expect(placed.Reason).To(gomega.Equal(reason), placed.Message)
	})
	return d
}

// expectNone fails unless no object of the list's kind has the job's name, now. The caller has made sure that it would
// be there.
func expectNone(t *testing.T, c client.Reader, object client.Object, key client.ObjectKey) {
	t.Helper()
	if err := c.Get(t.Context(), key, object); client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	} else if err == nil {
		t.Errorf("there is a %T %s, and there should be none", object, key)
	}
}

// edit changes an object until no other write comes between.
func edit[T client.Object](ctx context.Context, t *testing.T, c client.Client, object T, change func(T)) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		change(current(ctx, g, c, object))
		g.Expect(c.Update(ctx, object)).To(gomega.Succeed())
	})
}
