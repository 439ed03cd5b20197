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
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/trainjobs/translate"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
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
	// uncomparedLimit is for how long a job waits until the worker's runtime has been compared with the hub's. It usually takes
	// milliseconds. A worker that cannot be asked must not keep jobs from being created.
	uncomparedLimit = 5 * time.Second
	// goingLimit is for how long a job waits for the end of the copy of an earlier TrainJob, whose pods terminate.
	goingLimit = time.Minute
)

// errHub is an error of the hub, which says nothing about the worker.
var errHub = errors.New("the hub's API server")

// creation is what this process knows of the creation of an attempt's copy.
type creation struct {
	unanswered unanswered
	failures   failures
	// runtimeWritten is when a runtime that the copy needs was last written to the worker.
	runtimeWritten time.Time
	// leaseless measures since when the copy is not created because the worker's agent does not answer.
	leaseless stopwatch
	// nameTaken measures since when the copy of an earlier TrainJob, which is being deleted, has had the name.
	nameTaken stopwatch
	// pinGoes measures since when a pinned runtime that the copy needs is being deleted.
	pinGoes stopwatch
	// uncompared measures since when the copy waits for the comparison of the worker's runtime with the hub's.
	uncompared stopwatch
}

// creator makes the copy, and what the copy needs on the worker.
type creator struct {
	seen    *observation
	attempt *attempt
	cluster v1alpha1.ClusterName
	hubID   string
	clock   clock.Clock
	worker  copies.Worker
	// propagation has no job yet.
	propagation propagation
	// dependencies is Options.Dependencies.
	dependencies Dependencies
	// policy, protected, sweepRefused, unsent and trials are of the Options.
	policy       policyFunc
	protected    func(namespace string) bool
	sweepRefused func() (words string, refused bool)
	unsent       func(key string) bool
	trials       *Trials
	creations    *creations
	// lookUp is Options.LookUp.
	lookUp   *LookUp
	verifier *verifier
	search   *search
	kueue    *workerKueue
	mender   *mender
	reporter *reporter
	events   *announcer
	// runtimeName is the name of the job's runtime on the worker, once propagate has made sure of it. Empty: as on the
	// hub.
	runtimeName string
	// ownRuntime is true if the runtime on the worker may differ from the hub's: it did not come from here, or stays as it is.
	ownRuntime bool
	// letGo ends what propagate holds.
	letGo func()
	// left says what propagate has left alone of what the pods name.
	left []string
}

// create brings to the worker what the copy needs, and creates the copy. It retries all errors but a refusal.
func (c *creator) create(ctx context.Context) (time.Duration, error) {
	if ok, err := c.verifier.dispatchIsCurrent(ctx); !ok || err != nil {
		return requeue.ConflictDelay, err
	}
	changed := c.verifier.checkJob(ctx)
	if changed != nil && !isChange(changed) {
		return 0, changed
	}
	if err := cmp.Or(c.ownRefusal(), changed); err != nil {
		return c.createFailed(ctx, err)
	}
	end, ok := c.creations.begin(ctx, c.clock)
	if !ok {
		return slotWait, ctx.Err()
	}
	defer end()
	began := c.clock.Now()
	policy, err := c.prepare(ctx)
	defer c.letGo()
	if errors.Is(err, errHub) {
		return 0, err
	}
	if c.awaitsPin(err) {
		return endCheck, nil
	}
	if err == nil {
		if c.clock.Since(began) > freshness {
			return requeue.ConflictDelay, nil // The next reconcile asks again whether the copy may be created.
		}
		may := c.mender.permission()
		if !may.ok {
			return c.awaitLease(ctx)
		}
		if err = c.send(ctx, policy, may.challenge); err == nil {
			return c.reporter.runningDue(), nil // Then the Dispatch says so, even if no event of the copy comes before.
		}
	}
	c.attempt.creation.failures.noteHang(c.cluster, err, c.clock.Since(began))
	return c.createFailed(ctx, cmp.Or(c.attempt.creation.failures.gaveUp, err))
}

