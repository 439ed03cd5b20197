// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/kueue"
)

// The hub's Kueue takes its quota back from a job whose pods are not ready in time, as no worker has room for them. It
// sees in the status of the copy that pods are ready.
func TestPodsReadyTimeout(t *testing.T) {
	h := newHub(t, 1, func(tuning *kueue.Tuning) { tuning.PodsReadyTimeout = 15 * time.Second })
	h.createQueue(t, "gate")
	h.cordon(t, h.ours.name, true)
	h.submit(t, "late", "gate")
	h.resumed(t, "late")
	h.waits(t, "late", v1alpha1.ReasonNoFit)
	h.evicted(t, "late")
	h.waits(t, "late", v1alpha1.ReasonSuspended)
	h.cordon(t, h.ours.name, false)
	h.ours.gets(t, "late")
	h.ours.makeReady(t, "late")
	h.ready(t, "late")
	h.showsNoSuspension(t, "late")
	// A later job that is not ready is evicted. So the time of the first job is over too.
	h.submit(t, "never", "gate")
	h.ours.gets(t, "never")
	h.evicted(t, "never")
	h.ready(t, "late")
	d, err := h.dispatch(t.Context(), "late")
	check(t, err)
	if d.Spec.Cluster == "" || d.Spec.Attempt != 1 {
		t.Errorf("the job is on %q in attempt %d", d.Spec.Cluster, d.Spec.Attempt)
	}
}

// evicted waits until the hub's Kueue has taken the quota of a job back.
func (h *hub) evicted(t *testing.T, job string) {
	t.Helper()
	await(t, "have the hub's Kueue evict "+job, func(ctx context.Context) error {
		workload, err := h.workload(ctx, job)
		if err == nil && (!isTrue(workload, "Evicted") || isTrue(workload, "QuotaReserved")) {
			err = fmt.Errorf("its status is %v", workload.Object["status"])
		}
		return err
	})
}

// showsNoSuspension checks that a job that Kueue has resumed has no condition Suspended, which clients take for its state.
func (h *hub) showsNoSuspension(t *testing.T, job string) {
	t.Helper()
	stored, err := get(t.Context(), h, job)
	check(t, err)
	conditions, _, err := unstructured.NestedSlice(stored.Object, "status", "conditions")
	check(t, err)
	for _, condition := range conditions {
		if fields, _ := condition.(map[string]any); fields["type"] == "Suspended" {
			t.Errorf("the job runs, and has the condition %v", fields)
		}
	}
}

// ready waits until the hub's Kueue says that the pods of a job are ready.
func (h *hub) ready(t *testing.T, job string) {
	t.Helper()
	await(t, "have the pods of "+job+" ready for the hub's Kueue", func(ctx context.Context) error {
		workload, err := h.workload(ctx, job)
		if err == nil && !isTrue(workload, "PodsReady") {
			err = errors.New("they are not")
		}
		return err
	})
}

// makeReady plays the pods of a copy.
func (w *worker) makeReady(t *testing.T, job string) {
	t.Helper()
	copied, err := get(t.Context(), w, job)
	check(t, err)
	check(t, w.Status().Patch(t.Context(), copied, client.RawPatch("application/merge-patch+json", []byte(
		`{"status":{"jobsStatus":[{"name":"node","active":1,"ready":1,"succeeded":0,"failed":0,"suspended":0}]}}`))))
}
