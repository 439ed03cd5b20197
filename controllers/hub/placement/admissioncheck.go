// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
)

const (
	// hopelessTime is how long a job keeps its quota while no worker could take it even if no other job ran there. Workers
	// may be away for a moment.
	hopelessTime = time.Minute
	// maxRetries is more than backoff needs for its longest delay.
	maxRetries = 100
)

// admit lets Kueue admit a job whose Dispatch names a worker. It does nothing about a job without an admission check.
func (r *Reconciler) admit(ctx context.Context, f observation, worker v1alpha1.ClusterName) error {
	return r.answer(ctx, f, kueue.Ready, fmt.Sprintf("worker %s holds room for the job", worker), 0)
}

// keepQuota says in the admission check of a job why the job waits with its quota. A job that no worker could take for
// some time gives the quota back, so that other jobs can use it. Kueue gives the job quota again after a delay, which
// grows each time. keepQuota returns when to look again.
func (r *Reconciler) keepQuota(ctx context.Context, f observation, reason string) (time.Duration, error) {
	if f.kueue.Review == nil {
		return 0, nil
	}
	key := client.ObjectKeyFromObject(f.job)
	var left time.Duration
	if since := r.history.hope(key, r.decider.FitsEmpty(key)); !since.IsZero() {
		left = hopelessTime - r.Clock.Since(since)
		if left <= 0 {
			return 0, r.giveBack(ctx, f, reason)
		}
	}
	return left, r.answer(ctx, f, kueue.Pending, fmt.Sprintf(
		"the job waits for room on a worker (%s): Dispatch %s says what each worker lacks", reason, key), 0)
}

// giveBack lets Kueue take the quota of a job back.
func (r *Reconciler) giveBack(ctx context.Context, f observation, reason string) error {
	message := fmt.Sprintf("no worker could take the job, even if no other job ran there (%s): Dispatch %s says why",
		reason, client.ObjectKeyFromObject(f.job))
	retries := min(f.kueue.Review.Retries(), maxRetries)
	return r.answer(ctx, f, kueue.Retry, message, backoff(int32(retries)+1)) //nolint:gosec // It is at most maxRetries.
}

// reviewQuota looks again at the jobs that wait with quota: workers have changed. Changes are gathered.
func (r *Reconciler) reviewQuota() {
	for _, key := range r.waiting.keepingQuota() {
		r.inbox.AddAfter(key, explanationInterval)
	}
}

// answer writes the state of the admission check, if it differs. The write fails with a conflict if Kueue has changed
// the Workload, by an eviction for example.
func (r *Reconciler) answer(ctx context.Context, f observation, state, message string, delay time.Duration) error {
	review := f.kueue.Review
	if review == nil || review.Says(state, message) {
		return nil
	}
	patch := review.Patch(state, message, delay, r.Clock.Now())
	key := client.ObjectKeyFromObject(patch)
	//nolint:staticcheck // The patch is no typed apply configuration.
	err := r.Hub.Status().Patch(ctx, patch, client.Apply, client.FieldOwner(kueue.CheckOwner), client.ForceOwnership)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch admission checks of Workload %s: %w", key, err)
	}
	log.FromContext(ctx).Info("Decided the admission check", "workload", key, "state", state, "message", message)
	return nil
}
