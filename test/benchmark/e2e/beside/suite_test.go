// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/kueue"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/trainyard"
	"github.com/trainyard/trainyard/test/yard"
)

const (
	// startLimit is for all processes together, and patience for what takes seconds, on a machine that may be busy.
	startLimit, patience = 10 * time.Minute, 5 * time.Minute
	poll                 = 50 * time.Millisecond
)

// hub has a Kueue, whose MultiKueue has one worker, and a Trainyard, which has the same or another worker.
type hub struct {
	client.Client
	cluster *fleet.Cluster
	// kueues and ours are the workers.
	kueues, ours *worker
	// queue is a LocalQueue of MultiKueue.
	queue string
}

// worker is a cluster that takes jobs.
type worker struct {
	client.WithWatch
	name    string
	cluster *fleet.Cluster
}

// newHub starts all, and stops it when the test ends. MultiKueue has the first of two workers, which has a Kueue of its
// own. ours is Trainyard's worker. tune changes how the Kueues are configured.
func newHub(t *testing.T, ours int, tune ...func(*kueue.Tuning)) *hub {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	took := stopwatch(t)
	all, err := fleet.Start(ctx, fleet.Options{Workers: 2, Audit: true})
	check(t, err)
	t.Cleanup(func() { check(t, all.Stop()) })
	took("start of the API servers")
	tuning := kueue.Tuning{Groups: 1, Integrations: kueue.Tuned().Integrations}
	for _, change := range tune {
		change(&tuning)
	}
	k := kueue.New(&fleet.Fleet{Hub: all.Hub, Workers: all.Workers[:1]}, tuning)
	check(t, k.Install(ctx))
	check(t, k.Start(ctx))
	check(t, k.Connected(ctx))
	took("start of Kueue")
	path, err := all.Workers[ours].WriteKubeconfig()
	check(t, err)
	y := trainyard.New(all.Hub, []trainyard.Worker{{Name: all.Workers[ours].Name, Kubeconfig: path}}, trainyard.Options{Args: []string{"--v=1"}})
	check(t, y.Install(ctx))
	check(t, y.Start(ctx))
	check(t, y.Connected(ctx))
	took("start of Trainyard")
	return &hub{
		Client: all.Hub.Admin, cluster: all.Hub, queue: k.Labels()[0]["kueue.x-k8s.io/queue-name"],
		kueues: newWorker(all.Workers[0]), ours: newWorker(all.Workers[ours]),
	}
}

// stopwatch returns a function that logs the time since its last call.
func stopwatch(t *testing.T) func(what string) {
	last := time.Now()
	return func(what string) {
		t.Helper()
		t.Logf("%s: %v", what, time.Since(last).Round(100*time.Millisecond))
		last = time.Now()
	}
}

func newWorker(cluster *fleet.Cluster) *worker {
	return &worker{WithWatch: cluster.Admin, name: cluster.Name, cluster: cluster}
}

// created is how many copies of a job the worker was ever given.
func (w *worker) created(t *testing.T, job string) int {
	t.Helper()
	return creations(t, w.cluster, "trainjobs", job)
}

// creations is how many objects of a name a cluster was ever given, by its audit log.
func creations(t *testing.T, cluster *fleet.Cluster, resource, name string) (count int) {
	t.Helper()
	log, err := os.ReadFile(cluster.Cluster.AuditLog())
	check(t, err)
	for line := range bytes.Lines(log) {
		var event struct {
			Verb           string
			ObjectRef      struct{ Resource, Namespace, Name, Subresource string }
			ResponseStatus struct{ Code int }
			RequestURI     string
		}
		if !bytes.HasSuffix(line, []byte("\n")) {
			break // It is being written.
		}
		check(t, json.Unmarshal(line, &event))
		ref := event.ObjectRef
		if event.Verb == "create" && event.ResponseStatus.Code == http.StatusCreated && ref.Resource == resource && ref.Subresource == "" &&
			ref.Name == name && !strings.Contains(event.RequestURI, "dryRun") {
			count++
		}
	}
	return count
}

// gets waits until the worker has a copy of a job.
func (w *worker) gets(t *testing.T, job string) {
	t.Helper()
	await(t, "have a copy of "+job+" on "+w.name, func(ctx context.Context) error {
		return w.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: job}, trainjobs.New())
	})
}

// submit creates a TrainJob, in a queue of Kueue unless it is empty.
func (h *hub) submit(t *testing.T, name, queue string) {
	t.Helper()
	job := yard.Job{Namespace: fleet.Namespace, Name: name, GPUs: 1}.TrainJob()
	if queue != "" {
		job.Labels = map[string]string{"kueue.x-k8s.io/queue-name": queue}
	}
	await(t, "create job "+name, func(ctx context.Context) error { return h.Create(ctx, job.DeepCopy()) })
}

// cordon says whether Trainyard may give jobs to a worker.
func (h *hub) cordon(t *testing.T, worker string, cordoned bool) {
	t.Helper()
	object := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: worker}}
	check(t, h.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned))))
}

// resumed waits until Kueue has resumed a job.
func (h *hub) resumed(t *testing.T, name string) {
	t.Helper()
	await(t, "have Kueue resume job "+name, func(ctx context.Context) error {
		job := trainjobs.New()
		if err := h.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: name}, job); err != nil {
			return err
		}
		if trainjobs.Suspended(job) {
			return errors.New("it is suspended")
		}
		return nil
	})
}

// waits waits until the Dispatch of a job names no worker, for a reason.
func (h *hub) waits(t *testing.T, name, reason string) {
	t.Helper()
	await(t, "have the Dispatch of "+name+" say "+reason, func(ctx context.Context) error {
		d := &v1alpha1.Dispatch{}
		if err := h.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: name}, d); err != nil {
			return err
		}
		placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
		if d.Spec.Cluster != "" || placed == nil || placed.Reason != reason {
			return fmt.Errorf("it is on %q: %+v", d.Spec.Cluster, placed)
		}
		return nil
	})
}

func await(t *testing.T, what string, probe func(ctx context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		err := probe(ctx)
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("wait to %s: %v", what, err)
		case <-time.After(poll):
		}
	}
}

func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
