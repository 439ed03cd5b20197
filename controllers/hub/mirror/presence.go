// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// endCheck is how often the mirror looks whether pods have ended, if their end causes no event here.
const endCheck = time.Second

// finding is the answer of a look at the worker's API server.
type finding struct {
	presence
	// copy is the TrainJob of the name, nil if there is none.
	copy *unstructured.Unstructured
	// wait is for how long a creation may still arrive.
	wait time.Duration
}

// lookFor asks the worker's API server what there is of the attempt. A cache proves no absence: its watch may lag, and
// a copy that has lost our label is not in it. The attempt may end only if the answer is nothing or foreign.
func (v *visit) lookFor(ctx context.Context) (finding, error) {
	found, err := v.lookForCopy(ctx)
	if err != nil || found.presence != nothing && found.presence != foreign {
		return found, err
	}
	if found.presence == foreign && !v.wasCopied() {
		return found, nil // The foreign TrainJob has kept ours from being created.
	}
	remains, err := v.worker.Remains(ctx, client.ObjectKeyFromObject(v.dispatch), v.knownUID(), found.copy)
	if remains {
		found.presence = podsAlive
	}
	return found, err
}

// lookForCopy is lookFor without the look at pods.
func (v *visit) lookForCopy(ctx context.Context) (finding, error) {
	wait := v.mayArrive() // Before the request: a creation that arrives between the two is not overlooked.
	copy, err := v.worker.Find(ctx, client.ObjectKeyFromObject(v.dispatch))
	found := finding{presence: v.presenceOf(copy), copy: copy}
	if wait > 0 && (copy == nil || found.presence == foreign) { // A foreign TrainJob may go before the creation arrives.
		found.presence, found.wait = arriving, wait
	}
	return found, err
}

// mayArrive is for how long a creation of the copy may still be carried out.
func (v *visit) mayArrive() time.Duration {
	return v.attempt.creation.unanswered.mayArrive(v.wasCopied(), v.Clock.Now())
}
