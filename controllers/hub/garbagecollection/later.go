// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"strconv"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
)

// heed believes the agent of the worker which says of a needed copy that it has seen a later attempt there, and will
// not let this one run: the hub has forgotten that attempt, as after a restore, or if the Dispatch of a waiting job is
// deleted while no manager works. A Tombstone of the later attempt has the copy deleted, and the job placed with a
// higher one. If the worker speaks of one that is too high to be believed, the hub counts on by maxSkipped: either the
// worker says so again, and the hub gets there, or the job ends up on a worker that does not lie.
func (r *reconciler) heed(ctx context.Context, copy client.Object, hub hubRecords) error {
	later := laterAttempt(copy)
	if later == 0 || hub.dispatch == nil || copy.GetDeletionTimestamp() != nil {
		return nil
	}
	// A later attempt may be on record, and the cache does not show it yet. Then there is nothing to believe.
	stored, err := r.observe(ctx, r.HubReader, copy)
	if err != nil {
		return err
	}
	d := stored.dispatch
	if judge(r.here(), copy, stored) != needed || d == nil || d.Spec.Attempt != attemptOf(copy) || d.Spec.TrainJob.UID != originOf(copy) {
		return nil
	}
	log.FromContext(ctx).Info("Worker has seen a later attempt than the hub knows",
		"dispatch", client.ObjectKeyFromObject(d), "attempt", d.Spec.Attempt, "later", later)
	_, err = records.AddTombstone(ctx, r.Hub, r.HubReader, v1alpha1.TombstoneSpec{
		Cluster: r.Cluster, ClusterID: r.ClusterID, TrainJob: d.Spec.TrainJob, Namespace: d.Namespace, Attempt: later,
	})
	return err
}

// laterAttempt is what the worker's agent is believed of a copy, 0 if it says nothing.
func laterAttempt(copy client.Object) int32 {
	later, err := strconv.ParseInt(copy.GetAnnotations()[v1alpha1.AnnotationLaterAttempt], 10, 32)
	attempt := attemptOf(copy)
	if err != nil || attempt == 0 || later <= int64(attempt) {
		return 0
	}
	return believable(attempt, int32(later))
}
