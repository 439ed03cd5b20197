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
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/kueue"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/trainyard"
	"github.com/trainyard/trainyard/test/check"
	objects "github.com/trainyard/trainyard/test/kueue"
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
	check.Must(t, err)
	t.Cleanup(func() { check.Must(t, all.Stop()) })
	took("start of the API servers")
	tuning := kueue.Tuning{Groups: 1, Integrations: kueue.Tuned().Integrations}
	for _, change := range tune {
		change(&tuning)
	}
	k := kueue.New(&fleet.Fleet{Hub: all.Hub, Workers: all.Workers[:1]}, tuning)
	check.Must(t, k.Install(ctx))
	check.Must(t, k.Start(ctx))
	check.Must(t, k.Connected(ctx))
	took("start of Kueue")
	path, err := all.Workers[ours].WriteKubeconfig()
	check.Must(t, err)
	y := trainyard.New(all.Hub, []trainyard.Worker{{Name: all.Workers[ours].Name, Kubeconfig: path}}, trainyard.Options{Args: []string{"--v=1"}})
	check.Must(t, y.Install(ctx))
	check.Must(t, y.Start(ctx))
	check.Must(t, y.Connected(ctx))
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
	check.Must(t, err)
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
		check.Must(t, json.Unmarshal(line, &event))
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
	check.Must(t, h.Patch(t.Context(), object, client.RawPatch("application/merge-patch+json", fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned))))
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

// A job has one dispatcher, whatever the hub's Kueue does with it.
func TestOneDispatcher(t *testing.T) {
	h := newHub(t, 1)
	t.Run("MultiKueue", func(t *testing.T) {
		h.submit(t, "theirs", h.queue)
		h.kueues.gets(t, "theirs")
		h.resumed(t, "theirs")
		h.waits(t, "theirs", v1alpha1.ReasonManagedByMultiKueue)
		h.submit(t, "plain", "") // It comes later, and is placed: the manager has looked at the other.
		h.ours.gets(t, "plain")
		if theirs, ours := h.kueues.created(t, "theirs"), h.ours.created(t, "theirs"); theirs != 1 || ours != 0 {
			t.Errorf("MultiKueue's worker was given %d copies of a job that MultiKueue dispatches, and our worker %d", theirs, ours)
		}
	})
	t.Run("Gate", func(t *testing.T) {
		h.createQueue(t, "gate")
		h.submit(t, "gated", "gate")
		h.ours.gets(t, "gated")
		if got := h.kueues.created(t, "gated"); got != 0 {
			t.Errorf("MultiKueue's worker was given %d copies of a job in a queue without its check", got)
		}
	})
	// The queue of a job that runs here gets the check. MultiKueue makes a copy of the job, so our copy is deleted.
	t.Run("CheckComesLater", func(t *testing.T) {
		h.addCheck(t, "gate")
		h.kueues.gets(t, "gated")
		await(t, "have our copy deleted", func(ctx context.Context) error { return h.collected(ctx, h.ours, "gated") })
		h.waits(t, "gated", v1alpha1.ReasonManagedByMultiKueue)
		if got := h.ours.created(t, "gated"); got != 1 {
			t.Errorf("our worker was given %d copies of the job, want only the first", got)
		}
	})
}

var kueueObject, isTrue = objects.Object, objects.IsTrue

// createQueue creates a ClusterQueue like MultiKueue's, but without admission checks, and its LocalQueue.
func (h *hub) createQueue(t *testing.T, name string) {
	t.Helper()
	model := kueueObject("ClusterQueue", "", h.queue)
	check.Must(t, h.Get(t.Context(), client.ObjectKeyFromObject(model), model))
	cluster, local := kueueObject("ClusterQueue", "", name), kueueObject("LocalQueue", fleet.Namespace, name)
	spec := model.Object["spec"].(map[string]any)
	delete(spec, "admissionChecksStrategy")
	cluster.Object["spec"], local.Object["spec"] = spec, map[string]any{"clusterQueue": name}
	check.Must(t, h.Create(t.Context(), cluster))
	check.Must(t, h.Create(t.Context(), local))
	// MultiKueue gives the clone of a Workload to the queue of the same name.
	check.Must(t, h.kueues.Create(t.Context(), kueueObjectFrom(cluster)))
	check.Must(t, h.kueues.Create(t.Context(), kueueObjectFrom(local)))
}

func kueueObjectFrom(o *unstructured.Unstructured) *unstructured.Unstructured {
	made := kueueObject(o.GetKind(), o.GetNamespace(), o.GetName())
	made.Object["spec"] = o.DeepCopy().Object["spec"]
	return made
}

// addCheck adds MultiKueue's admission check to a ClusterQueue.
func (h *hub) addCheck(t *testing.T, name string) {
	t.Helper()
	model, cluster := kueueObject("ClusterQueue", "", h.queue), kueueObject("ClusterQueue", "", name)
	check.Must(t, h.Get(t.Context(), client.ObjectKeyFromObject(model), model))
	await(t, "add the check", func(ctx context.Context) error {
		if err := h.Get(ctx, client.ObjectKeyFromObject(cluster), cluster); err != nil {
			return err
		}
		spec, checked := cluster.Object["spec"].(map[string]any), model.Object["spec"].(map[string]any)
		spec["admissionChecksStrategy"] = checked["admissionChecksStrategy"]
		return h.Update(ctx, cluster)
	})
}

// collected plays the garbage collector, which these clusters lack, for a copy that is being deleted, and fails while
// there is one.
func (h *hub) collected(ctx context.Context, w *worker, name string) error {
	job := trainjobs.New()
	if err := w.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: name}, job); err != nil {
		return client.IgnoreNotFound(err)
	}
	if job.GetDeletionTimestamp() != nil {
		job.SetFinalizers(nil)
		return errors.Join(errors.New("the copy is being deleted"), client.IgnoreNotFound(w.Update(ctx, job)))
	}
	return errors.New("the copy is there")
}