// prepare brings to the worker what the copy needs, and looks for what is never brought. It returns the job's policy, nil
// if it has none.
func (c *creator) prepare(ctx context.Context) (*v1alpha1.DispatchPolicy, error) {
	policy, err := c.policy(ctx, c.seen.job)
	if err != nil {
		return nil, err
	}
	if err := c.translatable(policy); err != nil {
		return policy, err
	}
	if err := c.propagate(ctx, policy); err != nil {
		return policy, err
	}
	return policy, c.missing(ctx, policy)
}

// translatable returns a refusal if the copy is to be translated for its worker and cannot be. Placement chooses no such
// worker, but the policy may give the copy other patches since.
func (c *creator) translatable(policy *v1alpha1.DispatchPolicy) error {
	dispatch := c.seen.dispatch
	if dispatch.Spec.TranslatedInto == "" {
		return nil
	}
	spec := trainjobs.CopySpec(c.seen.job, &dispatch.Spec, flavorsOf(c.seen.job, dispatch, policy))
	if _, err := translate.Spec(spec, dispatch.Spec.TranslatedInto); err != nil {
		return refusal(err.Error())
	}
	return nil
}

// ownRefusal is why the manager sends no creation, nil if it sends one.
func (c *creator) ownRefusal() error {
	if c.attempt.creation.failures.gaveUp != nil {
		return c.attempt.creation.failures.gaveUp // No creation must be on its way when the attempt ends.
	}
	if c.protected != nil && c.protected(c.seen.job.GetNamespace()) {
		return refusal(fmt.Sprintf("TrainJobs of namespace %q are not dispatched", c.seen.job.GetNamespace()))
	}
	if words, refused := c.sweepRefused(); refused {
		return refusal(words)
	}
	return nil
}

// challenged returns the copy as it is sent.
func (c *creator) challenged(policy *v1alpha1.DispatchPolicy, challenge string) *unstructured.Unstructured {
	copy := newCopy(c.seen.job, c.seen.dispatch, policy, c.hubID, c.unsent)
	trainjobs.SetAnnotation(copy, v1alpha1.AnnotationChallenge, challenge)
	nameRuntime(copy, c.runtimeName, c.seen.dispatch.Spec.Runtime)
	return copy
}

// missing returns a refusal if the worker lacks what the pods of the copy name, as far as the hub may look. What a runtime
// of the worker's own names is not known.
func (c *creator) missing(ctx context.Context, policy *v1alpha1.DispatchPolicy) error {
	if c.lookUp == nil || c.ownRuntime {
		return nil
	}
	copy := newCopy(c.seen.job, c.seen.dispatch, policy, c.hubID, c.unsent)
	return c.lookUp.missing(ctx, c.propagation.connection, c.cluster, copy)
}

// send creates the copy.
func (c *creator) send(ctx context.Context, policy *v1alpha1.DispatchPolicy, challenge string) error {
	copy := c.challenged(policy, challenge)
	c.attempt.creation.leaseless.reset()
	err := c.worker.Create(ctx, copy, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict))
	now := c.clock.Now()
	if err != nil {
		c.attempt.creation.unanswered.note(err, now)
		return err
	}
	c.attempt.creation.unanswered.copyAnswered = true
	c.attempt.copy.believe(copy, now)
	timeToCopy.Observe(now.Sub(c.attempt.noticed).Seconds())
	c.events.leftOut()
	c.events.untold()
	c.events.leftAlone(c.left)
	return nil
}

// awaitLease waits for an agent that does not answer now: nobody would stop a copy whose failover is Fenced.
func (c *creator) awaitLease(ctx context.Context) (time.Duration, error) {
	if c.attempt.creation.leaseless.elapsed(c.clock.Now()) < leaseLimit {
		return leaseCheck, nil
	}
	return c.createFailed(ctx, refusal("the worker's agent does not answer, and a job with failover Fenced needs it: "+
		"without the agent the hub could not move the job safely if the worker were lost"))
}

