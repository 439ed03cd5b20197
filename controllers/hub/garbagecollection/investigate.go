// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

func (r *reconciler) newSuspect(copy client.Object) suspect {
	return suspect{
		uid: copy.GetUID(), origin: originOf(copy), attempt: attemptOf(copy),
		found: r.Quarantine.isEarly(r.Cluster), since: r.Clock.Now(),
	}
}

// investigate asks the API servers about a copy that the caches do not explain. The copy's job is not placed meanwhile.
// Caches lag, so it first reads the record from the hub's API server, and then the copy from the worker's. If there is
// no record, and the copy still exists after that, it never had one: a record is written before its copy, and deleted
// after.
func (r *reconciler) investigate(
	ctx context.Context, worker client.Client, copy *unstructured.Unstructured, cached hubRecords,
) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(copy)
	held := r.hold(key, copy)
	var err error
	if cached.job, err = r.job(ctx, r.Hub, key); err != nil {
		return reconcile.Result{}, err
	}
	rival := r.Quarantine.registry.rival(key, originOf(copy), r.Cluster)
	if held.certain && copy.GetDeletionTimestamp() == nil && consider(copy, cached, rival, r.ManagedBy) == unknown {
		return reconcile.Result{}, r.carryOut(ctx, worker, copy) // Nothing has changed.
	}
	stored, err := r.observe(ctx, r.HubReader, copy)
	if err != nil {
		return reconcile.Result{}, err
	}
	if stored.job, err = r.job(ctx, r.HubReader, key); err != nil {
		return reconcile.Result{}, err
	}
	existing, err := r.find(ctx, key)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case existing == nil, existing.GetUID() != copy.GetUID(), !r.isOurs(existing):
		return reconcile.Result{}, nil // The cache will show it.
	}
	switch judge(r.here(), existing, stored) {
	case needed, ended: // The hub's cache will show this too, and there may be no event for it.
		r.Quarantine.release(r.Cluster, key)
		return reconcile.Result{RequeueAfter: goneCheck}, nil
	case outdated:
		r.Quarantine.release(r.Cluster, key)
		return reconcile.Result{}, r.delete(ctx, worker, existing, "outdated")
	case unknown, adoptable, postponed:
	}
	return r.conclude(ctx, worker, existing, stored)
}

// conclude decides about a copy that is unknown according to the API servers of hub and worker.
func (r *reconciler) conclude(
	ctx context.Context, worker client.Client, copy *unstructured.Unstructured, hub hubRecords,
) (reconcile.Result, error) {
	key := client.ObjectKeyFromObject(copy)
	held := r.hold(key, copy)
	rival := r.Quarantine.registry.rival(key, originOf(copy), r.Cluster)
	switch consider(copy, hub, rival, r.ManagedBy) {
	case outdated:
		// The copy's job has ended, so nothing waits for the copy.
		return reconcile.Result{}, r.delete(ctx, worker, copy, "outdated")
	case adoptable:
		return r.believe(ctx, worker, copy, hub, held)
	case postponed:
		return reconcile.Result{RequeueAfter: goneCheck}, nil
	case unknown, needed, ended:
	}
	return reconcile.Result{}, r.quarantine(ctx, worker, copy, held)
}

// believe adopts a copy, or says why the hub does not believe that it is the job's copy.
func (r *reconciler) believe(
	ctx context.Context, worker client.Client, copy *unstructured.Unstructured, hub hubRecords, held suspect,
) (reconcile.Result, error) {
	if held.doubt.isFalse() && record.AttemptOf(hub.dispatch).Live() && r.here().leadsHere(hub.dispatch) {
		// The copy has the name that the job's own copy needs.
		return reconcile.Result{}, r.delete(ctx, worker, copy, "outdated")
	}
	why, due, err := r.doubt(ctx, copy, hub, held)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case why.reason == "":
		return reconcile.Result{}, r.adopt(ctx, copy, hub)
	}
	held.told = held.told && held.doubt.reason == why.reason
	held.doubt = why
	return reconcile.Result{RequeueAfter: due}, r.quarantine(ctx, worker, copy, held)
}

