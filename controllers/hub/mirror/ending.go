// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

const (
	// endPatience is how long the end of a copy may take until the worker is asked what holds it. Pods have half of that by
	// default.
	endPatience = time.Minute
	// The worker is asked again after a back-off that doubles each time.
	minEndDelay = 30 * time.Second
	maxEndDelay = 5 * time.Minute
)

// ending is what this process has found about the end of a copy.
type ending struct {
	// since measures for how long the end has been awaited.
	since stopwatch
	// last is when the worker was asked, and delay is how long the answer counts.
	last  time.Time
	delay time.Duration
	words string
}

// awaitEnd says on the Dispatch what holds a copy that is being deleted, or what is left of a copy that is gone, if
// that takes long. v.copy is nil if the copy is gone. It returns when to look again. The status of a finished job is
// final: nothing waits for its copy but the name.
func (s *stopper) awaitEnd(ctx context.Context) (time.Duration, error) {
	if s.seen.dispatch.IsFinished() || s.seen.copy == nil && !s.seen.dispatch.WasCopied() || s.seen.copy != nil && !s.seen.isCurrent(s.seen.copy) {
		return 0, nil
	}
	e, now := &s.attempt.ending, s.clock.Now()
	due := endPatience - e.since.elapsed(now)
	if !e.last.IsZero() {
		due = e.delay - now.Sub(e.last)
	}
	if due <= 0 {
		words, err := s.worker.Holders(ctx, client.ObjectKeyFromObject(s.seen.dispatch), s.seen.copy)
		if err != nil {
			return 0, err
		}
		e.words, e.last, e.delay = words, now, min(max(2*e.delay, minEndDelay), maxEndDelay)
		due = e.delay
	}
	if e.words == "" {
		return due, nil
	}
	return due, s.records.UpdateStatus(ctx, s.seen.dispatch, func(status *v1alpha1.DispatchStatus) {
		s.seen.setCopyUID(status)
		record.SetAwaitingEnd(status, s.seen.dispatch, e.words, now)
	})
}
