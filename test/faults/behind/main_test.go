// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package behind

import (
	"context"
	"errors"
	"flag"
	"os"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/test/faults/world"
	"github.com/trainyard/trainyard/test/kueue"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	// west has a Kueue. south has none: jobs go there when they leave west.
	west, south = "west", "south"
	// queue is the LocalQueue of west, and its ClusterQueue.
	queue = "main"
	// fenceAfter of west gives an agent on a busy machine the time to end pods without deleting their copy, and a Kueue there
	// the time to resume the copy before.
	fenceAfter = 4 * world.FenceAfter

	poll = 50 * time.Millisecond
)

// timeout is for conditions that come in seconds on an idle machine.
var timeout time.Duration

func init() {
	flag.DurationVar(&timeout, "patience", 3*time.Minute, "How long to wait for a condition that should come in seconds.")
}

var (
	w *world.World
	// behind is the Kueue of west.
	behind *kueue.Manager
)

func TestMain(m *testing.M) { yard.Main(m, start) }

func start(ctx context.Context) (stop func() error, err error) {
	w, err = world.Start(ctx, world.Options{
		Timeout: timeout, Poll: poll,
		Dir: os.Getenv("FAULTS_DIR"), Workers: []string{west, south},
		FenceAfter: map[string]time.Duration{west: fenceAfter, south: time.Minute},
		// No test ends the manager, which would end by itself if it could not renew its lease on a busy machine.
		ManagerArgs: []string{"--leader-elect=false"}, Progress: yard.Print,
	})
	if err != nil {
		return nil, err
	}
	yard.Print("starting Kueue on %s", west)
	return w.Stop, startKueue(ctx)
}

// integrations are the integrations whose kinds a worker has.
func integrations() map[string]any {
	return map[string]any{"integrations": map[string]any{
		"frameworks": []any{"batch/job", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"},
	}}
}

// startKueue starts the Kueue of west with one queue, which is never full.
func startKueue(ctx context.Context) error {
	behind = kueue.New(w.Yard.Workers[west], w.Workers[west], integrations())
	if err := errors.Join(behind.Install(ctx), behind.Start(ctx)); err != nil {
		return err
	}
	cluster, local := kueue.Object("ClusterQueue", "", queue), kueue.Object("LocalQueue", metav1.NamespaceDefault, queue)
	cluster.Object["spec"] = map[string]any{
		"namespaceSelector": map[string]any{},
		"resourceGroups": []any{map[string]any{
			"coveredResources": []any{"cpu", "nvidia.com/gpu"},
			"flavors": []any{map[string]any{"name": "default", "resources": []any{
				map[string]any{"name": "cpu", "nominalQuota": "1000"},
				map[string]any{"name": "nvidia.com/gpu", "nominalQuota": "1000"},
			}}},
		}},
	}
	local.Object["spec"] = map[string]any{"clusterQueue": queue}
	if err := behind.Apply(ctx, kueue.Object("ResourceFlavor", "", "default"), cluster, local); err != nil {
		return err
	}
	return behind.Active(ctx, "ClusterQueue")
}
