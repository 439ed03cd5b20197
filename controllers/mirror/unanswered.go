// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/trainyard/trainyard/remote"
)

// creationLag is for how long a creation that got no answer may still be carried out. An API server works on a request for at most a
// minute, unless it is told otherwise (--request-timeout).
const creationLag = 65 * time.Second

// noteUnanswered notes a creation after which there may be a copy, now or later.
func (r *reconciler) noteUnanswered(err error, past *recollection) {
	if !isAnswer(err) {
		past.unanswered++
		past.unansweredAt = r.Clock.Now()
	}
}

// mayArrive is for how long it has to be waited until a creation that got no answer can have led to nothing any more, so that what is
// not there then never will be. It has to be asked before the worker is. Zero: there is no such creation.
func (r *reconciler) mayArrive(f facts, past *recollection) time.Duration {
	arrived := 0
	if f.wasCopied() && !past.answered {
		arrived = 1
	}
	if past.unanswered <= arrived {
		return 0
	}
	return max(0, creationLag-r.Clock.Since(past.unansweredAt))
}

// isAnswer is true if an error of a creation says that nothing was created, and that nothing will be.
func isAnswer(err error) bool {
	if remote.IsNotConnected(err) || isRefusal(err) || isFault(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout
}