// quarantine leaves a copy alone, reports it, and does what an admin has decided about it.
func (r *reconciler) quarantine(
	ctx context.Context, worker client.Client, copy *unstructured.Unstructured, held suspect,
) error {
	held.certain = copy.GetDeletionTimestamp() == nil
	r.Quarantine.hold(r.Cluster, client.ObjectKeyFromObject(copy), held)
	if !held.certain {
		return nil // There is no decision about a copy that is being deleted. The end of the deletion wakes us.
	}
	return r.carryOut(ctx, worker, copy)
}

// hold keeps the job of a copy from being placed. It keeps what is already known of the copy.
func (r *reconciler) hold(key types.NamespacedName, copy client.Object) suspect {
	held, known := r.Quarantine.registry.get(r.Cluster, key)
	if now := r.newSuspect(copy); !known || held.uid != now.uid {
		held = now
	} else {
		held.origin, held.attempt = now.origin, now.attempt
	}
	r.Quarantine.hold(r.Cluster, key, held)
	return held
}

// missing handles a copy that the cache does not show. If the copy was unknown, its job waits until the worker's API
// server says that the copy is gone and that none of its pods is alive.
func (r *reconciler) missing(ctx context.Context, worker client.Client, key types.NamespacedName) (reconcile.Result, error) {
	held, known := r.Quarantine.registry.get(r.Cluster, key)
	if !known {
		return r.clear(ctx, worker, key)
	}
	existing, err := r.find(ctx, key)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case existing != nil && existing.GetUID() == held.uid && r.isOurs(existing):
		return reconcile.Result{RequeueAfter: goneCheck}, nil // The cache will show it.
	case existing == nil:
		if alive, err := r.podsAlive(ctx, worker, key); alive || err != nil {
			held.certain = false // An admin has nothing left to decide.
			r.Quarantine.hold(r.Cluster, key, held)
			return reconcile.Result{RequeueAfter: goneCheck}, err
		}
	}
	if kept, err := r.keepAttempt(ctx, key, held); !kept || err != nil {
		return reconcile.Result{RequeueAfter: requeue.ConflictDelay}, err
	}
	r.Quarantine.release(r.Cluster, key)
	return reconcile.Result{}, nil
}

// keepAttempt makes sure that a job gets a higher attempt than its copy that is gone or released: the worker's agent
// remembers that attempt, and runs no lower attempt. It returns true when the attempt is on record, or need not be.
func (r *reconciler) keepAttempt(ctx context.Context, key types.NamespacedName, held suspect) (bool, error) {
	if held.doubt.stays() {
		return true, nil // The hub has not given the copy that attempt.
	}
	job, err := r.job(ctx, r.Hub, key)
	if err != nil || !goesOn(job, held.origin) {
		return err == nil, err
	}
	d := &v1alpha1.Dispatch{}
	if err := r.Hub.Get(ctx, key, d); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("get Dispatch %s: %w", key, err)
	}
	recorded := int32(0)
	if d.Spec.TrainJob.UID == held.origin {
		recorded = d.Spec.Attempt
	}
	return records.Keep(ctx, r.Hub, r.HubReader, v1alpha1.TombstoneSpec{
		Cluster: r.Cluster, ClusterID: r.ClusterID, Namespace: key.Namespace, Attempt: believable(recorded, held.attempt),
		TrainJob: v1alpha1.TrainJobReference{Name: key.Name, UID: held.origin},
	})
}

// job reads the hub TrainJob of a name. It returns nil if there is none.
func (r *reconciler) job(ctx context.Context, hub client.Reader, key types.NamespacedName) (*unstructured.Unstructured, error) {
	job := trainjobs.New()
	if err := hub.Get(ctx, key, job); err != nil {
		if apierrors.IsNotFound(err) {
			return nil, nil
		}
		return nil, fmt.Errorf("get TrainJob %s: %w", key, err)
	}
	return job, nil
}
