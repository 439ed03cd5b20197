// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
)

const (
	// trialLimit is for how long a worker is asked that does not answer.
	trialLimit = 30 * time.Second
	// AskLimit is for how long a worker is asked about pods: a job that may have room waits for the answer.
	AskLimit = 2 * time.Second
)

// fullQuota is in the API server's words about a quota that has no room now. No code says so.
const fullQuota = "exceeded quota: "

// Trials asks workers by dry runs about the copies of jobs that wait: whether they take them, or what they make of their
// pods. It brings the questions to the mirrors, which build and send the copy as they do for a job that is placed. It
// keeps questions that have no answer, and no answers.
type Trials struct {
	enqueue func(worker v1alpha1.ClusterName, key types.NamespacedName)
	clock   clock.PassiveClock

	mu sync.Mutex
	// asked are the questions without an answer, by what they are about. Both are under mu.
	asked map[jobOnWorker]*trial
	pods  map[jobOnWorker]*trial
}

// jobOnWorker is a job and a worker that may get it.
type jobOnWorker struct {
	worker v1alpha1.ClusterName
	key    types.NamespacedName
}

// trial is one question. Only one reconcile at a time uses its attempt.
type trial struct {
	job      *unstructured.Unstructured
	dispatch *v1alpha1.Dispatch
	answered func(trainjobs.Admission)
	began    time.Time
	// limit is how long after it began the question may be asked.
	limit   time.Duration
	attempt attempt
}

// NewTrials returns Trials without a question. enqueue, which must not block, has the mirror of a worker look at a key.
func NewTrials(enqueue func(v1alpha1.ClusterName, types.NamespacedName), clock clock.PassiveClock) *Trials {
	return &Trials{enqueue: enqueue, clock: clock, asked: map[jobOnWorker]*trial{}, pods: map[jobOnWorker]*trial{}}
}

// Try has a worker asked whether it takes the copy that it would get if the Dispatch were written. It does not wait.
// answered is called when the worker has answered, with its words if it refuses the copy. It is not called if the
// worker does not answer in time, or if the job is tried there again before.
func (t *Trials) Try(
	worker v1alpha1.ClusterName, job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, answered func(refused string),
) {
	t.put(t.asked, worker, &trial{
		job: job, dispatch: dispatch, answered: func(a trainjobs.Admission) { answered(a.Refused) }, limit: trialLimit,
	})
}

// Ask has a worker asked what its admission makes of the pods of the copy that it would get if the Dispatch were
// written. It does not wait. answered is called when the worker has answered or cannot. It is not called if the worker
// does not answer within AskLimit.
func (t *Trials) Ask(
	worker v1alpha1.ClusterName, job *unstructured.Unstructured, dispatch *v1alpha1.Dispatch, answered func(trainjobs.Admission),
) {
	t.put(t.pods, worker, &trial{job: job, dispatch: dispatch, answered: answered, limit: AskLimit})
}

func (t *Trials) put(questions map[jobOnWorker]*trial, worker v1alpha1.ClusterName, asked *trial) {
	now, at := t.clock.Now(), jobOnWorker{worker, client.ObjectKeyFromObject(asked.dispatch)}
	asked.began = now
	t.mu.Lock()
	maps.DeleteFunc(questions, func(_ jobOnWorker, other *trial) bool { return now.Sub(other.began) > other.limit })
	questions[at] = asked
	t.mu.Unlock()
	t.enqueue(worker, at.key)
}

// of returns the questions about a job to a worker, whether it takes the job and about its pods. Nil: there is none.
func (t *Trials) of(at jobOnWorker) (asked, pods *trial) {
	if t == nil {
		return nil, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	open := func(asked *trial) *trial {
		if asked == nil || t.clock.Since(asked.began) > asked.limit {
			return nil
		}
		return asked
	}
	return open(t.asked[at]), open(t.pods[at])
}

// answer ends a question.
func (t *Trials) answer(at jobOnWorker, asked *trial, answer trainjobs.Admission) {
	t.mu.Lock()
	current := false
	for _, questions := range []map[jobOnWorker]*trial{t.asked, t.pods} {
		if questions[at] == asked {
			delete(questions, at)
			current = true
		}
	}
	t.mu.Unlock()
	if current {
		asked.answered(answer)
	}
}

// ask asks the worker what its admission makes of the pods of the copy, by a dry run of the copy. It brings nothing to
// the worker in order to ask: without the namespace and the runtime there, the worker cannot answer.
func (c *creator) ask(ctx context.Context, at jobOnWorker, asked *trial) error {
	policy, err := c.policy(ctx, c.seen.job)
	if err != nil {
		return err
	}
	if c.ownRefusal() != nil || !c.isPropagated(ctx, policy) {
		c.trials.answer(at, asked, trainjobs.Admission{})
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, AskLimit)
	defer cancel()
	copy := newCopy(c.seen.job, c.seen.dispatch, policy, c.hubID, c.unsent)
	nameRuntime(copy, c.runtimeName, c.seen.dispatch.Spec.Runtime)
	trainjobs.SetAnnotation(copy, v1alpha1.AnnotationPods, trainjobs.AskPods)
	err = c.worker.Create(ctx, copy, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict), client.DryRunAll)
	var answer trainjobs.Admission
	switch {
	case err == nil:
		answer.Pods, _ = trainjobs.DecodePods(copy)
	case apierrors.IsAlreadyExists(err), apierrors.IsNotFound(err), strings.Contains(err.Error(), fullQuota):
		// It says nothing of the job.
	case isRefusal(err):
		answer.Refused = refusalWords(err)
	}
	c.trials.answer(at, asked, answer)
	return nil
}

// try asks the worker whether it takes the copy of a job that waits, by what create does up to a creation that is a dry
// run. Like create it brings namespace and runtime to the worker, without which the answer would say nothing. Unlike
// create it takes no error for an answer but the words of a refusal: a worker that hangs, or cannot be asked, has not
// accepted the copy.
func (c *creator) try(ctx context.Context, at jobOnWorker, asked *trial) (time.Duration, error) {
	if err := c.ownRefusal(); err != nil {
		c.trials.answer(at, asked, trainjobs.Admission{Refused: refusalWords(err)})
		return 0, nil
	}
	end, ok := c.creations.begin(ctx, c.clock)
	if !ok {
		return slotWait, ctx.Err()
	}
	defer end()
	defer c.dependencies.Settle(c.seen.dispatch)
	policy, err := c.prepare(ctx)
	defer c.letGo()
	if errors.Is(err, errHub) {
		return 0, err
	}
	if c.awaitsPin(err) {
		return endCheck, nil
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
		c.trials.answer(at, asked, trainjobs.Admission{})
	case apierrors.IsAlreadyExists(err):
		return c.tryTaken(ctx, at, asked)
	case !isRefusal(err):
		return 0, err
	case c.clock.Since(c.attempt.creation.runtimeWritten) <= runtimeLag && !isOwnRefusal(err):
		return runtimeLag, nil
	default:
		c.trials.answer(at, asked, trainjobs.Admission{Refused: refusalWords(err)})
	}
	return 0, nil
}

// tryTaken is for a worker on which a TrainJob has the name of the copy. The copy of an earlier attempt goes soon.
func (c *creator) tryTaken(ctx context.Context, at jobOnWorker, asked *trial) (time.Duration, error) {
	found, err := c.search.lookForCopy(ctx)
	if err != nil {
		return 0, err
	}
	if found.remains != copies.Foreign {
		return endCheck, nil
	}
	c.trials.answer(at, asked, trainjobs.Admission{Refused: c.reporter.conflictMessage()})
	return 0, nil
}
