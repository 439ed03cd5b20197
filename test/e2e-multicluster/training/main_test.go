// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package training tests a real distributed training on clusters of kind: real kubelets, containers and networks, and
// our images as Deployments. Worker "east" has two nodes, worker "west" has one. All nodes of workers have one folder
// of this machine for checkpoints, which stands for storage that both workers reach.
package training

import (
	"context"
	"errors"
	"fmt"
	"os"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	east = "east"
	west = "west"

	trainImage = "trainyard/ring-train:latest"
	// onNodes is the path of the checkpoints in test/training/ring-train.yaml.
	onNodes = "/var/lib/ring-train"

	// timeout is for one step of a test on a busy machine. A training that nobody disturbs takes a minute.
	timeout = 10 * time.Minute
	poll    = 250 * time.Millisecond
)

var (
	y           *yard.Yard
	hub         client.WithWatch
	workers     map[string]client.WithWatch
	checkpoints string
)

func TestMain(m *testing.M) {
	if !clusters.OnKind() {
		fmt.Println("skipped: a real training needs TRAINYARD_CLUSTERS=kind (make test-kind)")
		return
	}
	yard.Main(m, start)
}

func start(ctx context.Context) (stop func() error, err error) {
	if checkpoints, err = os.MkdirTemp("", "trainyard-checkpoints-"); err != nil {
		return nil, err
	}
	stop = func() error { return os.RemoveAll(checkpoints) }
	y, err = yard.Start(ctx, yard.Options{
		Dir:         os.Getenv("E2E_DIR"),
		Workers:     []yard.Worker{{Name: east}, {Name: west}},
		KindWorkers: map[string]int{east: 1},
		KindMounts:  map[string]string{checkpoints: onNodes},
		KindImages:  []string{trainImage},
		Progress:    yard.Print,
	})
	if err != nil {
		return stop, err
	}
	stop = func() error { return errors.Join(y.Stop(), os.RemoveAll(checkpoints)) }
	hub, workers, err = y.Clients()
	return stop, err
}

func eventually(t *testing.T, check func(g gomega.Gomega)) {
	t.Helper()
	gomega.NewWithT(t).Eventually(check).WithTimeout(timeout).WithPolling(poll).Should(gomega.Succeed())
}

// placedOn waits until the copy of the job is on the worker.
func placedOn(t *testing.T, job *trainer.TrainJob, worker string) {
	t.Helper()
	eventually(t, func(g gomega.Gomega) {
		d := &v1alpha1.Dispatch{}
		g.Expect(hub.Get(t.Context(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
		g.Expect(string(d.Spec.Cluster)).To(gomega.Equal(worker))
	})
}

// cordon says whether a worker gets new jobs.
func cordon(t *testing.T, name string, unschedulable bool) {
	t.Helper()
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, unschedulable)
	worker := &v1alpha1.WorkerCluster{}
	worker.Name = name
	if err := hub.Patch(t.Context(), worker, client.RawPatch("application/merge-patch+json", patch)); err != nil {
		t.Fatal(err)
	}
}
