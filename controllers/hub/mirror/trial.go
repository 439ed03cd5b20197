// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"maps"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
)

// trialLimit is for how long a worker is asked that does not answer.
const trialLimit = 30 * time.Second

// Trials asks workers by dry runs whether they take the copies of jobs that wait. It brings the questions to the mirrors,
// which build and send the copy as they do for a job that is placed. It keeps questions that have no answer, and no
// answers.
type Trials struct {
	enqueue func(worker v1alpha1.ClusterName, key types.NamespacedName)
	clock   clock.PassiveClock

	mu sync.Mutex
	// asked are the questions without an answer, under mu.
	asked map[place]*trial
}

// place is a job on a worker.
type place struct {
	worker v1alpha1.ClusterName
	key    types.NamespacedName
}

// trial is one question. Only one reconcile at a time uses its attempt.
type trial struct {
	job      *unstructured.Unstructured
	dispatch *v1alpha1.Dispatch
	answered func(refused string)
	began    time.Time
	attempt  attempt
}

// NewTrials returns Trials without a question. enqueue, which must not block, has the mirror of a worker look at a key.
func NewTrials(enqueue func(v1alpha1.ClusterName, types.NamespacedName), clock clock.PassiveClock) *Trials {
	return &Trials{enqueue: enqueue, clock: clock, asked: map[place]*trial{}}
}

// Try has a worker asked whether it takes the copy that it would get if the Dispatch were written. It does not wait.
// answered is called when the worker has answered, with its words if it refuses the copy. It is not called if the
// worker does not answer in time, or if the job is tried there again before.
func (t *Trials) Try(
	worker v1alpha1.ClusterName, job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, answered func(refused string),
) {
	now, at := t.clock.Now(), place{worker, client.ObjectKeyFromObject(dispatch)}
	t.mu.Lock()
	maps.DeleteFunc(t.asked, func(_ place, asked *trial) bool { return now.Sub(asked.began) > trialLimit })
	t.asked[at] = &trial{job: job, dispatch: dispatch, answered: answered, began: now}
	t.mu.Unlock()
	t.enqueue(worker, at.key)
}

// of returns the question about a job to a worker, nil if there is none.
func (t *Trials) of(at place) *trial {
	if t == nil {
		return nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	asked := t.asked[at]
	if asked == nil || t.clock.Since(asked.began) > trialLimit {
		return nil
	}
	return asked
}

// answer ends a question with the worker's words if it refuses the copy, and with nothing if it takes it.
func (t *Trials) answer(at place, asked *trial, refused string) {
	t.mu.Lock()
	current := t.asked[at] == asked
	if current {
		delete(t.asked, at)
	}
	t.mu.Unlock()
	if current {
		asked.answered(refused)
	}
}

// try asks the worker whether it takes the copy of a job that waits, by what create does up to a creation that is a dry
// run. Like create it brings namespace and runtime to the worker, without which the answer would say nothing. Unlike
// create it takes no error for an answer but the words of a refusal: a worker that hangs, or cannot be asked, has not
// accepted the copy.
func (c *creator) try(ctx context.Context, at place, asked *trial) (time.Duration, error) {
	if err := c.ownRefusal(); err != nil {
		c.trials.answer(at, asked, refusalWords(err))
		return 0, nil
	}
	end, ok := c.creations.begin(ctx, c.clock)
	if !ok {
		return slotWait, ctx.Err()
	}
	defer end()
	policy, err := c.prepare(ctx)
	if errors.Is(err, errHub) {
		return 0, err
	}
	if err == nil {
		may := c.mender.permission()
		if !may.ok {
			return leaseCheck, nil
		}
		copy := c.challenged(policy, may.challenge)
		err = c.worker.Create(ctx, copy, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict), client.DryRunAll)
	}
	switch {
	case err == nil:
		c.trials.answer(at, asked, "")
	case apierrors.IsAlreadyExists(err):
		return c.tryTaken(ctx, at, asked)
	case !isRefusal(err):
		return 0, err
	case c.clock.Since(c.attempt.creation.runtimeWritten) <= runtimeLag:
		return runtimeLag, nil
	default:
		c.trials.answer(at, asked, refusalWords(err))
	}
	return 0, nil
}

// tryTaken is for a worker on which a TrainJob has the name of the copy. The copy of an earlier attempt goes soon.
func (c *creator) tryTaken(ctx context.Context, at place, asked *trial) (time.Duration, error) {
	found, err := c.search.lookForCopy(ctx)
	if err != nil {
		return 0, err
	}
	if found.remains != copies.Foreign {
		return endCheck, nil
	}
	c.trials.answer(at, asked, c.reporter.conflictMessage())
	return 0, nil
}
