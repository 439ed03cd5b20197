// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// runtimeLag is how long a refusal is not taken for an answer after a runtime was written to the worker: the admission
	// webhook there reads runtimes from a cache of its own.
	runtimeLag = 5 * time.Second
	// failureLimit is how many times, and failureTime for how long, a worker may say that it cannot create the copy, for a fault of its
	// own, until another is tried. A worker that changes the leader of its store has its faults for seconds.
	failureLimit = 6
	failureTime  = 20 * time.Second
	// leaseCheck is how often it is looked whether a worker's agent answers again, and leaseLimit for how long a job waits for that until
	// another worker is tried.
	leaseCheck = time.Second
	leaseLimit = 30 * time.Second
	// freshness is for how long what was observed holds for a creation: namespace and runtime may take long to be made.
	freshness = 2 * time.Second
)

// errHub is an error of the hub, which says nothing about the worker.
var errHub = errors.New("the hub's API server")

// create makes sure that the worker has what the copy needs, and creates the copy. A refusal ends the attempt; anything else
// that goes wrong is retried.
func (r *reconciler) create(ctx context.Context, worker client.Client, f facts, past *recollection) (reconcile.Result, error) {
	if past.ended {
		return reconcile.Result{}, nil // Reported; placement's answer is on its way.
	}
	if ok, err := r.dispatchIsCurrent(ctx, f, past); !ok || err != nil {
		return reconcile.Result{RequeueAfter: conflictDelay}, err
	}
	if past.gaveUp != nil {
		return r.createFailed(ctx, f, past, past.gaveUp) // No creation must be on its way when the attempt ends.
	}
	if r.Protected != nil && r.Protected(f.job.GetNamespace()) {
		words := fmt.Sprintf("TrainJobs of namespace %q are not dispatched", f.job.GetNamespace())
		return r.createFailed(ctx, f, past, refusal(words))
	}
	if words, refused := r.refused(); refused {
		return r.createFailed(ctx, f, past, refusal(words))
	}
	end, ok := r.creations.begin(ctx, r.Clock)
	if !ok {
		return reconcile.Result{RequeueAfter: slotWait}, ctx.Err()
	}
	defer end()
	began := r.Clock.Now()
	err := r.propagate(ctx, worker, f, past)
	if errors.Is(err, errHub) {
		return reconcile.Result{}, err
	}
	if err == nil && r.Clock.Since(began) > freshness {
		return reconcile.Result{RequeueAfter: conflictDelay}, nil // Whether the copy may be created is asked again.
	}
	if err == nil {
		copy := newCopy(f.job, f.dispatch, r.HubID)
		if r.isFenced(f) {
			challenge, ok := r.Lease()
			if !ok {
				return r.awaitLease(ctx, f, past)
			}
			setAnnotation(copy, v1alpha1.AnnotationChallenge, challenge)
		}
		past.unleased = time.Time{}
		if err = worker.Create(ctx, copy, fieldOwner, client.FieldValidation(metav1.FieldValidationStrict)); err == nil {
			now := r.Clock.Now()
			past.created, past.uid, past.copied, past.copiedAt, past.answered = copy, copy.GetUID(), true, now, true
			timeToCopy.Observe(now.Sub(past.noticed).Seconds())
			r.recordLeftOut(f)
			// For the Dispatch to say Running, should no event of the copy come until then.
			return reconcile.Result{RequeueAfter: r.runningDue(f, past)}, nil
		}
		r.noteUnanswered(err, past)
	}
	if past.gaveUp = r.noteHang(err, r.Clock.Since(began), past); past.gaveUp != nil {
		err = past.gaveUp
	}
	return r.createFailed(ctx, f, past, err)
}

// refused says whether nothing may be created on the worker, and why.
func (r *reconciler) refused() (words string, refused bool) {
	if r.Refused == nil {
		return "", false
	}
	return r.Refused()
}

// giveBack ends an attempt whose copy cannot be created because a copy of an earlier attempt has the name, on a worker
// that refuses to delete that one.
func (r *reconciler) giveBack(ctx context.Context, f facts, past *recollection) (reconcile.Result, error) {
	words, refused := r.refused()
	if !refused || past == nil || past.ended || f.wasCopied() || !f.isOlder() {
		return reconcile.Result{}, nil
	}
	if ok, err := r.dispatchIsCurrent(ctx, f, past); !ok || err != nil {
		return reconcile.Result{RequeueAfter: conflictDelay}, err
	}
	if due := r.mayArrive(f, past); due > 0 {
		return reconcile.Result{RequeueAfter: due}, nil
	}
	return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.OutcomeRejected, words)
}

// awaitLease is for a copy that is to be fenced, on a worker whose agent does not answer now: nobody would stop it.
func (r *reconciler) awaitLease(ctx context.Context, f facts, past *recollection) (reconcile.Result, error) {
	now := r.Clock.Now()
	if past.unleased.IsZero() {
		past.unleased = now
	}
	if now.Sub(past.unleased) < leaseLimit {
		return reconcile.Result{RequeueAfter: leaseCheck}, nil
	}
	return r.createFailed(ctx, f, past, refusal("the worker's agent does not answer; without it the job, whose failover is Fenced, "+
		"could not be moved safely if the worker were lost"))
}

