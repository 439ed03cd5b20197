// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
)

const (
	// hopelessTime is how long a job keeps its quota while no worker could take it even if no other job ran there. Workers
	// may be away for a moment. The time doubles with each time that Kueue gives the quota to the job again. maxHopeless
	// is the longest time.
	hopelessTime = time.Minute
	maxHopeless  = 8 * time.Minute
)

// admission answers the admission checks of jobs that wait for room with quota of the hub's Kueue.
type admission struct {
	hub     client.Client
	decider *decider.Decider
	waiting *waiting
	clock   clock.PassiveClock
}

// admit lets Kueue admit a job whose Dispatch names a worker. It does nothing about a job without an admission check.
func (a *admission) admit(ctx context.Context, seen *observation, worker v1alpha1.ClusterName) error {
	return a.answer(ctx, seen, kueues.CheckReady, fmt.Sprintf("worker %s holds room for the job", worker))
}

// keepQuota says in the admission check of a job why the job waits with its quota. A job that no worker could take for
// some time gives the quota back, so that Kueue can give it to others. keepQuota returns when to look again.
func (a *admission) keepQuota(ctx context.Context, seen *observation, reason string) (time.Duration, error) {
	if seen.kueue.Review == nil {
		return 0, nil
	}
	key := seen.key()
	var left time.Duration
	if since := a.waiting.hope(key, a.decider.FitsEmpty(key)); !since.IsZero() {
		left = hopelessFor(seen.kueue.Review.Retries()) - a.clock.Since(since)
		if left <= 0 {
			return 0, a.giveBack(ctx, seen, reason)
		}
	}
	return left, a.answer(ctx, seen, kueues.CheckPending, fmt.Sprintf(
		"the job waits for room on a worker (%s): Dispatch %s says what each worker lacks", reason, key))
}

// hopelessFor is how long a hopeless job keeps its quota after it has given it back some times in a row.
func hopelessFor(retries int64) time.Duration {
	return min(hopelessTime<<min(max(retries, 0), 10), maxHopeless)
}

// giveBack lets Kueue take the quota of a job back, at once. With a delay in the check (requeueAfterSeconds), Kueue
// v0.19 takes the quota back only when the delay is over.
func (a *admission) giveBack(ctx context.Context, seen *observation, reason string) error {
	message := fmt.Sprintf("no worker could take the job, even if no other job ran there (%s): Dispatch %s says why",
		reason, seen.key())
	if err := a.answer(ctx, seen, kueues.CheckRetry, message); err != nil {
		return err
	}
	a.waiting.hope(seen.key(), true) // The time begins again when the job has quota again.
	return nil
}

// answer writes the state of the admission check, if it differs. The write fails with a conflict if Kueue has changed
// the Workload, by an eviction for example.
func (a *admission) answer(ctx context.Context, seen *observation, state, message string) error {
	review := seen.kueue.Review
	if review == nil || review.Says(state, message) {
		return nil
	}
	patch := review.Patch(state, message, a.clock.Now())
	key := client.ObjectKeyFromObject(patch)
	//nolint:staticcheck // The patch is no typed apply configuration.
	err := a.hub.Status().Patch(ctx, patch, client.Apply, client.FieldOwner(kueue.CheckOwner), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch admission checks of Workload %s: %w", key, err)
	}
	log.FromContext(ctx).Info("Decided the admission check", "workload", key, "state", state, "message", message)
	return nil
}
