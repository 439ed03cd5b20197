// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// runningDelay is how long a copy lives before its Dispatch says that it is there. A shorter job is one status write
// cheaper.
const runningDelay = 10 * time.Second

// reporter writes on the Dispatch how the attempt gets on, and why it ends.
type reporter struct {
	seen    *observation
	attempt *attempt
	cluster v1alpha1.ClusterName
	clock   clock.PassiveClock
	budget  *Budget
	records records.Writer
	events  *announcer
}

// reportRunning says on the Dispatch, after runningDelay, that the copy exists, and from then on the progress of the
// copy.
func (r *reporter) reportRunning(ctx context.Context) (time.Duration, error) {
	var due time.Duration
	healthy, later := r.healthy()
	switch {
	case r.seen.dispatch.Status.Phase == v1alpha1.PhaseEvicting:
		// Somebody has taken the eviction back in time.
	case !r.seen.dispatch.WasCopied():
		if due = r.runningDue(); due == 0 {
			r.budget.spend(r.clock.Now(), sizeOf(r.seen.dispatch))
		}
	case r.seen.hasProgressed() || r.seen.isHeldOtherwise(r.cluster) || !r.seen.saysTTL(r.cluster) || !r.seen.saysHealth(healthy):
		due = r.progressDue()
	default:
		r.attempt.written.progress.news.reset()
		return later, nil
	}
	if due > 0 {
		return due, nil
	}
	stopped := false
	err := r.records.UpdateStatus(ctx, r.seen.dispatch, func(status *v1alpha1.DispatchStatus) {
		before := status.Stops
		r.setCopied(status)
		stopped = status.Stops > before
		record.ClearEvicting(status)
		status.Phase, status.Reason = r.seen.phaseAt(status)
		if healthy != nil {
			record.SetHealth(status, r.seen.dispatch, *healthy, r.clock.Now())
		}
	})
	r.attempt.written.progress.tried(err, r.clock.Now())
	if err != nil {
		return 0, err
	}
	r.events.health(healthy)
	if stopped {
		r.events.stopped()
	}
	return later, nil
}

// runningDue is how long until the Dispatch has to say Running. A Dispatch that says Waiting has to say so at once.
func (r *reporter) runningDue() time.Duration {
	if r.seen.dispatch.Status.Phase == v1alpha1.PhaseWaiting {
		return 0
	}
	return max(0, runningDelay-r.clock.Since(r.attempt.copy.since))
}

// progressDue is how long until the Dispatch has to show gathered changes. The changes of a short copy are not shown.
func (r *reporter) progressDue() time.Duration {
	now, progress := r.clock.Now(), &r.attempt.written.progress
	if due := max(progress.gather(now), runningDelay-now.Sub(r.attempt.copy.since)); due > 0 {
		return due
	}
	return progress.turn.due(r.budget, sizeOf(r.seen.dispatch), now)
}

// reportReturned says that the worker is back. Nothing else is done until that is on record: another controller may be
// giving the attempt up, and only one of the two writes succeeds. The write wakes us.
func (r *reporter) reportReturned(ctx context.Context) error {
	return r.records.UpdateStatus(ctx, r.seen.dispatch, func(status *v1alpha1.DispatchStatus) {
		record.ClearWorkerLost(status, r.seen.dispatch)
	})
}

// reportEvicting says on the Dispatch that the attempt is being ended.
func (r *reporter) reportEvicting(ctx context.Context) error {
	return r.records.UpdateStatus(ctx, r.seen.dispatch, func(status *v1alpha1.DispatchStatus) {
		if r.seen.copy != nil && !r.seen.dispatch.WasCopied() {
			r.setCopied(status)
		} else if status.Phase != v1alpha1.PhaseEvicting { // A report that comes later costs no write.
			r.seen.reports.show(status)
		}
		record.SetEvicting(status, r.seen.dispatch, r.evictionMessage(), r.clock.Now())
	})
}

