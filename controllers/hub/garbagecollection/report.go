// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// listLimit is how many copies the status of a WorkerCluster lists.
const listLimit = 64

// Reconcile writes changes to the unknown copies of one worker, and to its refusal of the last sweep, into its status.
func (q *Quarantine) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	worker := &v1alpha1.WorkerCluster{}
	if err := q.Hub.Get(ctx, request.NamespacedName, worker); err != nil {
		if apierrors.IsNotFound(err) {
			q.forget(v1alpha1.ClusterName(request.Name))
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	name := v1alpha1.ClusterName(worker.Name)
	q.changed(name, q.registry.recall(name, worker.Status.UnknownCopies, q.Clock.Now()))
	copies, swept := q.registry.certain(name)
	copiesUnknown.WithLabelValues(string(name)).Set(float64(len(copies)))
	refusal := q.registry.refusal(name)
	if !swept && refusal == (sweepRefusal{}) {
		return reconcile.Result{}, nil // The status stays until this process has looked at the worker.
	}
	err := q.write(ctx, worker, func(updated *v1alpha1.WorkerCluster) {
		q.showRefusal(updated, refusal)
		if swept {
			showUnknown(updated, copies, q.Clock.Now())
		}
	})
	switch {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: requeue.ConflictDelay}, nil
	case err != nil:
		return reconcile.Result{}, err
	}
	listed := map[v1alpha1.UnknownCopy]bool{}
	for _, copy := range worker.Status.UnknownCopies {
		listed[copy] = true
	}
	for _, copy := range copies {
		if q.registry.report(name, copy) && !listed[copy] {
			q.recordUnknown(worker, copy)
		}
	}
	return reconcile.Result{}, nil
}

// write writes the status of a worker if show changes it.
func (q *Quarantine) write(ctx context.Context, worker *v1alpha1.WorkerCluster, show func(*v1alpha1.WorkerCluster)) error {
	updated := worker.DeepCopy()
	show(updated)
	if equality.Semantic.DeepEqual(updated.Status, worker.Status) {
		return nil
	}
	patch := client.MergeFromWithOptions(worker, client.MergeFromWithOptimisticLock{})
	if err := q.Hub.Status().Patch(ctx, updated, patch, records.FieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch status of WorkerCluster %q: %w", worker.Name, err)
	}
	return nil
}

// showUnknown changes only the fields of a worker's status that are about unknown copies.
func showUnknown(worker *v1alpha1.WorkerCluster, copies []v1alpha1.UnknownCopy, now time.Time) {
	if len(copies) == 0 {
		worker.Status.UnknownCopies = nil
		meta.RemoveStatusCondition(&worker.Status.Conditions, v1alpha1.WorkerClusterUnknownCopies)
		return
	}
	worker.Status.UnknownCopies = copies[:min(len(copies), listLimit)]
	meta.SetStatusCondition(&worker.Status.Conditions, metav1.Condition{
		Type: v1alpha1.WorkerClusterUnknownCopies, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonQuarantined,
		ObservedGeneration: worker.Generation, LastTransitionTime: metav1.NewTime(now), Message: quarantineMessage(worker.Name),
	})
}

// canShow is true for a copy that fits into the status. No hub has given a copy longer names or UIDs.
func canShow(key types.NamespacedName, s unknownCopy) bool {
	const nameLimit, uidLimit = 253, 128
	return len(key.Namespace) <= nameLimit && len(key.Name) <= nameLimit &&
		len(s.uid) <= uidLimit && len(s.origin) <= uidLimit
}

// quarantineMessage does not change while there are unknown copies.
func quarantineMessage(worker string) string {
	return fmt.Sprintf("the worker has copies of this hub that the hub has no record of, as after a restore from a backup; they are left alone. "+
		"status.unknownCopies lists them, and says why the hub does not accept one; decide about each with: "+
		"kubectl trainyard adopt|release %s NAMESPACE/NAME", worker)
}
