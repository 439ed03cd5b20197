// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
)

// goneCheck is how often the manager looks whether a copy and its pods are gone. No event says that.
const goneCheck = 2 * time.Second

// keyOfTombstone is the key of a Tombstone in the queue. It has no namespace, unlike the key of a copy.
func keyOfTombstone(tombstone *v1alpha1.Tombstone) types.NamespacedName {
	return types.NamespacedName{Name: tombstone.Name}
}

// execution deletes what Tombstones name on one worker.
type execution struct {
	here  judgement.Worker
	hubID string
	// hub reads from the hub's caches.
	hub client.Client
}

// execute deletes the copy that a Tombstone names, and the Tombstone when the worker has neither the copy nor a pod of
// it that may run. If a late creation makes the copy after that, the copy is unknown and put in quarantine.
func (e execution) execute(ctx context.Context, worker workerClient, name string) (time.Duration, error) {
	tombstone := &v1alpha1.Tombstone{}
	if err := e.hub.Get(ctx, client.ObjectKey{Name: name}, tombstone); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	if tombstone.Spec.ClusterID != e.here.ClusterID {
		return 0, nil
	}
	key := types.NamespacedName{Namespace: tombstone.Spec.Namespace, Name: tombstone.Spec.TrainJob.Name}
	existing, err := worker.Find(ctx, key)
	if err != nil {
		return 0, err
	}
	if existing != nil && !v1alpha1.OfAnotherHub(existing, e.hubID) && judgement.IsCovered(e.here, existing, tombstone) {
		return goneCheck, worker.deleteCopy(ctx, existing, "outdated")
	}
	// An existing TrainJob of that name is another job's, which could not begin before the name was free.
	if existing == nil {
		if left, err := worker.HasRemains(ctx, key, copies.Gone{}); left || err != nil {
			return goneCheck, err
		}
	}
	if counts, err := e.counts(ctx, tombstone); counts || err != nil {
		return 0, err // The next Dispatch or the end of the job wakes us.
	}
	if err := e.hub.Delete(ctx, tombstone, client.Preconditions{UID: &tombstone.UID}); client.IgnoreNotFound(err) != nil {
		return 0, fmt.Errorf("delete Tombstone %q: %w", name, err)
	}
	return 0, nil
}

// counts is true while only a Tombstone has the last attempt of a job that goes on: it has no Dispatch that stays.
func (e execution) counts(ctx context.Context, tombstone *v1alpha1.Tombstone) (bool, error) {
	key := types.NamespacedName{Namespace: tombstone.Spec.Namespace, Name: tombstone.Spec.TrainJob.Name}
	hub := hubReader{e.hub}
	job, err := records.Job(ctx, hub, key)
	if err != nil || !goesOn(job, tombstone.Spec.TrainJob.UID) {
		return false, err
	}
	d, err := records.Dispatch(ctx, hub, key)
	if err != nil {
		return false, err
	}
	return d == nil || d.Spec.TrainJob.UID != job.GetUID() || d.DeletionTimestamp != nil || d.Spec.Attempt < tombstone.Spec.Attempt, nil
}

// goesOn is true if this is the TrainJob of that UID, and it has not ended and is not being deleted.
func goesOn(job *unstructured.Unstructured, uid types.UID) bool {
	return job != nil && job.GetUID() == uid && job.GetDeletionTimestamp() == nil && trainjobs.Terminal(job) == nil
}
