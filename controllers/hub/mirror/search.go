// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/internal/copies"
)

const (
	// endCheck is how often the mirror looks whether what a copy has left is gone, if no event tells.
	endCheck = time.Second
	// makingLag is for how long the worker's controllers may still make a JobSet, Jobs or pods of a copy when nothing of it is
	// there. Their caches may show the copy as it was, and their requests may be under way. Kubeflow Trainer makes a JobSet
	// anew even while its TrainJob is being deleted.
	makingLag = 3 * time.Second
	// maxStep is how much of the time between two looks counts for makingLag.
	maxStep = endCheck + endCheck/2
)

// finding is the answer of a look at the worker's API server.
type finding struct {
	remains copies.Remains
	// copy is the TrainJob of the name, nil if there is none.
	copy *unstructured.Unstructured
	// wait is after how long to look again, for arriving and left.
	wait time.Duration
}

// search asks the worker's API server what there is of the attempt.
type search struct {
	seen    *observation
	attempt *attempt
	clock   clock.PassiveClock
	worker  copies.Worker
}

// lookFor asks the worker's API server what there is of the attempt. A cache proves no absence: its watch may lag, and
// a copy that has lost our label is not in it. The attempt may end only if the answer is nothing or foreign.
func (s *search) lookFor(ctx context.Context) (finding, error) {
	began := s.clock.Now()
	found, err := s.lookOnce(ctx)
	if err != nil || found.remains != copies.Nothing && found.remains != copies.Foreign {
		s.attempt.absence = absence{}
		return found, err
	}
	if s.seen.wasCopied() && s.attempt.absence.note(began, s.clock.Now()) < makingLag {
		found.remains, found.wait = copies.Arriving, endCheck
	}
	return found, nil
}

// lookOnce is lookFor without makingLag.
func (s *search) lookOnce(ctx context.Context) (finding, error) {
	found, err := s.lookForCopy(ctx)
	if err != nil || found.remains != copies.Nothing && found.remains != copies.Foreign {
		return found, err
	}
	if found.remains == copies.Foreign && !s.seen.wasCopied() {
		return found, nil // The foreign TrainJob has kept ours from being created.
	}
	left, err := s.worker.HasRemains(ctx, client.ObjectKeyFromObject(s.seen.dispatch), copies.Gone{
		UID: s.seen.knownUID(), Beside: found.copy, OtherJobSet: s.attempt.stuck.earlier,
	})
	if left {
		found.remains, found.wait = copies.Left, endCheck
	}
	return found, err
}

// absence is for how long looks have found nothing. Of the time between two looks maxStep counts at most: if nobody
// looks for longer, something may come and go.
type absence struct {
	last  time.Time
	shown time.Duration
}

// note notes a look that has found nothing, and returns for how long nothing has been found.
func (a *absence) note(began, ended time.Time) time.Duration {
	if !a.last.IsZero() {
		a.shown += min(began.Sub(a.last), maxStep)
	}
	a.last = ended
	return a.shown
}

// lookForCopy is lookFor without the look at what a copy that is gone has left.
func (s *search) lookForCopy(ctx context.Context) (finding, error) {
	wait := s.mayArrive() // Before the request: a creation that arrives between the two is not overlooked.
	copy, err := s.worker.Find(ctx, client.ObjectKeyFromObject(s.seen.dispatch))
	found := finding{remains: s.seen.remainsOf(copy), copy: copy}
	if wait > 0 && (copy == nil || found.remains == copies.Foreign) { // A foreign TrainJob may go before the creation arrives.
		found.remains, found.wait = copies.Arriving, wait
	}
	return found, err
}

// mayArrive is for how long a creation of the copy may still be carried out.
func (s *search) mayArrive() time.Duration {
	return s.attempt.creation.unanswered.mayArrive(s.seen.wasCopied(), s.clock.Now())
}
