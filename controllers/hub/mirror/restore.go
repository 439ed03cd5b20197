// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// restore changes back what somebody has changed in the spec of the copy, or has the job moved if the worker does not let it. A copy of
// generation 1 is as it was created, and one generation is looked at once.
func (r *reconciler) restore(ctx context.Context, worker client.Client, f facts, past *recollection) error {
	generation := f.copy.GetGeneration()
	if generation <= 1 || generation == past.checked {
		return nil
	}
	wanted := newSpec(f.job)
	if sameSpec(wanted, specOf(f.copy)) {
		past.checked = generation
		return nil
	}
	// Who wrote what says the API server only: caches do without.
	live, err := r.find(ctx, f)
	if err != nil || live == nil || live.GetUID() != f.copy.GetUID() || live.GetGeneration() != generation {
		return err // Its event is on its way.
	}
	edits, err := r.editsOf(ctx, f, live, past)
	if err != nil {
		return err
	}
	if len(edits) == 0 {
		past.checked = generation // It is the worker that makes this of the job.
		return nil
	}
	names := make([]string, len(edits))
	updated := live.DeepCopy()
	for i, edit := range edits {
		names[i] = edit.String()
		edit.undo(specOf(updated))
	}
	if past.giveIn(r.Clock.Now()) {
		return r.evictChanged(ctx, f, names, "it is changed again and again")
	}
	patch := client.MergeFromWithOptions(live, client.MergeFromWithOptimisticLock{})
	err = worker.Patch(ctx, updated, patch, fieldOwner)
	switch {
	case isRefusal(err):
		return r.evictChanged(ctx, f, names, "the worker does not let it be changed back: "+refusalWords(err))
	case err != nil:
		return fmt.Errorf("patch TrainJob %s/%s on worker %q: %w", live.GetNamespace(), live.GetName(), r.Cluster, err)
	}
	past.noteRestored(r.Clock.Now())
	past.checked = updated.GetGeneration() // What the worker has not taken back is its will.
	r.recordRestored(f, names)
	return nil
}

// editsOf returns what others have changed in the spec of the copy as the worker's API server has it.
func (r *reconciler) editsOf(ctx context.Context, f facts, live *unstructured.Unstructured, past *recollection) ([]edit, error) {
	if !past.queued {
		var err error
		if _, past.queued, err = r.findWorkload(ctx, live); err != nil {
			return nil, err
		}
	}
	return editsOf(newSpec(f.job), live, background{
		jobChanged: live.GetAnnotations()[v1alpha1.AnnotationSource] != sourceOf(f.job), queued: past.queued,
	}), nil
}

// evictChanged asks for the end of an attempt whose copy is not the job any more. What is written wakes us.
func (r *reconciler) evictChanged(ctx context.Context, f facts, names []string, why string) error {
	updated := f.dispatch.DeepCopy()
	updated.Spec.Eviction = &v1alpha1.Eviction{
		Reason: v1alpha1.EvictionCopyChanged,
		Message: record.Shorten(fmt.Sprintf("%s of the copy was changed on worker %q, and %s", strings.Join(names, ", "), r.Cluster, why),
			evictionLimit),
	}
	patch := client.MergeFromWithOptions(f.dispatch, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Patch(ctx, updated, patch, fieldOwner); err != nil {
		err = fmt.Errorf("patch Dispatch %s/%s: %w", f.dispatch.Namespace, f.dispatch.Name, err)
		return r.ender().Refused(ctx, f.dispatch, v1alpha1.ReasonDispatchRefused, err)
	}
	return nil
}

// evictionLimit is what the CRD takes of an eviction's message.
const evictionLimit = 1024

// specOf is the spec itself.
func specOf(job *unstructured.Unstructured) map[string]any {
	spec, _ := job.Object["spec"].(map[string]any)
	return spec
}
