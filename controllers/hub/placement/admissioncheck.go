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

// hopelessTime is how long a job keeps its quota while no worker could take it even if no other job ran there. Workers
// may be away for a moment.
const hopelessTime = time.Minute

// admit lets Kueue admit a job whose Dispatch names a worker: the job has room there. It does nothing about a job that
// waits for no admission check.
func (r *Reconciler) admit(ctx context.Context, f observation, worker v1alpha1.ClusterName) error {
	return r.answer(ctx, f, kueue.Ready, fmt.Sprintf("worker %s holds room for the job", worker), 0)
}

// keepQuota says in the admission check of a job on the waiting list why the job waits with its quota. If nothing can
// help for long but a new or larger worker, or a change of the job, it gives the quota back: other jobs can use it.
// Kueue gives the job quota again after a delay that grows each time. keepQuota returns when to look again.
func (r *Reconciler) keepQuota(ctx context.Context, f observation, reason string) (time.Duration, error) {
	if f.kueue.Review == nil {
		return 0, nil
	}
	key := client.ObjectKeyFromObject(f.job)
	hopeless := r.history.hope(key, r.decider.FitsEmpty(key))
	if left := hopelessTime - r.Clock.Since(hopeless); hopeless.IsZero() || left > 0 {
		message := fmt.Sprintf("the job waits for room on a worker (%s): Dispatch %s says what each worker lacks", reason, key)
		if hopeless.IsZero() {
			left = 0
		}
		return left, r.answer(ctx, f, kueue.Pending, message, 0)
	}
	message := fmt.Sprintf("no worker could take the job, even if no other job ran there (%s): Dispatch %s says why", reason, key)
	return 0, r.answer(ctx, f, kueue.Retry, message, backoff(int32(min(f.kueue.Review.Retries(), maxRetries))+1))
}

// reviewQuota looks again at the jobs that wait with quota: workers have changed. Changes are gathered.
func (r *Reconciler) reviewQuota() {
	for _, key := range r.waiting.keepingQuota() {
		r.inbox.AddAfter(key, explanationInterval)
	}
}

// maxRetries is more than backoff needs for its longest delay.
const maxRetries = 100

// answer writes the state of the admission check, if it differs. The write fails with a conflict if Kueue has changed
// the Workload, by an eviction for example.
func (r *Reconciler) answer(ctx context.Context, f observation, state, message string, delay time.Duration) error {
	review := f.kueue.Review
	if review == nil || review.Says(state, message) {
		return nil
	}
	patch := review.Patch(state, message, delay, r.Clock.Now())
	err := r.Hub.Status().Patch(ctx, patch, client.Apply, client.FieldOwner(kueue.CheckOwner), client.ForceOwnership) //nolint:staticcheck // The patch is no typed apply configuration.
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch admission checks of Workload %s: %w", client.ObjectKeyFromObject(patch), err)
	}
	log.FromContext(ctx).Info("Decided the admission check", "workload", client.ObjectKeyFromObject(patch), "state", state, "message", message)
	return nil
}
