// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// goingLimit is for how long a job waits until a copy of an earlier TrainJob of its name is gone. It goes in the
// foreground, so it stays for as long as its pods terminate.
const goingLimit = time.Minute

// nameTaken is for a TrainJob of another job that has the name of the copy. The attempt is over, unless that TrainJob
// is a copy of this hub which is being deleted: the name is free soon. A worker that was away while a job was deleted,
// and created anew, has such a copy.
func (r *reconciler) nameTaken(
	ctx context.Context, f facts, past *recollection, existing *unstructured.Unstructured,
) (reconcile.Result, error) {
	former := existing.GetLabels()[v1alpha1.LabelHub] == r.HubID && existing.GetDeletionTimestamp() != nil
	if !former {
		return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.OutcomeNameConflict, r.conflictMessage(existing))
	}
	if past.taken.IsZero() {
		past.taken = r.Clock.Now()
	}
	if r.Clock.Since(past.taken) < goingLimit && f.dispatch.Spec.Eviction == nil {
		return reconcile.Result{RequeueAfter: endCheck}, nil // If the cache shows the copy, its end wakes us earlier.
	}
	return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.OutcomeNameConflict, fmt.Sprintf(
		"worker %q still has the copy of an earlier TrainJob %s/%s, which is being deleted",
		r.Cluster, existing.GetNamespace(), existing.GetName()))
}