// createFailed decides what an error of the creation means.
func (c *creator) createFailed(ctx context.Context, err error) (time.Duration, error) {
	now, creation := c.clock.Now(), &c.attempt.creation
	creation.failures.noteFault(err, now)
	late := now.Sub(creation.runtimeWritten) <= runtimeLag && !isOwnRefusal(err)
	refused := isRefusal(err) && !late || isChange(err) || creation.failures.tooManyFaults(now)
	if refused {
		c.dependencies.Doubt(c.seen.dispatch)
	}
	exists := apierrors.IsAlreadyExists(err)
	if !exists && !refused {
		return 0, fmt.Errorf("create TrainJob %s/%s on worker %q: %w", c.seen.job.GetNamespace(), c.seen.job.GetName(), c.cluster, err)
	}
	// Whatever the error was, the attempt may end only if there is no copy and none can arrive.
	if due := c.search.mayArrive(); due > 0 && refused {
		return due, nil
	}
	found, findErr := c.search.lookForCopy(ctx)
	switch {
	case findErr != nil:
		return 0, findErr
	case found.copy == nil && exists:
		return requeue.ConflictDelay, nil // It has gone since.
	case found.remains == copies.Arriving:
		return found.wait, nil
	case found.copy == nil:
		return 0, c.reporter.endAttempt(ctx, outcomeOf(err), refusalWords(err))
	case found.remains == copies.Current:
		c.attempt.copy.believe(found.copy, c.clock.Now())
		return createLag, c.mender.claim(ctx, found.copy) // Without our label no event tells of the copy.
	case found.remains == copies.Foreign:
		return c.nameTaken(ctx, found.copy)
	default:
		return 0, c.mender.claim(ctx, found.copy) // garbagecollection deletes a copy of another attempt, which wakes us.
	}
}

// conflict calls nameTaken for the TrainJob that the cache shows, unless the worker's API server says that it is gone.
// Then it returns true: the observation has what is there instead.
func (c *creator) conflict(ctx context.Context) (due time.Duration, gone bool, err error) {
	found, err := c.search.lookForCopy(ctx)
	switch {
	case err != nil:
		return 0, false, err
	case found.remains == copies.Arriving && found.copy != nil:
		return found.wait, false, nil
	case found.remains == copies.Foreign:
		due, err := c.nameTaken(ctx, found.copy)
		return due, false, err
	}
	c.seen.copy = found.copy // The cache lags.
	return 0, true, nil
}

// nameTaken ends the attempt, because a foreign TrainJob has the name of the copy. But it waits if the foreign TrainJob
// is the copy of an earlier TrainJob and is being deleted: the worker was away while a job was deleted and created
// again.
func (c *creator) nameTaken(ctx context.Context, existing *unstructured.Unstructured) (time.Duration, error) {
	if existing.GetLabels()[v1alpha1.LabelHub] != c.hubID || existing.GetDeletionTimestamp() == nil {
		return 0, c.reporter.endAttempt(ctx, v1alpha1.OutcomeNameConflict, c.reporter.conflictMessage())
	}
	if c.attempt.creation.nameTaken.elapsed(c.clock.Now()) < goingLimit && c.seen.dispatch.Spec.Eviction == nil {
		return endCheck, nil // If the cache shows the copy, its end wakes us earlier.
	}
	return 0, c.reporter.endAttempt(ctx, v1alpha1.OutcomeNameConflict, fmt.Sprintf(
		"worker %q still has the copy of an earlier TrainJob %s/%s, which is being deleted",
		c.cluster, existing.GetNamespace(), existing.GetName()))
}

// giveBack ends an attempt if the worker has the copy of an earlier attempt and refuses to delete it.
func (c *creator) giveBack(ctx context.Context) (time.Duration, error) {
	words, refused := c.sweepRefused()
	if !refused || c.seen.wasCopied() || !c.seen.keepsOlder() {
		return 0, nil
	}
	if ok, err := c.verifier.dispatchIsCurrent(ctx); !ok || err != nil {
		return requeue.ConflictDelay, err
	}
	due := c.search.mayArrive() // Before the request, as in lookForCopy.
	found, err := c.search.lookForCopy(ctx)
	switch {
	case err != nil:
		return 0, err
	case found.remains != copies.Older:
		return 0, nil // The cache lags. Its next event wakes us.
	case due > 0:
		return due, nil
	}
	return 0, c.reporter.endAttempt(ctx, v1alpha1.OutcomeRejected, words)
}
