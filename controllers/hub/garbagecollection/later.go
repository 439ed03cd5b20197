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

// heed handles a needed copy on which the worker's agent says that it has seen a later attempt, and will not run this
// one. The hub has forgotten the later attempt: after a restore, or because somebody deleted the Dispatch of a waiting
// job while no manager worked. heed writes a Tombstone of the later attempt. So the manager deletes the copy, and
// places the job with a higher attempt. If the later attempt is too high to be believed, the hub counts on by
// maxSkipped. Then either the worker says so again until the hub gets there, or the job is placed on a worker that does
// not lie.
func (r *reconciler) heed(ctx context.Context, copy client.Object, hub hubRecords) error {
	later := laterAttempt(copy)
	if later == 0 || hub.dispatch == nil || copy.GetDeletionTimestamp() != nil {
		return nil
	}
	// The cache may lag behind a later attempt that is on record. Then there is nothing to believe.
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

// laterAttempt is the later attempt that the manager believes the worker's agent, 0 if the agent has written none.
func laterAttempt(copy client.Object) int32 {
	later, err := strconv.ParseInt(copy.GetAnnotations()[v1alpha1.AnnotationLaterAttempt], 10, 32)
	attempt := attemptOf(copy)
	if err != nil || attempt == 0 || later <= int64(attempt) {
		return 0
	}
	return believable(attempt, int32(later))
}
