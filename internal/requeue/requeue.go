// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requeue says when a controller looks at a key again: after a conflict or a lag of its cache, and when an
// object changes too often to be written each time (Pace).
package requeue

import (
	"errors"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ConflictDelay lets a cache catch up after a write that met a newer object.
const ConflictDelay = 20 * time.Millisecond

// Outdated returns a conflict of a decision that is right by the caches, but not by the API server.
func Outdated(words string) error {
	return apierrors.NewConflict(schema.GroupResource{}, "", errors.New(words))
}

// later is an error because of which a key comes again after a while.
type later struct {
	words string
	after time.Duration
}

func (l *later) Error() string             { return l.words }
func (l *later) RetryAfter() time.Duration { return l.after }

// Later returns an error of a key that comes again after a while.
func Later(words string, after time.Duration) error { return &later{words, after} }

// AfterConflict returns the result of a reconcile. The key comes again, in silence, after a write conflict, and after an
// error that says when to try again: package remote returns one if this process may not lead any more.
func AfterConflict(result reconcile.Result, err error) (reconcile.Result, error) {
	var later interface{ RetryAfter() time.Duration }
	if errors.As(err, &later) {
		return reconcile.Result{RequeueAfter: later.RetryAfter()}, nil
	}
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: ConflictDelay}, nil
	}
	return result, err
}

// AfterLag is AfterConflict for a controller that creates what its cache does not show: an object that exists already
// is a conflict too.
func AfterLag(result reconcile.Result, err error) (reconcile.Result, error) {
	if apierrors.IsAlreadyExists(err) {
		return reconcile.Result{RequeueAfter: ConflictDelay}, nil
	}
	return AfterConflict(result, err)
}

// Sooner returns the smaller of two delays, of which zero means never.
func Sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// Earlier returns the earlier of two times, of which zero means never.
func Earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

const (
	// quickWrites is how many changes are written at once before they back off. A gang that starts has fewer.
	quickWrites = 10
	// leastSpacing is the time between two writes when they begin to back off, and longestSpacing the time in the end.
	leastSpacing   = time.Second
	longestSpacing = 30 * time.Second
)

// Pace spaces the writes about something that a worker may change for ever. While a change waits for each write, the
// time between writes doubles. The zero value is ready for use. A Pace is not safe for concurrent use.
type Pace struct {
	// last is when the last write was tried.
	last time.Time
	// hurried is how many writes have followed each other without a rest.
	hurried int
}

// spacing is how long after the last write the next one may come.
func (p *Pace) spacing() time.Duration {
	if p.hurried < quickWrites {
		return 0
	}
	spacing := leastSpacing
	for range p.hurried - quickWrites {
		if spacing *= 2; spacing >= longestSpacing {
			return longestSpacing
		}
	}
	return spacing
}

// Due is how long until a write may come.
func (p *Pace) Due(now time.Time) time.Duration {
	return max(0, p.spacing()-now.Sub(p.last))
}

// Note notes a write of changes of which the first came at since. After a rest changes are written quickly again.
func (p *Pace) Note(since, now time.Time) {
	if since.Sub(p.last) >= 2*max(p.spacing(), leastSpacing) {
		p.hurried = 0
	}
	p.hurried = min(p.hurried+1, quickWrites+10) // More make no difference.
	p.last = now
}
