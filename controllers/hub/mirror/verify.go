// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// What a cache does not show is no proof that it is not there: a watch may lag, and a label may be gone. So before a step that
// would be wrong if the cache were, the API server is asked. None of these steps is on the way of a job that runs and ends.

const (
	// startLag is how long after the start of a mirror the hub's caches, filled while another replica was leading, are doubted.
	startLag = 10 * time.Second
	// pushLag is how long a write of ours may take to be seen. Nobody is given up for lost within that time.
	pushLag = 5 * time.Second
	// endCheck is how often it is looked whether pods that nobody tells us of have ended.
	endCheck = time.Second
)

// doubted is true while the hub's caches may lag behind the writes of the replica that led before.
func (r *reconciler) doubted() bool {
	return r.Clock.Since(r.started) < startLag
}

// dispatchIsCurrent is true if the cached Dispatch is the API server's.
func (r *reconciler) dispatchIsCurrent(ctx context.Context, f facts, past *recollection) (bool, error) {
	if past.verified || !r.doubted() {
		return true, nil
	}
	var err error
	past.verified, err = r.isStored(ctx, f.dispatch)
	return past.verified, err
}

// isStored is true if the Dispatch is the API server's.
func (r *reconciler) isStored(ctx context.Context, dispatch *v1alpha1.Dispatch) (bool, error) {
	stored := &v1alpha1.Dispatch{}
	if err := r.HubReader.Get(ctx, client.ObjectKeyFromObject(dispatch), stored); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return stored.ResourceVersion == dispatch.ResourceVersion, nil
}

// maySpeak is true if what the copy says may be said of the hub's job. Whoever gives an attempt up takes back what its copy has said, and
// then says on the Dispatch that it is over, which the cache may not show yet. So a copy is doubted that has said
// something before, by this process's memory, or may have to the process before.
//
// What was said a moment ago the cache need not show yet either. That is no doubt: the write has a lock.
func (r *reconciler) maySpeak(ctx context.Context, f facts, past *recollection) (bool, error) {
	spoke := past.pushed != 0 || past.foundCopied
	if !spoke || f.job.Object["status"] != nil || r.Clock.Since(past.pushedAt) < pushLag {
		return true, nil
	}
	return r.isStored(ctx, f.dispatch)
}

// jobIsGone is true if the hub TrainJob that the cache does not show is not there. The cache of a process that was stopped for a while, as
// another one led, may show the Dispatch earlier than its TrainJob, so the API server is asked before a job that lives loses its copy.
func (r *reconciler) jobIsGone(ctx context.Context, f facts) (bool, error) {
	if f.copy != nil && f.isOurs(f.copy) && !f.isCurrent(f.copy) {
		return r.isStored(ctx, f.dispatch) // Of a later attempt, say, whose Dispatch the cache does not show yet.
	}
	going := f.dispatch.DeletionTimestamp != nil || f.job != nil && f.job.GetUID() == f.dispatch.Spec.TrainJob.UID
	if going || f.dispatch.IsFinished() && !r.doubted() {
		return true, nil
	}
	stored, err := get(ctx, r.HubReader, client.ObjectKeyFromObject(f.dispatch))
	return stored == nil || stored.GetUID() != f.dispatch.Spec.TrainJob.UID, err
}

// leaveNothing makes sure that nothing is left of an attempt that has not been reported as ended. It returns when to look again, zero
// if nothing is.
func (r *reconciler) leaveNothing(ctx context.Context, worker client.Client, f facts, past *recollection) (time.Duration, error) {
	// A creation whose answer was lost may have left a copy that the cache does not show, or may leave one yet.
	found, err := finding{}, error(nil)
	if jobStays(f) { // Somebody has deleted the Dispatch, and the job is about to be placed again.
		found, err = r.lookFor(ctx, worker, f, past)
	} else {
		found, err = r.lookForCopy(ctx, f, past)
	}
	if err != nil {
		return 0, err
	}
	switch found.presence {
	case arriving:
		return found.wait, nil
	case podsAlive:
		return endCheck, nil
	case current, second, older:
		return endCheck, r.withdraw(ctx, worker, found.copy)
	case foreign, nothing:
	}
	if !jobStays(f) {
		return 0, nil
	}
	if ok, err := r.takeBackStatus(ctx, f, past); !ok || err != nil {
		return conflictDelay, err
	}
	return 0, nil
}
