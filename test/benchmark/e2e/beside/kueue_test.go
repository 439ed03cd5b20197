// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"context"
	"errors"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/fleet"
	objects "github.com/trainyard/trainyard/test/kueue"
)

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
	check(t, h.Get(t.Context(), client.ObjectKeyFromObject(model), model))
	cluster, local := kueueObject("ClusterQueue", "", name), kueueObject("LocalQueue", fleet.Namespace, name)
	spec := model.Object["spec"].(map[string]any)
	delete(spec, "admissionChecksStrategy")
	cluster.Object["spec"], local.Object["spec"] = spec, map[string]any{"clusterQueue": name}
	check(t, h.Create(t.Context(), cluster))
	check(t, h.Create(t.Context(), local))
	// MultiKueue gives the clone of a Workload to the queue of the same name.
	check(t, h.kueues.Create(t.Context(), kueueObjectFrom(cluster)))
	check(t, h.kueues.Create(t.Context(), kueueObjectFrom(local)))
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
	check(t, h.Get(t.Context(), client.ObjectKeyFromObject(model), model))
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
