// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

const (
	// runtimeLag is for how long a refusal does not count after a runtime was written to the worker: the admission webhook
	// there reads runtimes from a cache of its own.
	runtimeLag = 5 * time.Second
	// leaseCheck is how often, and leaseLimit for how long, a job asks whether the worker's agent answers.
	leaseCheck = time.Second
	leaseLimit = 30 * time.Second
	// freshness is for how long an observation may be used for a creation: it may take long to make namespace and runtime.
	freshness = 2 * time.Second
	// goingLimit is for how long a job waits for the end of the copy of an earlier TrainJob, whose pods terminate.
	goingLimit = time.Minute
)

// errHub is an error of the hub, which says nothing about the worker.
var errHub = errors.New("the hub's API server")

// creation is what this process knows of the creation of an attempt's copy.
type creation struct {
	unanswered unanswered
	trouble    trouble
	// runtimeWritten is when a runtime that the copy needs was last written to the worker.
	runtimeWritten time.Time
	// leaseless measures since when the copy is not created because the worker's agent does not answer.
	leaseless stopwatch
	// nameTaken measures since when the copy of an earlier TrainJob, which is being deleted, has had the name.
	nameTaken stopwatch
}

// create brings to the worker what the copy needs, and creates the copy. It retries all errors but a refusal.
func (v *visit) create(ctx context.Context) (time.Duration, error) {
	if ok, err := v.dispatchIsCurrent(ctx); !ok || err != nil {
		return requeue.ConflictDelay, err
	}
	changed := v.checkJob(ctx)
	if changed != nil && !isChange(changed) {
		return 0, changed
	}
	if err := cmp.Or(v.ownRefusal(), changed); err != nil {
		return v.createFailed(ctx, err)
	}
	end, ok := v.creations.begin(ctx, v.Clock)
	if !ok {
		return slotWait, ctx.Err()
	}
	defer end()
	began := v.Clock.Now()
	policy, err := v.prepare(ctx)
	if errors.Is(err, errHub) {
		return 0, err
	}
	if err == nil {
		if v.Clock.Since(began) > freshness {
			return requeue.ConflictDelay, nil // The next reconcile asks again whether the copy may be created.
		}
		may := v.permission()
		if !may.ok {
			return v.awaitLease(ctx)
		}
		if err = v.send(ctx, policy, may.challenge); err == nil {
			return v.runningDue(), nil // Then the Dispatch says so, even if no event of the copy comes before.
		}
	}
	v.attempt.creation.trouble.noteHang(v.Cluster, err, v.Clock.Since(began))
	return v.createFailed(ctx, cmp.Or(v.attempt.creation.trouble.gaveUp, err))
}

// prepare brings to the worker what the copy needs, and returns the job's policy, nil if it has none.
func (v *visit) prepare(ctx context.Context) (*v1alpha1.DispatchPolicy, error) {
	policy, err := v.Policy(ctx, v.job)
	if err != nil {
		return nil, err
	}
	return policy, v.propagate(ctx, policy)
}

// ownRefusal is why the manager sends no creation, nil if it sends one.
func (v *visit) ownRefusal() error {
	if v.attempt.creation.trouble.gaveUp != nil {
		return v.attempt.creation.trouble.gaveUp // No creation must be on its way when the attempt ends.
	}
	if v.Protected != nil && v.Protected(v.job.GetNamespace()) {
		return refusal(fmt.Sprintf("TrainJobs of namespace %q are not dispatched", v.job.GetNamespace()))
	}
	if words, refused := v.SweepRefused(); refused {
		return refusal(words)
	}
	return nil
}

// challenged returns the copy as it is sent.
func (v *visit) challenged(policy *v1alpha1.DispatchPolicy, challenge string) *unstructured.Unstructured {
	copy := newCopy(v.job, v.dispatch, policy, v.HubID, v.Unsent)
	trainjobs.SetAnnotation(copy, v1alpha1.AnnotationChallenge, challenge)
	nameRuntime(copy, v.runtimeName)
	return copy
}

// send creates the copy.
func (v *visit) send(ctx context.Context, policy *v1alpha1.DispatchPolicy, challenge string) error {
	copy := v.challenged(policy, challenge)
	v.attempt.creation.leaseless.reset()
	err := v.worker.Create(ctx, copy, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict))
	now := v.Clock.Now()
	if err != nil {
		v.attempt.creation.unanswered.note(err, now)
		return err
	}
	v.attempt.creation.unanswered.copyAnswered = true
	v.attempt.copy.believe(copy, now)
	timeToCopy.Observe(now.Sub(v.attempt.noticed).Seconds())
	announcer{&v.hubSide}.leftOut()
	return nil
}

