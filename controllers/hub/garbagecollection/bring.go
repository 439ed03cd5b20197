// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
)

// tombstoneHandler enqueues each new Tombstone.
func (q *Quarantine) tombstoneHandler() handler.EventHandler {
	return handler.Funcs{CreateFunc: func(ctx context.Context, e event.CreateEvent, _ requestQueue) {
		q.bring(ctx, *e.Object.(*v1alpha1.Tombstone))
	}}
}

// executeAgain enqueues the Tombstones of a changed job or Dispatch: they may have been kept for the job's attempt.
func (q *Quarantine) executeAgain() handler.EventHandler {
	again := func(ctx context.Context, object client.Object) {
		origin := object.GetUID()
		if d, ok := object.(*v1alpha1.Dispatch); ok {
			origin = d.Spec.TrainJob.UID
		}
		tombstones, err := records.Tombstones(ctx, q.Hub, origin)
		if err != nil {
			log.FromContext(ctx).Error(err, "Listing Tombstones from the cache did not work")
			return
		}
		if len(tombstones) > 0 {
			q.bring(ctx, tombstones...)
		}
	}
	return handler.Funcs{
		CreateFunc: func(ctx context.Context, e event.CreateEvent, _ requestQueue) { again(ctx, e.Object) },
		UpdateFunc: func(ctx context.Context, e event.UpdateEvent, _ requestQueue) { again(ctx, e.ObjectNew) },
		DeleteFunc: func(ctx context.Context, e event.DeleteEvent, _ requestQueue) { again(ctx, e.Object) },
	}
}

// bring enqueues Tombstones for the workers that lead to their clusters. The names of these workers do not matter.
func (q *Quarantine) bring(ctx context.Context, tombstones ...v1alpha1.Tombstone) {
	var workers v1alpha1.WorkerClusterList
	if err := q.Hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
		log.FromContext(ctx).Error(err, "Listing WorkerClusters from the cache did not work")
		return
	}
	names := map[types.UID][]v1alpha1.ClusterName{}
	for i := range workers.Items {
		if id := workers.Items[i].Status.ClusterID; id != "" {
			names[id] = append(names[id], v1alpha1.ClusterName(workers.Items[i].Name))
		}
	}
	for i := range tombstones {
		for _, name := range names[tombstones[i].Spec.ClusterID] {
			q.Enqueue(name, keyOfTombstone(&tombstones[i]))
		}
	}
}

// attemptChanged lets Dispatches through that are new or get another attempt.
func attemptChanged() predicate.Predicate {
	return predicate.Funcs{
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*v1alpha1.Dispatch), e.ObjectNew.(*v1alpha1.Dispatch)
			return before.UID != after.UID || before.Spec.Attempt != after.Spec.Attempt
		},
		DeleteFunc: func(event.DeleteEvent) bool { return false },
	}
}

// jobEnds lets TrainJobs through that end or are being deleted.
func jobEnds() predicate.Predicate {
	over := func(object client.Object) bool {
		job, ok := object.(*unstructured.Unstructured)
		return ok && (job.GetDeletionTimestamp() != nil || trainjobs.Terminal(job) != nil)
	}
	return predicate.Funcs{
		CreateFunc: func(event.CreateEvent) bool { return false },
		UpdateFunc: func(e event.UpdateEvent) bool {
			return e.ObjectOld.GetUID() == e.ObjectNew.GetUID() && !over(e.ObjectOld) && over(e.ObjectNew)
		},
	}
}
