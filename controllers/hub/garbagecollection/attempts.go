// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"strconv"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// attempts makes the count of attempts go on above the attempts that one worker has seen.
type attempts struct {
	here judgement.Worker
	// hub reads from the hub's caches, stored from its API server.
	hub    client.Client
	stored hubReader
}

// adoptCount handles a needed copy on which the worker's agent says that it has seen a later attempt, and will not run
// this one. The hub has forgotten the later attempt: after a restore, or because somebody deleted the Dispatch of a
// waiting job while no manager worked. adoptCount writes a Tombstone of the later attempt. So the manager deletes the
// copy, and places the job with a higher attempt. If the later attempt is too high to be believed, the hub counts on by
// maxSkipped. Then either the worker says so again until the hub gets there, or the job is placed on a worker that does
// not lie.
func (a attempts) adoptCount(ctx context.Context, copy client.Object, cached *v1alpha1.Dispatch) error {
	later := laterAttempt(copy)
	if later == 0 || cached == nil || copy.GetDeletionTimestamp() != nil {
		return nil
	}
	// The cache may lag behind a later attempt that is on record. Then there is nothing to believe.
	stored, err := a.stored.see(ctx, a.here, copy)
	if err != nil {
		return err
	}
	d := stored.Dispatch
	if judgement.Of(stored).Copy != judgement.Needed || d == nil || d.Spec.Attempt != record.AttemptOn(copy) || d.Spec.TrainJob.UID != record.OriginOn(copy) {
		return nil
	}
	log.FromContext(ctx).Info("Worker has seen a later attempt than the hub knows",
		"dispatch", client.ObjectKeyFromObject(d), "attempt", d.Spec.Attempt, "later", later)
	_, err = records.AddTombstone(ctx, a.hub, a.stored, v1alpha1.TombstoneSpec{
		Cluster: a.here.Name, ClusterID: a.here.ClusterID, TrainJob: d.Spec.TrainJob, Namespace: d.Namespace, Attempt: later,
	})
	return err
}

// laterAttempt is the later attempt that the manager believes the worker's agent, 0 if the agent has written none.
func laterAttempt(copy client.Object) int32 {
	later, err := strconv.ParseInt(copy.GetAnnotations()[v1alpha1.AnnotationLaterAttempt], 10, 32)
	attempt := record.AttemptOn(copy)
	if err != nil || attempt == 0 || later <= int64(attempt) {
		return 0
	}
	return highestTrusted(attempt, int32(later))
}

// keep makes sure that a job gets a higher attempt than its copy that is gone or released: the worker's agent remembers
// that attempt, and runs no lower attempt. It returns true when the attempt is on record, or need not be.
func (a attempts) keep(ctx context.Context, key types.NamespacedName, held unknownCopy) (bool, error) {
	if held.why.stays() {
		return true, nil // The hub has not given the copy that attempt.
	}
	hub := hubReader{a.hub}
	job, err := records.Job(ctx, hub, key)
	if err != nil || !goesOn(job, held.origin) {
		return err == nil, err
	}
	d, err := records.Dispatch(ctx, hub, key)
	if err != nil {
		return false, err
	}
	recorded := int32(0)
	if d != nil && d.Spec.TrainJob.UID == held.origin {
		recorded = d.Spec.Attempt
	}
	return records.Keep(ctx, a.hub, a.stored, v1alpha1.TombstoneSpec{
		Cluster: a.here.Name, ClusterID: a.here.ClusterID, Namespace: key.Namespace, Attempt: highestTrusted(recorded, held.attempt),
		TrainJob: v1alpha1.TrainJobReference{Name: key.Name, UID: held.origin},
	})
}
