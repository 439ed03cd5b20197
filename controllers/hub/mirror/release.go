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
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// withdraw deletes the copy of a job that leaves, and says what holds it if its end takes long. The end of the copy
// wakes us, if the cache shows the copy.
func (s *stopper) withdraw(ctx context.Context) (time.Duration, error) {
	if s.seen.believed {
		return s.release(ctx)
	}
	if gone, err := s.verifier.jobIsGone(ctx); !gone || err != nil {
		return requeue.ConflictDelay, err
	}
	if s.seen.copy.GetDeletionTimestamp() != nil {
		return s.awaitEnd(ctx)
	}
	return 0, s.deleteOrReport(ctx, client.Preconditions{})
}

// release lets the Dispatch go after its copy. It does not wait for the garbage collector to delete the Dispatch.
func (s *stopper) release(ctx context.Context) (time.Duration, error) {
	if gone, err := s.verifier.jobIsGone(ctx); !gone || err != nil {
		return requeue.ConflictDelay, err
	}
	if s.seen.believed || record.AttemptOf(s.seen.dispatch).Live() {
		s.attempt.copy.unseen = nil // The worker's API server is asked now whether the copy is there.
		if due, err := s.leaveNothing(ctx); due > 0 || err != nil {
			return due, err
		}
	}
	if s.seen.dispatch.DeletionTimestamp != nil {
		return s.removeFinalizer(ctx)
	}
	err := s.records.Delete(ctx, s.seen.dispatch)
	return 0, client.IgnoreNotFound(err) // The event of it brings us back, to remove the finalizer.
}

// leaveNothing makes sure that nothing is left of an attempt that has not ended on record. It returns when to look
// again, zero if nothing is left. The pods count only if the job stays: placement is about to place it again.
func (s *stopper) leaveNothing(ctx context.Context) (time.Duration, error) {
	look := s.search.lookForCopy
	if record.JobStays(s.seen.dispatch, s.seen.job) {
		look = s.search.lookFor
	}
	found, err := look(ctx)
	if err != nil {
		return 0, err
	}
	switch found.remains {
	case copies.Left:
		s.seen.copy = nil
		_, err := s.awaitEnd(ctx)
		return found.wait, err
	case copies.Arriving:
		return found.wait, nil
	case copies.Current, copies.Second, copies.Older:
		return endCheck, s.worker.DeleteCopy(ctx, found.copy, client.Preconditions{})
	case copies.Nothing, copies.Foreign:
	}
	if !record.JobStays(s.seen.dispatch, s.seen.job) {
		return 0, nil
	}
	if ok, err := s.status.takeBackStatus(ctx); !ok || err != nil {
		return requeue.ConflictDelay, err
	}
	return 0, nil
}

// removeFinalizer lets a deleted Dispatch go. If the job stays, its attempt is kept first: the next one is higher.
func (s *stopper) removeFinalizer(ctx context.Context) (time.Duration, error) {
	if !record.IsGuarded(s.seen.dispatch) {
		return 0, nil
	}
	if record.JobStays(s.seen.dispatch, s.seen.job) && trainjobs.Terminal(s.seen.job) == nil {
		spec := records.TombstoneOf(s.seen.dispatch, cmp.Or(s.seen.dispatch.Spec.ClusterID, s.clusterID))
		if kept, err := records.Keep(ctx, s.hub, s.hubReader, spec); !kept || err != nil {
			return requeue.ConflictDelay, err
		}
	}
	return 0, client.IgnoreNotFound(s.records.ReleaseCopy(ctx, s.seen.dispatch, s.attempt.showStop))
}

// jobIsGone is true if the hub TrainJob that the cache does not show is not there. It asks the API server: after a
// pause in which another process has led, the cache may show the Dispatch before its TrainJob.
func (v *verifier) jobIsGone(ctx context.Context) (bool, error) {
	if v.seen.copy != nil && v.seen.isOurs(v.seen.copy) && !v.seen.isCurrent(v.seen.copy) {
		return v.isStored(ctx) // The copy may be of a later attempt, whose Dispatch the cache does not show yet.
	}
	going := v.seen.dispatch.DeletionTimestamp != nil || v.seen.job != nil && v.seen.job.GetUID() == v.seen.dispatch.Spec.TrainJob.UID
	if going || v.seen.dispatch.IsFinished() && !v.doubted() {
		return true, nil
	}
	stored, err := records.Job(ctx, v.hubReader, client.ObjectKeyFromObject(v.seen.dispatch))
	return stored == nil || stored.GetUID() != v.seen.dispatch.Spec.TrainJob.UID, err
}
