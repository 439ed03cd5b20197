// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// A cache of the hub may lag. Before a step that would be wrong if the cache were, its API server is asked. None of
// these steps is on the way of a job that runs and ends.

const (
	// startLag is how long a new mirror doubts the hub's caches, which were filled while another replica was leading.
	startLag = 10 * time.Second
	// pushLag is how long it may take until the cache shows a write of ours. No attempt is given up as lost meanwhile.
	pushLag = 5 * time.Second
)

// doubted is true while the hub's caches may lag behind the writes of the replica that led before.
func (r *reconciler) doubted() bool {
	return r.Clock.Since(r.started) < startLag
}

// dispatchIsCurrent is true if the cached Dispatch is the API server's.
func (h *hubSide) dispatchIsCurrent(ctx context.Context) (bool, error) {
	if h.memory.verified || !h.doubted() {
		return true, nil
	}
	var err error
	h.memory.verified, err = h.isStored(ctx)
	return h.memory.verified, err
}

// isStored is true if the API server has the Dispatch as it was observed.
func (h *hubSide) isStored(ctx context.Context) (bool, error) {
	stored := &v1alpha1.Dispatch{}
	if err := h.HubReader.Get(ctx, client.ObjectKeyFromObject(h.dispatch), stored); err != nil {
		return false, client.IgnoreNotFound(err)
	}
	return stored.ResourceVersion == h.dispatch.ResourceVersion, nil
}

// maySpeak is true if the copy's status may be written to the hub TrainJob. Whoever gives an attempt up removes what
// its copy has said, and then says on the Dispatch that the attempt is over. The cache may not show that yet. So a
// TrainJob without a status is doubted if this process, or an earlier one, may have written one.
//
// A TrainJob is not doubted for pushLag after a write: the cache may not show that write yet, and the next has a lock.
func (h *hubSide) maySpeak(ctx context.Context) (bool, error) {
	said := h.memory.said
	spoke := said.pushed != 0 || said.before
	if !spoke || h.job.Object["status"] != nil || h.Clock.Since(said.pushedAt) < pushLag {
		return true, nil
	}
	return h.isStored(ctx)
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
	stored, err := get(ctx, h.HubReader, client.ObjectKeyFromObject(h.dispatch))
	return stored == nil || stored.GetUID() != h.dispatch.Spec.TrainJob.UID, err
}