// createFailed decides what an error of the creation means.
func (r *reconciler) createFailed(ctx context.Context, f facts, past *recollection, err error) (reconcile.Result, error) {
	if isFault(err) {
		if past.failures++; past.failing.IsZero() {
			past.failing = r.Clock.Now()
		}
	}
	refused := isRefusal(err) && r.Clock.Since(past.propagatedAt) > runtimeLag ||
		past.failures >= failureLimit && r.Clock.Since(past.failing) >= failureTime
	if !apierrors.IsAlreadyExists(err) && !refused {
		return reconcile.Result{}, fmt.Errorf("create TrainJob %s/%s on worker %q: %w", f.job.GetNamespace(), f.job.GetName(), r.Cluster, err)
	}
	// Whatever the answer was, there must be no copy before the attempt is given up, and none may come.
	if due := r.mayArrive(f, past); due > 0 && refused {
		return reconcile.Result{RequeueAfter: due}, nil
	}
	found, findErr := r.lookForCopy(ctx, f, past)
	switch {
	case findErr != nil:
		return reconcile.Result{}, findErr
	case found.copy == nil && apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: conflictDelay}, nil // It has gone since.
	case found.copy == nil:
		return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.OutcomeRejected, refusalWords(err))
	case found.presence == current:
		r.believe(found.copy, past)
		// Without our label no watch would tell of it.
		return reconcile.Result{RequeueAfter: createLag}, r.claim(ctx, found.copy)
	case found.presence == foreign:
		return r.nameTaken(ctx, f, past, found.copy)
	default: // Of another attempt: garbagecollection deletes it, and the deletion wakes us.
		return reconcile.Result{}, r.claim(ctx, found.copy)
	}
}

// believe takes a copy that the cache does not show for there.
func (r *reconciler) believe(copy *unstructured.Unstructured, past *recollection) {
	past.created, past.uid, past.copied, past.copiedAt = copy, copy.GetUID(), true, r.Clock.Now()
}

// resolveMissing ends the attempt of a copy that the cache no longer shows, once the worker has said that it is gone and no pod
// of it is alive: whoever deletes a TrainJob in the background, or orphans its JobSet, leaves pods that run. A copy that has only lost
// the label by which the cache selects gets it back. A second copy of the attempt, which a creation has made that was late, goes.
func (r *reconciler) resolveMissing(ctx context.Context, worker client.Client, f facts, past *recollection) (reconcile.Result, error) {
	if past.ended {
		return reconcile.Result{}, nil
	}
	found, err := r.lookFor(ctx, worker, f, past)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch f.copy = found.copy; found.presence {
	case arriving:
		return reconcile.Result{RequeueAfter: found.wait}, nil
	case podsAlive:
		return reconcile.Result{RequeueAfter: endCheck}, nil
	case current:
		r.believe(found.copy, past)
		_, _, err := r.bring(ctx, worker, f, past)
		return reconcile.Result{RequeueAfter: createLag}, err
	case second:
		return reconcile.Result{RequeueAfter: endCheck}, r.withdrawOrSay(ctx, worker, f)
	case older: // garbagecollection deletes it.
		return reconcile.Result{RequeueAfter: endCheck}, r.claim(ctx, found.copy)
	case nothing, foreign:
	}
	if ok, err := r.takeBackStatus(ctx, f, past); !ok || err != nil {
		return reconcile.Result{RequeueAfter: conflictDelay}, err
	}
	if found.presence == foreign {
		return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.OutcomeNameConflict, r.conflictMessage(found.copy))
	}
	return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.OutcomeCopyDeleted,
		fmt.Sprintf("the copy was deleted on worker %q before it had finished", r.Cluster))
}

// claim gives a copy the label back by which it is found, if somebody has taken it off. That of another hub stays.
func (r *reconciler) claim(ctx context.Context, copy *unstructured.Unstructured) error {
	if _, labelled := copy.GetLabels()[v1alpha1.LabelHub]; labelled {
		return nil
	}
	worker, err := r.Worker.Client()
	if err != nil {
		return err
	}
	claimed := copy.DeepCopy()
	putBack(claimed, []mark{{label: true, key: v1alpha1.LabelHub, value: r.HubID}})
	patch := client.MergeFromWithOptions(copy, client.MergeFromWithOptimisticLock{})
	if err := worker.Patch(ctx, claimed, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("label TrainJob %s/%s on worker %q: %w", copy.GetNamespace(), copy.GetName(), r.Cluster, err)
	}
	return nil
}

func (r *reconciler) conflictMessage(existing *unstructured.Unstructured) string {
	return fmt.Sprintf("worker %q has another TrainJob %s/%s, which is left alone", r.Cluster, existing.GetNamespace(), existing.GetName())
}
