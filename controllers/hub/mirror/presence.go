// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/controllers/hub/attempts"
)

// presence is what a worker has of an attempt.
type presence int

const (
	// nothing: there is no TrainJob of the name. From lookFor also: no pod is alive, and no creation can arrive.
	nothing presence = iota
	// arriving: there is no TrainJob of the name, but a creation that got no answer may still make one.
	arriving
	// podsAlive: the copy is gone, but its JobSet is there or one of its pods may run.
	podsAlive
	// current: the copy of the attempt.
	current
	// second: another copy of the attempt. Two creations were carried out, of which the first got no answer: the second
	// creation arrived after somebody had deleted the copy that the first one had made.
	second
	// older: the copy of another attempt of the job.
	older
	// foreign: a TrainJob that is not ours.
	foreign
)

// String names the presence, for logs and tests.
func (p presence) String() string {
	return [...]string{"nothing", "arriving", "podsAlive", "current", "second", "older", "foreign"}[p]
}

// presenceOf says what a TrainJob of the Dispatch's name is to the current attempt. The UID on record counts more than
// labels and annotations, which somebody may have edited. A copy of another hub is foreign even if both hubs were made
// from one backup, so that both know the job.
func (f *facts) presenceOf(copy *unstructured.Unstructured) presence {
	switch {
	case copy == nil:
		return nothing
	case f.isKnown(copy):
		return current
	case attempts.OfAnotherHub(copy, f.hubID), !f.isOurs(copy):
		return foreign
	case !f.isOfAttempt(copy):
		return older
	case f.knownUID() != "":
		return second
	default:
		return current
	}
}

// finding is the answer of a look at the worker's API server.
type finding struct {
	presence
	// copy is the TrainJob of the name, nil if there is none.
	copy *unstructured.Unstructured
	// wait is for how long a creation may still arrive.
	wait time.Duration
}

// lookFor asks the worker's API server what there is of the attempt. A cache proves no absence: its watch may lag, and a
// copy that has lost our label is not in it. The attempt may end only if the answer is nothing or foreign.
func (r *reconciler) lookFor(ctx context.Context, worker client.Client, f facts, past *recollection) (finding, error) {
	found, err := r.lookForCopy(ctx, f, past)
	if err != nil || found.presence != nothing && found.presence != foreign {
		return found, err
	}
	if found.presence == foreign && !f.wasCopied() {
		return found, nil // The foreign TrainJob has kept ours from being created.
	}
	alive, err := r.podsAlive(ctx, worker, f, found.copy)
	if alive {
		found.presence = podsAlive
	}
	return found, err
}

// lookForCopy is lookFor without the look at pods.
func (r *reconciler) lookForCopy(ctx context.Context, f facts, past *recollection) (finding, error) {
	wait := r.mayArrive(f, past) // Before the request: a creation that arrives between the two is not overlooked.
	copy, err := r.find(ctx, f)
	found := finding{presence: f.presenceOf(copy), copy: copy}
	if copy == nil && wait > 0 {
		found.presence, found.wait = arriving, wait
	}
	return found, err
}

// find asks the worker's API server for the TrainJob of the Dispatch's name, nil if there is none.
func (r *reconciler) find(ctx context.Context, f facts) (*unstructured.Unstructured, error) {
	reader, err := r.Worker.APIReader()
	if err != nil {
		return nil, err
	}
	existing := trainjobs.New()
	if err := reader.Get(ctx, client.ObjectKeyFromObject(f.dispatch), existing); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("get TrainJob %s/%s on worker %q: %w", f.dispatch.Namespace, f.dispatch.Name, r.Cluster, err)
	}
	return existing, nil
}
