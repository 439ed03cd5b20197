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

	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	east = "east"
	west = "west"

	trainImage = "trainyard/toy-train:latest"
	// onNodes is the path of the checkpoints in test/training/toy-train.yaml.
	onNodes = "/var/lib/toy-train"
)

var (
	y = yard.Suite{
		Timeout: 10 * time.Minute, // for one step of a test on a busy machine; a training that nobody disturbs takes a minute
		Poll:    250 * time.Millisecond,
	}
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
	y.Yard, err = yard.Start(ctx, yard.Options{
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
	y.Hub, y.Workers, err = y.Clients()
	return stop, err
}

// placedOn waits until the copy of the job is on the worker.
func placedOn(t *testing.T, job *trainer.TrainJob, worker string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(string(y.DispatchOf(g, job).Spec.Cluster)).To(gomega.Equal(worker))
	})
}
