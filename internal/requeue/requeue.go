// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package requeue says when a controller looks at a key again.
package requeue

import (
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
)

// ConflictDelay lets a cache catch up after a write that met a newer object.
const ConflictDelay = 20 * time.Millisecond

// AfterConflict returns the result of a reconcile. After a write conflict the key comes again, in silence.
func AfterConflict(result reconcile.Result, err error) (reconcile.Result, error) {
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
