// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote"
)

// creationLag is for how long a creation that got no answer may still be carried out. Package remote tells the API
// server to work on it for a minute at most.
const creationLag = 65 * time.Second

// Inherited returns the attempts on a worker of which the hub's cache, which must have the indexes of package records, does not say that
// they have a copy. The mirror before, of this process or another, may have asked for one and not have lived to see the answer.
// What the cache does not show yet, because it lags behind the leader before, is not among them.
func Inherited(ctx context.Context, hub client.Reader, worker v1alpha1.ClusterName) (map[types.UID]int32, error) {
	dispatches, err := records.Live(ctx, hub, worker)
	if err != nil {
		return nil, err
	}
	inherited := map[types.UID]int32{}
	for i := range dispatches {
		if d := &dispatches[i]; !d.IsFinished() && !d.AttemptEnded() && !d.WasCopied() {
			inherited[d.Spec.TrainJob.UID] = d.Spec.Attempt
		}
	}
	return inherited, nil
}

// inheritedCreations are how many creations of an inherited attempt are taken to have got no answer: the one that has made the copy that is
// there, perhaps, and one that may make another when that has gone.
const inheritedCreations = 2

// newRecollection is of an attempt of which nothing is remembered. One that was inherited is taken to have been asked for until this
// mirror started.
func (r *reconciler) newRecollection(dispatch *v1alpha1.Dispatch) *recollection {
	origin, attempt := dispatch.Spec.TrainJob.UID, dispatch.Spec.Attempt
	past := &recollection{origin: origin, attempt: attempt, noticed: r.Clock.Now(), foundCopied: dispatch.WasCopied()}
	if inherited, ok := r.Inherited[origin]; ok && inherited == attempt {
		past.unanswered, past.unansweredAt = inheritedCreations, r.started
	}
	return past
}

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
	if remote.IsNotConnected(err) || errors.Is(err, remote.ErrNotLeading) || isRefusal(err) || isFault(err) {
		return true
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return false
	}
	code := status.Status().Code
	return code >= 400 && code < 500 && code != http.StatusRequestTimeout
}
