// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// withdraw deletes the copy of a job that leaves, and says what holds it if its end takes long. The end of the copy
// wakes us, if the cache shows the copy.
func (v *visit) withdraw(ctx context.Context) (time.Duration, error) {
	if v.believed {
		return v.release(ctx)
	}
	if gone, err := v.jobIsGone(ctx); !gone || err != nil {
		return requeue.ConflictDelay, err
	}
	if v.copy.GetDeletionTimestamp() != nil {
		return v.awaitEnd(ctx)
	}
	return 0, v.deleteOrSay(ctx, client.Preconditions{})
}

// release lets the Dispatch go after its copy. It does not wait for the garbage collector to delete the Dispatch.
func (v *visit) release(ctx context.Context) (time.Duration, error) {
	if gone, err := v.jobIsGone(ctx); !gone || err != nil {
		return requeue.ConflictDelay, err
	}
	if v.believed || record.AttemptOf(v.dispatch).Live() {
		v.attempt.copy.unseen = nil // The worker's API server is asked now whether the copy is there.
		if due, err := v.leaveNothing(ctx); due > 0 || err != nil {
			return due, err
		}
	}
	if v.dispatch.DeletionTimestamp != nil {
		return v.removeFinalizer(ctx)
	}
	err := v.records().Delete(ctx, v.dispatch)
	return 0, client.IgnoreNotFound(err) // The event of it brings us back, to remove the finalizer.
}

// leaveNothing makes sure that nothing is left of an attempt that has not ended on record. It returns when to look
// again, zero if nothing is left. The pods count only if the job stays: placement is about to place it again.
func (v *visit) leaveNothing(ctx context.Context) (time.Duration, error) {
	look := v.lookForCopy
	if record.JobStays(v.dispatch, v.job) {
		look = v.lookFor
	}
	found, err := look(ctx)
	if err != nil {
		return 0, err
	}
	switch found.presence {
	case left:
		v.copy = nil
		_, err := v.awaitEnd(ctx)
		return found.wait, err
	case arriving:
		return found.wait, nil
	case current, second, older:
		return endCheck, v.worker.DeleteCopy(ctx, found.copy, client.Preconditions{})
	case nothing, foreign:
	}
	if !record.JobStays(v.dispatch, v.job) {
		return 0, nil
	}
	if ok, err := v.takeBackStatus(ctx); !ok || err != nil {
		return requeue.ConflictDelay, err
	}
	return 0, nil
}

// removeFinalizer lets a deleted Dispatch go. If the job stays, its attempt is kept first: the next one is higher.
func (v *visit) removeFinalizer(ctx context.Context) (time.Duration, error) {
	if !record.IsGuarded(v.dispatch) {
		return 0, nil
	}
	if record.JobStays(v.dispatch, v.job) && trainjobs.Terminal(v.job) == nil {
		spec := records.TombstoneOf(v.dispatch, cmp.Or(v.dispatch.Spec.ClusterID, v.ClusterID))
		if kept, err := records.Keep(ctx, v.Hub, v.HubReader, spec); !kept || err != nil {
			return requeue.ConflictDelay, err
		}
	}
	return 0, client.IgnoreNotFound(v.records().ReleaseCopy(ctx, v.dispatch, v.attempt.showStop))
}

// jobIsGone is true if the hub TrainJob that the cache does not show is not there. It asks the API server: after a
// pause in which another process has led, the cache may show the Dispatch before its TrainJob.
func (h *hubSide) jobIsGone(ctx context.Context) (bool, error) {
	if h.copy != nil && h.isOurs(h.copy) && !h.isCurrent(h.copy) {
		return h.isStored(ctx) // The copy may be of a later attempt, whose Dispatch the cache does not show yet.
	}
	going := h.dispatch.DeletionTimestamp != nil || h.job != nil && h.job.GetUID() == h.dispatch.Spec.TrainJob.UID
	if going || h.dispatch.IsFinished() && !h.doubted() {
		return true, nil
	}
	stored, err := records.Job(ctx, h.HubReader, client.ObjectKeyFromObject(h.dispatch))
	return stored == nil || stored.GetUID() != h.dispatch.Spec.TrainJob.UID, err
}
