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
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
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
		check(t, err)
		if queue, has := copy.GetLabels()[v1alpha1.LabelLocalQueue]; has || trainjobs.Suspended(copy) {
			t.Errorf("the copy is in queue %q of the worker, suspended: %t", queue, trainjobs.Suspended(copy))
		}
		d, err := h.dispatch(t.Context(), "gated")
		check(t, err)
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
		check(t, h.ours.Patch(t.Context(), queue, hold))
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
	check(t, err)
	if generation := copy.GetGeneration(); generation > writesOfAdmission {
		t.Errorf("the copy of %s has generation %d", name, generation)
	}
}

// setQueue sets the LocalQueue into which copies come on a worker.
func (h *hub) setQueue(t *testing.T, worker string, queue v1alpha1.WorkerQueue) {
	t.Helper()
	object := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: worker}}
	patch := fmt.Sprintf(`{"spec":{"kueue":{"workerQueue":%q}}}`, queue)
	check(t, h.Patch(t.Context(), object, client.RawPatch(types.MergePatchType, []byte(patch))))
}

// activate makes the hub's Kueue stop or queue a job.
func (h *hub) activate(t *testing.T, job string, active bool) {
	t.Helper()
	await(t, "change the Workload of "+job, func(ctx context.Context) error {
		workload, err := h.workload(ctx, job)
		if err != nil {
			return err
		}
		check(t, unstructured.SetNestedField(workload.Object, active, "spec", "active"))
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