// awaitLease waits for an agent that does not answer now: nobody would stop a copy whose failover is Fenced.
func (v *visit) awaitLease(ctx context.Context) (time.Duration, error) {
	if v.attempt.creation.leaseless.elapsed(v.Clock.Now()) < leaseLimit {
		return leaseCheck, nil
	}
	return v.createFailed(ctx, refusal("the worker's agent does not answer, and a job with failover Fenced needs it: "+
		"without the agent the hub could not move the job safely if the worker were lost"))
}

// createFailed decides what an error of the creation means.
func (v *visit) createFailed(ctx context.Context, err error) (time.Duration, error) {
	now, creation := v.Clock.Now(), &v.attempt.creation
	creation.trouble.noteFault(err, now)
	refused := isRefusal(err) && now.Sub(creation.runtimeWritten) > runtimeLag || isChange(err) || creation.trouble.tooManyFaults(now)
	exists := apierrors.IsAlreadyExists(err)
	if !exists && !refused {
		return 0, fmt.Errorf("create TrainJob %s/%s on worker %q: %w", v.job.GetNamespace(), v.job.GetName(), v.Cluster, err)
	}
	// Whatever the error was, the attempt may end only if there is no copy and none can arrive.
	if due := v.mayArrive(); due > 0 && refused {
		return due, nil
	}
	found, findErr := v.lookForCopy(ctx)
	switch {
	case findErr != nil:
		return 0, findErr
	case found.copy == nil && exists:
		return requeue.ConflictDelay, nil // It has gone since.
	case found.presence == arriving:
		return found.wait, nil
	case found.copy == nil:
		return 0, v.endAttempt(ctx, outcomeOf(err), refusalWords(err))
	case found.presence == current:
		v.attempt.copy.believe(found.copy, v.Clock.Now())
		return createLag, v.claim(ctx, found.copy) // Without our label no event tells of the copy.
	case found.presence == foreign:
		return v.nameTaken(ctx, found.copy)
	default:
		return 0, v.claim(ctx, found.copy) // garbagecollection deletes a copy of another attempt, which wakes us.
	}
}

// conflict calls nameTaken for the TrainJob that the cache shows, unless the worker's API server says that it is gone.
func (v *visit) conflict(ctx context.Context) (time.Duration, error) {
	found, err := v.lookForCopy(ctx)
	switch {
	case err != nil:
		return 0, err
	case found.presence == arriving && found.copy != nil:
		return found.wait, nil
	case found.presence == foreign:
		return v.nameTaken(ctx, found.copy)
	}
	v.copy = found.copy // The cache lags.
	return v.act(ctx, decide(v.Cluster, v.observation))
}

// nameTaken ends the attempt, because a foreign TrainJob has the name of the copy. But it waits if the foreign TrainJob
// is the copy of an earlier TrainJob and is being deleted: the worker was away while a job was deleted and created
// again.
func (v *visit) nameTaken(ctx context.Context, existing *unstructured.Unstructured) (time.Duration, error) {
	if existing.GetLabels()[v1alpha1.LabelHub] != v.HubID || existing.GetDeletionTimestamp() == nil {
		return 0, v.endAttempt(ctx, v1alpha1.OutcomeNameConflict, v.conflictMessage())
	}
	if v.attempt.creation.nameTaken.elapsed(v.Clock.Now()) < goingLimit && v.dispatch.Spec.Eviction == nil {
		return endCheck, nil // If the cache shows the copy, its end wakes us earlier.
	}
	return 0, v.endAttempt(ctx, v1alpha1.OutcomeNameConflict, fmt.Sprintf(
		"worker %q still has the copy of an earlier TrainJob %s/%s, which is being deleted",
		v.Cluster, existing.GetNamespace(), existing.GetName()))
}

// giveBack ends an attempt if the worker has the copy of an earlier attempt and refuses to delete it.
func (v *visit) giveBack(ctx context.Context) (time.Duration, error) {
	words, refused := v.SweepRefused()
	if !refused || v.wasCopied() || !v.keepsOlder() {
		return 0, nil
	}
	if ok, err := v.dispatchIsCurrent(ctx); !ok || err != nil {
		return requeue.ConflictDelay, err
	}
	due := v.mayArrive() // Before the request, as in lookForCopy.
	found, err := v.lookForCopy(ctx)
	switch {
	case err != nil:
		return 0, err
	case found.presence != older:
		return 0, nil // The cache lags. Its next event wakes us.
	case due > 0:
		return due, nil
	}
	return 0, v.endAttempt(ctx, v1alpha1.OutcomeRejected, words)
}
