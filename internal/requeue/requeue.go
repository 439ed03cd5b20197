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
