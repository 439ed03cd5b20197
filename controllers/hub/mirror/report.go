// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// runningDelay is how long a copy lives before its Dispatch says that it is there. A shorter job is one status write
// cheaper.
const runningDelay = 10 * time.Second

// reportRunning says on the Dispatch, after runningDelay, that the copy exists, and from then on the progress of the
// copy.
func (h *hubSide) reportRunning(ctx context.Context) (time.Duration, error) {
	var due time.Duration
	healthy, later := h.healthy()
	switch {
	case h.dispatch.Status.Phase == v1alpha1.PhaseEvicting:
		// Somebody has taken the eviction back in time.
	case !h.dispatch.WasCopied():
		if due = h.runningDue(); due == 0 {
			h.Budget.spend(h.Clock.Now(), sizeOf(h.dispatch))
		}
	case h.hasProgressed() || h.isHeldOtherwise(h.Cluster) || !h.saysHealth(healthy):
		due = h.progressDue()
	default:
		h.attempt.said.progress.news.reset()
		return later, nil
	}
	if due > 0 {
		return due, nil
	}
	stopped := false
	err := h.records().UpdateStatus(ctx, h.dispatch, func(status *v1alpha1.DispatchStatus) {
		before := status.Stops
		h.setCopied(status)
		stopped = status.Stops > before
		record.GoOn(status)
		status.Phase, status.Reason = h.phaseAt(status)
		if healthy != nil {
			record.SetHealth(status, h.dispatch, *healthy, h.Clock.Now())
		}
	})
	h.attempt.said.progress.tried(err, h.Clock.Now())
	if err != nil {
		return 0, err
	}
	announcer{h}.health(healthy)
	if stopped {
		announcer{h}.stopped()
	}
	return later, nil
}

// runningDue is how long until the Dispatch has to say Running. A Dispatch that says Waiting has to say so at once.
func (h *hubSide) runningDue() time.Duration {
	if h.dispatch.Status.Phase == v1alpha1.PhaseWaiting {
		return 0
	}
	return max(0, runningDelay-h.Clock.Since(h.attempt.copy.since))
}

// progressDue is how long until the Dispatch has to show gathered changes. The changes of a short copy are not shown.
func (h *hubSide) progressDue() time.Duration {
	now, progress := h.Clock.Now(), &h.attempt.said.progress
	if due := max(progress.gather(now), runningDelay-now.Sub(h.attempt.copy.since)); due > 0 {
		return due
	}
	return progress.turn.due(h.Budget, sizeOf(h.dispatch), now)
}

// reportReturned says that the worker is back. Nothing else is done until that is on record: another controller may be
// giving the attempt up, and only one of the two writes succeeds. The write wakes us.
func (h *hubSide) reportReturned(ctx context.Context) error {
	return h.records().UpdateStatus(ctx, h.dispatch, func(status *v1alpha1.DispatchStatus) {
		record.Return(status, h.dispatch)
	})
}

// reportEvicting says on the Dispatch that the attempt is being ended.
func (h *hubSide) reportEvicting(ctx context.Context) error {
	return h.records().UpdateStatus(ctx, h.dispatch, func(status *v1alpha1.DispatchStatus) {
		if h.copy != nil && !h.dispatch.WasCopied() {
			h.setCopied(status)
		}
		record.Stop(status, h.dispatch, h.evictionMessage(), h.Clock.Now())
	})
}

// reportKept says on the Dispatch why the copy is still there, in the worker's words.
func (h *hubSide) reportKept(ctx context.Context, refusal error) error {
	return h.records().UpdateStatus(ctx, h.dispatch, func(status *v1alpha1.DispatchStatus) {
		h.setCopyUID(status)
		record.SetKept(status, h.dispatch, refusalWords(refusal), h.Clock.Now())
	})
}

// reportFinished says on the Dispatch how the copy ended, after the hub TrainJob says it.
func (h *hubSide) reportFinished(ctx context.Context) error {
	end := trainjobs.Terminal(h.job)
	if end == nil {
		end = trainjobs.Terminal(h.copy)
	}
	err := h.records().Finish(ctx, h.dispatch, end, func(status *v1alpha1.DispatchStatus) {
		h.showProgress(status)
		h.setCopyUID(status)
	})
	if err != nil {
		return err
	}
	announcer{h}.failed(end)
	return nil
}

// endAttempt says on the Dispatch that the attempt has no copy and will have none, so that placement decides again.
func (h *hubSide) endAttempt(ctx context.Context, outcome v1alpha1.Outcome, message string) error {
	if err := h.records().EndCopy(ctx, h.dispatch, outcome, message, h.attempt.showStop); err != nil {
		return err
	}
	h.attempt.ended = true
	announcer{h}.ended(outcome, message)
	return nil
}

// evictChanged asks for the end of an attempt whose copy differs from the job in what is named.
func (h *hubSide) evictChanged(ctx context.Context, names []string, why string) error {
	return h.askEviction(ctx, v1alpha1.EvictionCopyChanged,
		fmt.Sprintf("%s of the copy was changed on worker %q, and %s", strings.Join(names, ", "), h.Cluster, why))
}

// askEviction asks for the end of the attempt. The write wakes us.
func (h *hubSide) askEviction(ctx context.Context, reason v1alpha1.EvictionReason, message string) error {
	updated := h.dispatch.DeepCopy()
	record.Evict(updated, v1alpha1.Eviction{Reason: reason, Message: message})
	if err := h.records().Patch(ctx, h.dispatch, updated); err != nil {
		return h.records().Refused(ctx, h.dispatch, v1alpha1.ReasonDispatchRefused, err)
	}
	return nil
}

// evictionMessage says to the owner of the job why the job has to leave.
func (h *hubSide) evictionMessage() string {
	if message := h.dispatch.Spec.Eviction.Message; message != "" {
		return message
	}
	return fmt.Sprintf("the job has to leave worker %q", h.Cluster)
}

// conflictMessage says that a foreign TrainJob has the name of the copy.
func (h *hubSide) conflictMessage() string {
	return fmt.Sprintf("worker %q has another TrainJob %s/%s, which is left alone", h.Cluster, h.dispatch.Namespace, h.dispatch.Name)
}

// records writes Dispatches.
func (r *reconciler) records() records.Writer { return records.Writer{Hub: r.Hub, Clock: r.Clock} }

// setCopied says that the copy exists, and how it gets on.
func (h *hubSide) setCopied(status *v1alpha1.DispatchStatus) {
	h.showProgress(status)
	h.setCopyUID(status)
	if h.copy != nil && h.job != nil && h.isHeld() && h.held.message != "" {
		record.SetHeld(status, h.dispatch, h.held.reason, h.held.on(h.Cluster), h.Clock.Now())
		return
	}
	record.SetCopied(status, h.dispatch, h.Clock.Now())
}

// setCopyUID says which copy the attempt has, if it is there.
func (f *observation) setCopyUID(status *v1alpha1.DispatchStatus) {
	if f.isCurrent(f.copy) {
		status.CopyUID = f.copy.GetUID()
	}
}
