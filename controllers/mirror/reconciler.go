// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// fieldOwner is the field manager of everything that is written here.
	fieldOwner = client.FieldOwner("trainyard")
	// conflictDelay lets a cache catch up after a write conflict.
	conflictDelay = 20 * time.Millisecond
	// createLag bounds how long a created copy is believed in that the cache does not show.
	createLag = time.Minute
	// runtimeLag is how long a refusal is not taken for an answer after a runtime was written to the worker: the admission
	// webhook there reads runtimes from a cache of its own.
	runtimeLag = 5 * time.Second
	// failureLimit is how many times a worker may say that it cannot create the copy, for a fault of its own, until another is
	// tried. With the back-off of the queue it takes some seconds.
	failureLimit = 6
)

// reconciler reconciles the keys of one worker.
type reconciler struct {
	Options
	started time.Time
	memory  memory
}

// Reconcile brings one TrainJob of this worker a step further.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	worker, err := r.Worker.Client()
	if err != nil {
		return reconcile.Result{}, nil //nolint:nilerr // Not connected: the keys come again with the next connection.
	}
	f, past, err := r.observe(ctx, worker, request.NamespacedName)
	if err != nil {
		return reconcile.Result{}, err
	}
	result, err := r.act(ctx, worker, f, past)
	if apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: conflictDelay}, nil
	}
	return result, err
}

// act does what the state of the facts asks for.
func (r *reconciler) act(ctx context.Context, worker client.Client, f facts, past *recollection) (reconcile.Result, error) {
	what := decide(r.Cluster, f)
	log.FromContext(ctx).V(1).Info("Decided", "state", what)
	switch what {
	case absent:
		return r.create(ctx, worker, f, past)
	case mirrored:
		return r.mirror(ctx, worker, f, past)
	case evicting:
		return r.evict(ctx, worker, f, past)
	case finished:
		return reconcile.Result{}, r.finish(ctx, f, past)
	case misplaced:
		r.warnMisplaced(f, past)
	case copyDeleted:
		return r.resolveMissing(ctx, worker, f, past)
	case conflicting:
		return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.OutcomeNameConflict, r.conflictMessage(f.copy))
	case withdrawing, released:
		if gone, err := r.jobIsGone(ctx, f); !gone || err != nil {
			return reconcile.Result{RequeueAfter: conflictDelay}, err
		}
		if what == withdrawing {
			return reconcile.Result{}, r.withdraw(ctx, worker, f.copy)
		}
		return r.release(ctx, worker, f, past)
	case idle, blocked:
	}
	return reconcile.Result{}, nil
}

// observe reads the key's objects from the caches, and from memory what the caches do not show yet.
func (r *reconciler) observe(ctx context.Context, worker client.Client, key types.NamespacedName) (facts, *recollection, error) {
	var f facts
	dispatch := &v1alpha1.Dispatch{}
	if err := r.Hub.Get(ctx, key, dispatch); err != nil {
		r.memory.forget(key)
		return f, nil, client.IgnoreNotFound(err)
	}
	f.dispatch = dispatch
	f.otherCluster = dispatch.Spec.ClusterID != "" && dispatch.Spec.ClusterID != r.ClusterID
	var err error
	if f.job, err = get(ctx, r.Hub, key); err != nil {
		return f, nil, fmt.Errorf("get TrainJob %s: %w", key, err)
	}
	if f.copy, err = get(ctx, worker, key); err != nil {
		return f, nil, fmt.Errorf("get TrainJob %s on worker %q: %w", key, r.Cluster, err)
	}
	if dispatch.Spec.Cluster != r.Cluster || dispatch.IsFinished() {
		r.memory.forget(key) // Nothing is kept for jobs that are not live here.
		return f, &recollection{}, nil
	}
	past := r.memory.of(key, dispatch.Spec.TrainJob.UID, dispatch.Spec.Attempt, r.Clock.Now())
	r.recall(&f, past)
	r.observeCourse(ctx, worker, &f, past)
	return f, past, nil
}

// recall completes the facts with what this process did and the caches do not show yet.
func (r *reconciler) recall(f *facts, past *recollection) {
	now := r.Clock.Now()
	switch {
	case f.copy != nil && isCurrent(f.copy, f.dispatch):
		past.created = nil
		if !past.copied {
			past.copied, past.copiedAt = true, now
		}
	case f.copy == nil && past.created != nil && now.Sub(past.copiedAt) < createLag:
		f.copy = past.created
	}
	f.copied = past.copied
}

