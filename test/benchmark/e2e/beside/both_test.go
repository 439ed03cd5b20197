// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	"github.com/trainyard/trainyard/test/check"
)

// writesOfAdmission bounds the generations of a copy that a Kueue suspends and admits. Two systems that undo each
// other's writes pass it within seconds.
const writesOfAdmission = 5

// A Kueue on the hub queues a job in front of Trainyard, and the Kueue of the worker queues the copy. Each Kueue has
// its own entry of runtimePatches. Neither a Kueue nor Trainyard undoes what another system has written.
func TestKueueOnBothSides(t *testing.T) {
	h := newHub(t, 0)
	h.createQueue(t, "gate")
	// The flavors of the gate have no labels. The queue of the hub's label is not for the worker, although it has one of
	// this name.
	t.Run("OnlyTheHubs", func(t *testing.T) {
		h.submit(t, "gated", "gate")
		h.ours.gets(t, "gated")
		copy, err := get(t.Context(), h.ours, "gated")
		check.Must(t, err)
		if queue, has := copy.GetLabels()[v1alpha1.LabelLocalQueue]; has || trainjobs.Suspended(copy) {
			t.Errorf("the copy is in queue %q of the worker, suspended: %t", queue, trainjobs.Suspended(copy))
		}
		d, err := h.dispatch(t.Context(), "gated")
		check.Must(t, err)
		if d.Spec.LocalQueue == nil || *d.Spec.LocalQueue != "" {
			t.Errorf("the Dispatch does not say that the copy comes into no queue: %v", d.Spec.LocalQueue)
		}
	})
	h.setQueue(t, h.ours.name, v1alpha1.WorkerQueueFromJob)
	t.Run("Admitted", func(t *testing.T) {
		h.submit(t, "both", "gate")
		h.ours.gets(t, "both")
		await(t, "have the worker's Kueue admit the copy", func(ctx context.Context) error {
			copy, err := get(ctx, h.ours, "both")
			if err == nil && (trainjobs.Suspended(copy) || !hasKueuePatch(copy)) {
				err = fmt.Errorf("its spec is %v", copy.Object["spec"])
			}
			return err
		})
		h.quiet(t, "both")
	})
	t.Run("SuspendedByTheHub", func(t *testing.T) {
		h.activate(t, "both", false)
		await(t, "have the copy deleted", func(ctx context.Context) error { return h.collected(ctx, h.ours, "both") })
		h.waits(t, "both", v1alpha1.ReasonSuspended)
		await(t, "have the hub's Kueue free the quota", func(ctx context.Context) error {
			workload, err := h.workload(ctx, "both")
			if err == nil && isTrue(workload, "QuotaReserved") {
				err = errors.New("it is reserved")
			}
			return err
		})
	})
	t.Run("Resumed", func(t *testing.T) {
		h.activate(t, "both", true)
		await(t, "have the job placed anew", func(ctx context.Context) error {
			d, err := h.dispatch(ctx, "both")
			if err == nil && (d.Spec.Cluster == "" || d.Spec.Attempt != 2) {
				err = fmt.Errorf("it is on %q in attempt %d", d.Spec.Cluster, d.Spec.Attempt)
			}
			return err
		})
		h.ours.gets(t, "both")
		h.quiet(t, "both")
	})
	t.Run("HeldByTheWorker", func(t *testing.T) {
		queue := kueueObject("ClusterQueue", "", "gate")
		hold := client.RawPatch("application/merge-patch+json", []byte(`{"spec":{"stopPolicy":"Hold"}}`))
		check.Must(t, h.ours.Patch(t.Context(), queue, hold))
		h.submit(t, "held", "gate")
		h.ours.gets(t, "held")
		await(t, "have the Dispatch say that the worker holds the job", func(ctx context.Context) error {
			d, err := h.dispatch(ctx, "held")
			if err == nil && d.Status.Phase != v1alpha1.PhaseQueued {
				err = fmt.Errorf("it says %s/%s", d.Status.Phase, d.Status.Reason)
			}
			return err
		})
		if d, err := h.dispatch(t.Context(), "held"); err != nil || d.Spec.Eviction != nil {
			t.Errorf("a stopped queue ends the attempt: %v (%v)", d, err)
		}
		h.quiet(t, "held")
	})
}

