// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// goneCheck is how often the manager looks whether a copy and its pods are gone. No event says that.
const goneCheck = 2 * time.Second

// keyOfTombstone is the key of a Tombstone in the queue. It has no namespace, unlike the key of a copy.
func keyOfTombstone(tombstone *v1alpha1.Tombstone) types.NamespacedName {
	return types.NamespacedName{Name: tombstone.Name}
}

// execute deletes the copy that a Tombstone names, and the Tombstone when the worker has neither the copy nor a pod of
// it that may run. If a late creation makes the copy after that, the copy is unknown and put in quarantine.
func (r *reconciler) execute(ctx context.Context, worker client.Client, name string) (reconcile.Result, error) {
	tombstone := &v1alpha1.Tombstone{}
	if err := r.Hub.Get(ctx, client.ObjectKey{Name: name}, tombstone); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	if tombstone.Spec.ClusterID != r.ClusterID {
		return reconcile.Result{}, nil
	}
	key := types.NamespacedName{Namespace: tombstone.Spec.Namespace, Name: tombstone.Spec.TrainJob.Name}
	existing, err := r.find(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	if existing != nil && !v1alpha1.OfAnotherHub(existing, r.HubID) && isCoveredBy(r.here(), existing, tombstone) {
		return reconcile.Result{RequeueAfter: goneCheck}, r.delete(ctx, worker, existing, "outdated")
	}
	// An existing TrainJob of that name is another job's, which could not begin before the name was free.
	if existing == nil {
		if alive, err := r.podsAlive(ctx, worker, key); alive || err != nil {
			return reconcile.Result{RequeueAfter: goneCheck}, err
		}
	}
	if counts, err := r.counts(ctx, tombstone); counts || err != nil {
		return reconcile.Result{}, err // The next Dispatch or the end of the job wakes us.
	}
	if err := r.Hub.Delete(ctx, tombstone, client.Preconditions{UID: &tombstone.UID}); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("delete Tombstone %q: %w", name, err)
	}
	return reconcile.Result{}, nil
}

// counts is true while only a Tombstone has the last attempt of a job that goes on: it has no Dispatch that stays.
func (r *reconciler) counts(ctx context.Context, tombstone *v1alpha1.Tombstone) (bool, error) {
	key := types.NamespacedName{Namespace: tombstone.Spec.Namespace, Name: tombstone.Spec.TrainJob.Name}
	job, err := r.job(ctx, r.Hub, key)
	if err != nil || !goesOn(job, tombstone.Spec.TrainJob.UID) {
		return false, err
	}
	d := &v1alpha1.Dispatch{}
	if err := r.Hub.Get(ctx, key, d); client.IgnoreNotFound(err) != nil {
		return false, fmt.Errorf("get Dispatch %s: %w", key, err)
	}
	return d.Spec.TrainJob.UID != job.GetUID() || d.DeletionTimestamp != nil || d.Spec.Attempt < tombstone.Spec.Attempt, nil
}

// goesOn is true if this is the TrainJob of that UID, and it has not ended and is not being deleted.
func goesOn(job *unstructured.Unstructured, uid types.UID) bool {
	return job != nil && job.GetUID() == uid && job.GetDeletionTimestamp() == nil && trainjobs.Terminal(job) == nil
}

func (r *reconciler) isOurs(copy client.Object) bool {
	return copy.GetLabels()[v1alpha1.LabelHub] == r.HubID
}

// find returns the TrainJob of a name from the worker's API server, nil if there is none.
func (r *reconciler) find(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	return findOn(ctx, r.Worker, r.Cluster, key)
}

func findOn(
	ctx context.Context, worker Worker, name v1alpha1.ClusterName, key types.NamespacedName,
) (*unstructured.Unstructured, error) {
	reader, err := worker.APIReader()
	if err != nil {
		return nil, err
	}
	existing := trainjobs.New()
	if err := reader.Get(ctx, key, existing); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("get TrainJob %s on worker %q: %w", key, name, err)
	}
	return existing, nil
}

// podsAlive is true while the worker has a pod of the job of that name that may run.
func (r *reconciler) podsAlive(ctx context.Context, worker client.Client, key types.NamespacedName) (bool, error) {
	return podsAliveOn(ctx, worker, r.Cluster, key)
}

func podsAliveOn(
	ctx context.Context, worker client.Reader, name v1alpha1.ClusterName, key types.NamespacedName,
) (bool, error) {
	var pods corev1.PodList
	err := worker.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: key.Name})
	if err != nil {
		return false, fmt.Errorf("list pods of TrainJob %s on worker %q: %w", key, name, err)
	}
	return slices.ContainsFunc(pods.Items, isAlive), nil
}

// isAlive is true for a pod that runs, or may run.
func isAlive(pod corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}