// get reads a TrainJob, nil if there is none.
func get(ctx context.Context, reader client.Reader, key types.NamespacedName) (*unstructured.Unstructured, error) {
	job := trainjobs.New()
	if err := reader.Get(ctx, key, job); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return job, nil
}

// create makes sure that the worker has what the copy needs, and creates the copy. A refusal ends the attempt; anything else
// that goes wrong is retried.
func (r *reconciler) create(ctx context.Context, worker client.Client, f facts, past *recollection) (reconcile.Result, error) {
	if past.ended {
		return reconcile.Result{}, nil // Reported; placement's answer is on its way.
	}
	if ok, err := r.dispatchIsCurrent(ctx, f, past); !ok || err != nil {
		return reconcile.Result{RequeueAfter: conflictDelay}, err
	}
	err := r.propagate(ctx, worker, f, past)
	if err == nil {
		copy := newCopy(f.job, f.dispatch, r.HubID)
		if err = worker.Create(ctx, copy, fieldOwner, client.FieldValidation(metav1.FieldValidationStrict)); err == nil {
			now := r.Clock.Now()
			past.created, past.copied, past.copiedAt = copy, true, now
			timeToCopy.Observe(now.Sub(past.noticed).Seconds())
			r.recordMirrored(f)
			// For the Dispatch to say Running, should no event of the copy come until then.
			return reconcile.Result{RequeueAfter: r.runningDue(f, past)}, nil
		}
	}
	return r.createFailed(ctx, f, past, err)
}

// createFailed decides what an error of the creation means.
func (r *reconciler) createFailed(ctx context.Context, f facts, past *recollection, err error) (reconcile.Result, error) {
	if apierrors.IsInternalError(err) {
		past.failures++ // Such as an admission webhook that cannot be called.
	}
	refused := isRefusal(err) && r.Clock.Since(past.propagatedAt) > runtimeLag
	if !apierrors.IsAlreadyExists(err) && !refused && past.failures < failureLimit {
		return reconcile.Result{}, fmt.Errorf("create TrainJob %s/%s on worker %q: %w", f.job.GetNamespace(), f.job.GetName(), r.Cluster, err)
	}
	// Whatever the answer was, there must be no copy before the attempt is given up.
	existing, findErr := r.find(ctx, f)
	switch {
	case findErr != nil:
		return reconcile.Result{}, findErr
	case existing == nil && apierrors.IsAlreadyExists(err):
		return reconcile.Result{RequeueAfter: conflictDelay}, nil // It has gone since.
	case existing == nil:
		return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.OutcomeRejected, refusalWords(err))
	case isCurrent(existing, f.dispatch):
		r.believe(existing, past)
		return reconcile.Result{}, nil
	case existing.GetLabels()[v1alpha1.LabelHub] == r.HubID && isCopyOf(existing, f.dispatch):
		return reconcile.Result{}, nil // Of another attempt: garbagecollection deletes it, and the deletion wakes us.
	default:
		return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.OutcomeNameConflict, r.conflictMessage(existing))
	}
}

// believe takes a copy that the cache does not show for there.
func (r *reconciler) believe(copy *unstructured.Unstructured, past *recollection) {
	past.created, past.copied, past.copiedAt = copy, true, r.Clock.Now()
}

// resolveMissing ends the attempt of a copy that the cache no longer shows, once the worker has said that it is gone and no pod
// of it is alive: whoever deletes a TrainJob in the background, or orphans its JobSet, leaves pods that run.
func (r *reconciler) resolveMissing(ctx context.Context, worker client.Client, f facts, past *recollection) (reconcile.Result, error) {
	if past.ended {
		return reconcile.Result{}, nil
	}
	existing, err := r.find(ctx, f)
	if err != nil {
		return reconcile.Result{}, err
	}
	if existing != nil && isCurrent(existing, f.dispatch) {
		r.believe(existing, past)
		return reconcile.Result{RequeueAfter: createLag}, nil
	}
	alive, err := r.podsAlive(ctx, worker, f)
	if err != nil || alive {
		return reconcile.Result{RequeueAfter: endCheck}, err
	}
	if ok, err := r.takeBackStatus(ctx, f, past); !ok || err != nil {
		return reconcile.Result{RequeueAfter: conflictDelay}, err
	}
	return reconcile.Result{}, r.endAttempt(ctx, f, past, v1alpha1.OutcomeCopyDeleted,
		fmt.Sprintf("the copy was deleted on worker %q before it had finished", r.Cluster))
}