// quiet waits until the Dispatch shows the copy, ten seconds after its creation. It expects that no two systems have
// undone each other's writes in that time.
func (h *hub) quiet(t *testing.T, name string) {
	t.Helper()
	await(t, "have the copy of "+name+" on record", func(ctx context.Context) error {
		d, err := h.dispatch(ctx, name)
		if err == nil && !d.WasCopied() {
			err = errors.New("it is not")
		}
		return err
	})
	copy, err := get(t.Context(), h.ours, name)
	check.Must(t, err)
	if generation := copy.GetGeneration(); generation > writesOfAdmission {
		t.Errorf("the copy of %s has generation %d", name, generation)
	}
}

// setQueue sets the LocalQueue into which copies come on a worker.
func (h *hub) setQueue(t *testing.T, worker string, queue v1alpha1.WorkerQueue) {
	t.Helper()
	object := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: worker}}
	patch := fmt.Sprintf(`{"spec":{"kueue":{"workerQueue":%q}}}`, queue)
	check.Must(t, h.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// activate makes the hub's Kueue stop or queue a job.
func (h *hub) activate(t *testing.T, job string, active bool) {
	t.Helper()
	await(t, "change the Workload of "+job, func(ctx context.Context) error {
		workload, err := h.workload(ctx, job)
		if err != nil {
			return err
		}
		check.Must(t, unstructured.SetNestedField(workload.Object, active, "spec", "active"))
		return h.Update(ctx, workload)
	})
}

// workload returns the Workload of a job of the hub.
func (h *hub) workload(ctx context.Context, job string) (*unstructured.Unstructured, error) {
	workloads := workloadList()
	if err := h.List(ctx, workloads, client.InNamespace(fleet.Namespace)); err != nil {
		return nil, err
	}
	for i := range workloads.Items {
		for _, owner := range workloads.Items[i].GetOwnerReferences() {
			if owner.Name == job {
				return &workloads.Items[i], nil
			}
		}
	}
	return nil, errors.New("there is no Workload of " + job)
}

func (h *hub) dispatch(ctx context.Context, name string) (*v1alpha1.Dispatch, error) {
	d := &v1alpha1.Dispatch{}
	err := h.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: name}, d)
	return d, err
}

func get(ctx context.Context, reader client.Reader, name string) (*unstructured.Unstructured, error) {
	job := trainjobs.New()
	err := reader.Get(ctx, client.ObjectKey{Namespace: fleet.Namespace, Name: name}, job)
	return job, err
}

// hasKueuePatch is true if runtimePatches has one entry of Kueue.
func hasKueuePatch(job *unstructured.Unstructured) bool {
	patches, _, _ := unstructured.NestedSlice(job.Object, "spec", "runtimePatches")
	entries := 0
	for _, patch := range patches {
		if fields, ok := patch.(map[string]any); ok && fields["manager"] == "kueue.x-k8s.io/manager" {
			entries++
		}
	}
	return entries == 1
}

// Two teams share the GPUs. A team borrows what the other team does not use, and gives it back: the quota is free when
// the copy of the preempted job is gone, and not before. The preempted job comes back when there is quota again.
func TestTwoTeams(t *testing.T) {
	g := newGate(t)
	lender := teamJob{team: "team-b", name: "lender", gpus: 8}
	order := watchOrder(t, g, lender)
	borrowers := []teamJob{{team: "team-a", name: "own", gpus: 8}, {team: "team-a", name: "borrowed", gpus: 8}}
	for _, job := range borrowers {
		g.submit(t, job)
		g.runs(t, job, 1)
		g.begins(t, job)
	}
	g.submit(t, lender)
	victim := g.preempted(t, borrowers)
	await(t, "have the copy of "+victim.name+" stopped", func(ctx context.Context) error {
		copy := trainjobs.New()
		if err := g.worker.Get(ctx, victim.key(), copy); err != nil {
			return err
		}
		if copy.GetDeletionTimestamp() == nil {
			return errors.New("nobody deletes it")
		}
		return nil
	})
	w, err := g.workload(t.Context(), victim)
	check.Must(t, err)
	if !isTrue(w, "QuotaReserved") {
		t.Error("the quota is free while the copy has pods")
	}
	order.copyGoes()
	await(t, "have the copy gone", func(ctx context.Context) error { return g.collected(ctx, victim) })
	g.runs(t, lender, 1)
	order.right(t)
	g.waits(t, victim, v1alpha1.ReasonSuspended)
	g.remove(t, lender)
	g.runs(t, victim, 2)
	for _, job := range append(borrowers, lender) {
		want := 1
		if job == victim {
			want = 2
		}
		if got := g.worker.created(t, job.name); got != want {
			t.Errorf("the worker was given %d copies of %s, want %d", got, job.name, want)
		}
	}
}