// reportKept says on the Dispatch why the copy is still there, in the worker's words.
func (r *reporter) reportKept(ctx context.Context, refusal error) error {
	return r.records.UpdateStatus(ctx, r.seen.dispatch, func(status *v1alpha1.DispatchStatus) {
		r.seen.setCopyUID(status)
		record.SetDeletionRefused(status, r.seen.dispatch, refusalWords(refusal), r.clock.Now())
	})
}

// reportFinished says on the Dispatch how the copy ended, after the hub TrainJob says it.
func (r *reporter) reportFinished(ctx context.Context) error {
	end := trainjobs.Terminal(r.seen.job)
	if end == nil {
		end = trainjobs.Terminal(r.seen.copy)
	}
	err := r.records.Finish(ctx, r.seen.dispatch, end, func(status *v1alpha1.DispatchStatus) {
		r.seen.showProgress(status)
		r.seen.setCopyUID(status)
	})
	if err != nil {
		return err
	}
	r.events.failed(end)
	return nil
}

// endAttempt says on the Dispatch that the attempt has no copy and will have none, so that placement decides again.
func (r *reporter) endAttempt(ctx context.Context, outcome v1alpha1.Outcome, message string) error {
	if err := r.records.EndCopy(ctx, r.seen.dispatch, outcome, message, r.attempt.showStop); err != nil {
		return err
	}
	r.attempt.ended = true
	r.events.ended(outcome, message)
	return nil
}

// evictChanged asks for the end of an attempt whose copy differs from the job in what is named.
func (r *reporter) evictChanged(ctx context.Context, names []string, why string) error {
	return r.askEviction(ctx, v1alpha1.EvictionCopyChanged,
		fmt.Sprintf("%s of the copy was changed on worker %q, and %s", strings.Join(names, ", "), r.cluster, why))
}

// askEviction asks for the end of the attempt. The write wakes us.
func (r *reporter) askEviction(ctx context.Context, reason v1alpha1.EvictionReason, message string) error {
	updated := r.seen.dispatch.DeepCopy()
	record.Evict(updated, v1alpha1.Eviction{Reason: reason, Message: message})
	if err := r.records.Patch(ctx, r.seen.dispatch, updated); err != nil {
		return r.records.Refused(ctx, r.seen.dispatch, v1alpha1.ReasonDispatchRefused, err)
	}
	return nil
}

// evictionMessage says to the owner of the job why the job has to leave.
func (r *reporter) evictionMessage() string {
	if message := r.seen.dispatch.Spec.Eviction.Message; message != "" {
		return message
	}
	return fmt.Sprintf("the job has to leave worker %q", r.cluster)
}

// conflictMessage says that a foreign TrainJob has the name of the copy.
func (r *reporter) conflictMessage() string {
	return fmt.Sprintf("worker %q has another TrainJob %s/%s, which is left alone", r.cluster, r.seen.dispatch.Namespace, r.seen.dispatch.Name)
}

// setCopied says that the copy exists, and how it gets on.
func (r *reporter) setCopied(status *v1alpha1.DispatchStatus) {
	r.seen.showProgress(status)
	r.seen.setCopyUID(status)
	if r.seen.copy != nil && r.seen.job != nil && r.seen.isHeld() && r.seen.held.message != "" {
		record.SetQueued(status, r.seen.dispatch, r.seen.held.reason, r.seen.held.on(r.cluster), r.clock.Now())
		return
	}
	record.SetCopied(status, r.seen.dispatch, r.clock.Now())
	record.SetCondition(status, r.seen.dispatch, metav1.Condition{
		Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCopied,
		Message: r.seen.copiedMessage(r.cluster),
	}, r.clock.Now())
}

// setCopyUID says which copy the attempt has, if it is there.
func (f *observation) setCopyUID(status *v1alpha1.DispatchStatus) {
	if f.isCurrent(f.copy) {
		status.CopyUID = f.copy.GetUID()
	}
}