func (r *reconciler) conflictMessage(existing *unstructured.Unstructured) string {
	return fmt.Sprintf("worker %q has another TrainJob %s/%s, which is left alone", r.Cluster, existing.GetNamespace(), existing.GetName())
}

// mirror brings spec.suspend to the copy and the copy's status to the hub. What the one meets does not keep the other.
func (r *reconciler) mirror(ctx context.Context, worker client.Client, f facts, past *recollection) (reconcile.Result, error) {
	var updateErr error
	if updated := updatedCopy(f.job, f.copy); updated != nil {
		patch := client.MergeFromWithOptions(f.copy, client.MergeFromWithOptimisticLock{})
		if err := worker.Patch(ctx, updated, patch, fieldOwner); err != nil {
			updateErr = fmt.Errorf("patch TrainJob %s/%s on worker %q: %w", f.copy.GetNamespace(), f.copy.GetName(), r.Cluster, err)
		}
	}
	statusDue, statusErr := r.syncStatus(ctx, f, past)
	runningDue, runningErr := r.reportRunning(ctx, f, past)
	return reconcile.Result{RequeueAfter: sooner(statusDue, runningDue)}, firstError(updateErr, statusErr, runningErr)
}

// firstError is of errors of which one is enough, and must keep its type: a conflict is retried in silence.
func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// sooner returns the smaller of two delays, of which zero means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// finish says on the hub TrainJob how the copy ended, and then on the Dispatch.
func (r *reconciler) finish(ctx context.Context, f facts, past *recollection) error {
	if past.endSeen.IsZero() {
		past.endSeen = r.Clock.Now()
	}
	if trainjobs.Terminal(f.job) == nil {
		if err := r.writeJobStatus(ctx, f, past); err != nil {
			return err
		}
		timeToReport.Observe(r.Clock.Since(past.endSeen).Seconds())
	}
	return r.reportFinished(ctx, f)
}

// withdraw deletes a copy, in the foreground: when it is gone, its JobSet and pods are.
func (r *reconciler) withdraw(ctx context.Context, worker client.Client, copy *unstructured.Unstructured) error {
	uid := copy.GetUID()
	return r.delete(ctx, worker, copy, client.Preconditions{UID: &uid})
}

// delete deletes a copy in the foreground, unless it is going already.
func (r *reconciler) delete(
	ctx context.Context, worker client.Client, copy *unstructured.Unstructured, preconditions client.Preconditions,
) error {
	if copy.GetDeletionTimestamp() != nil {
		return nil
	}
	err := worker.Delete(ctx, copy, client.PropagationPolicy(metav1.DeletePropagationForeground), preconditions)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete TrainJob %s/%s on worker %q: %w", copy.GetNamespace(), copy.GetName(), r.Cluster, err)
	}
	return nil
}

// release lets the Dispatch go after its copy. If its TrainJob is gone the Dispatch is deleted too, without waiting for the
// garbage collector.
func (r *reconciler) release(ctx context.Context, worker client.Client, f facts, past *recollection) (reconcile.Result, error) {
	dispatch := f.dispatch
	if !dispatch.IsFinished() && !dispatch.AttemptEnded() {
		if due, err := r.leaveNothing(ctx, worker, f, past); due > 0 || err != nil {
			return reconcile.Result{RequeueAfter: due}, err
		}
	}
	updated := dispatch.DeepCopy()
	if dispatch.DeletionTimestamp == nil {
		if err := r.Hub.Delete(ctx, updated, client.Preconditions{UID: &dispatch.UID}); err != nil {
			return reconcile.Result{}, client.IgnoreNotFound(err)
		}
		return reconcile.Result{}, nil // The event of it brings us back, to remove the finalizer.
	}
	if !controllerutil.RemoveFinalizer(updated, v1alpha1.FinalizerCopy) {
		return reconcile.Result{}, nil
	}
	patch := client.MergeFromWithOptions(dispatch, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Patch(ctx, updated, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("remove finalizer of Dispatch %s/%s: %w", dispatch.Namespace, dispatch.Name, err)
	}
	return reconcile.Result{}, nil
}