// begins plays the worker's controller: the copy of a job has an active pod. It waits until the hub knows.
func (g *gate) begins(t *testing.T, j teamJob) {
	t.Helper()
	const status = `{"status":{"jobsStatus":[{"name":"node","ready":1,"active":1,"succeeded":0,"failed":0,"suspended":0}]}}`
	await(t, "have a pod of "+j.name, func(ctx context.Context) error {
		copy := trainjobs.New()
		copy.SetNamespace(j.team)
		copy.SetName(j.name)
		return g.worker.Status().Patch(ctx, copy, client.RawPatch("application/merge-patch+json", []byte(status)))
	})
	await(t, "have the hub know of the pod of "+j.name, func(ctx context.Context) error {
		job := trainjobs.New()
		if err := g.Get(ctx, j.key(), job); err != nil {
			return err
		}
		if jobs, _, _ := unstructured.NestedSlice(job.Object, "status", "jobsStatus"); len(jobs) == 0 {
			return fmt.Errorf("the job's status is %v", job.Object["status"])
		}
		return nil
	})
}

// preempted waits until Kueue has preempted one of some jobs, and returns it.
func (g *gate) preempted(t *testing.T, jobs []teamJob) (victim teamJob) {
	t.Helper()
	await(t, "have a job preempted", func(ctx context.Context) error {
		for _, job := range jobs {
			w, err := g.workload(ctx, job)
			if err != nil {
				return err
			}
			if isTrue(w, "Preempted") {
				victim = job
				return nil
			}
		}
		return errors.New("none is")
	})
	return victim
}

// order notes whether a job got quota before the copy of another job was let go.
type order struct {
	mark   chan struct{}
	result chan error
}

// watchOrder watches when a job gets quota.
func watchOrder(t *testing.T, g *gate, j teamJob) *order {
	t.Helper()
	o := &order{mark: make(chan struct{}), result: make(chan error, 1)}
	reader, ok := g.Client.(client.WithWatch)
	if !ok {
		t.Fatal("the client of the hub cannot watch")
	}
	follow(t, reader, func(_ watch.EventType, w *unstructured.Unstructured) {
		owner := metav1.GetControllerOf(w)
		if owner == nil || owner.Name != j.name || !isTrue(w, "QuotaReserved") {
			return
		}
		var err error
		select {
		case <-o.mark:
		default:
			err = fmt.Errorf("%s got quota before the copy was gone: %v", j.name, w.Object["status"])
		}
		select {
		case o.result <- err:
		default: // The first event counts.
		}
	})
	return o
}

// copyGoes notes that the copy is let go now.
func (o *order) copyGoes() { close(o.mark) }

// right expects that the job got quota after that.
func (o *order) right(t *testing.T) {
	t.Helper()
	select {
	case err := <-o.result:
		check.Must(t, err)
	case <-t.Context().Done():
		t.Fatal("nobody has seen the quota")
	}
}

// follow calls see for each Workload of a cluster that is added or changes.
func follow(t *testing.T, c client.WithWatch, see func(watch.EventType, *unstructured.Unstructured)) {
	t.Helper()
	events, err := c.Watch(t.Context(), workloadList())
	check.Must(t, err)
	t.Cleanup(events.Stop)
	go func() {
		for event := range events.ResultChan() {
			if w, ok := event.Object.(*unstructured.Unstructured); ok {
				see(event.Type, w)
			}
		}
	}()
}
