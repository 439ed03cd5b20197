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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/attempts"
	"github.com/trainyard/trainyard/remote"
)

const (
	// fieldOwner is the field manager of everything that is written here.
	fieldOwner = client.FieldOwner("trainyard")
	// conflictDelay lets a cache catch up after a write conflict.
	conflictDelay = 20 * time.Millisecond
	// leaderCheck is how often a process that may lead no more looks whether it does.
	leaderCheck = time.Second
	// createLag bounds how long a created copy is believed in that the cache does not show.
	createLag = time.Minute
)

// reconciler reconciles the keys of one worker.
type reconciler struct {
	Options
	started   time.Time
	memory    memory
	creations *creations
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
	if errors.Is(err, remote.ErrNotLeading) { // Either the lease is renewed in a moment, or this process ends.
		return reconcile.Result{RequeueAfter: leaderCheck}, nil
	}
	if seconds, asked := apierrors.SuggestsClientDelay(err); asked && seconds > 0 {
		log.FromContext(ctx).Info("Asked to come again later", "reason", err.Error(), "seconds", seconds)
		return reconcile.Result{RequeueAfter: time.Duration(seconds) * time.Second}, nil
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
		return r.finish(ctx, f, past)
	case misplaced:
		r.warnMisplaced(f, past)
	case returned:
		return reconcile.Result{}, r.reportReturned(ctx, f)
	case copyDeleted:
		return r.resolveMissing(ctx, worker, f, past)
	case conflicting:
		return r.nameTaken(ctx, f, past, f.copy)
	case withdrawing, released:
		if gone, err := r.jobIsGone(ctx, f); !gone || err != nil {
			return reconcile.Result{RequeueAfter: conflictDelay}, err
		}
		if what == withdrawing && !f.believed {
			return reconcile.Result{}, r.withdrawOrSay(ctx, worker, f)
		}
		return r.release(ctx, worker, f, past)
	case blocked:
		return r.giveBack(ctx, f, past)
	case idle:
	}
	return reconcile.Result{}, nil
}

// observe reads the key's objects from the caches, and from memory what the caches do not show yet.
func (r *reconciler) observe(ctx context.Context, worker client.Client, key types.NamespacedName) (facts, *recollection, error) {
	f := facts{hubID: r.HubID}
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
	past := r.memory.of(key, dispatch.Spec.TrainJob.UID, dispatch.Spec.Attempt, func() *recollection {
		return r.newRecollection(dispatch)
	})
	r.recall(&f, past)
	r.observeCourse(ctx, worker, &f, past)
	return f, past, nil
}

// recall completes the facts with what this process did and the caches do not show yet.
func (r *reconciler) recall(f *facts, past *recollection) {
	now := r.Clock.Now()
	f.uid = past.uid
	switch {
	case f.isCurrent(f.copy):
		past.created, past.uid = nil, f.copy.GetUID()
		if !past.copied {
			past.copied, past.copiedAt = true, now
		}
	case f.presenceOf(f.copy) == second:
		past.created = nil // It has gone, or the other could not be there.
	case f.copy == nil && past.created != nil && now.Sub(past.copiedAt) < createLag:
		f.copy, f.believed = past.created, true
	}
	f.copied, f.uid = past.copied, past.uid
}

// get reads a TrainJob, nil if there is none.
func get(ctx context.Context, reader client.Reader, key types.NamespacedName) (*unstructured.Unstructured, error) {
	job := trainjobs.New()
	if err := reader.Get(ctx, key, job); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	return job, nil
}

// mirror keeps the copy what it is to be and brings its status to the hub. An error of one step does not stop the next. The first error
// is returned as it is: a conflict keeps its type, and is retried in silence.
func (r *reconciler) mirror(ctx context.Context, worker client.Client, f facts, past *recollection) (reconcile.Result, error) {
	fenceDue, updateErr := r.keep(ctx, worker, f, past)
	statusDue, statusErr := r.syncStatus(ctx, f, past)
	runningDue, runningErr := r.reportRunning(ctx, f, past)
	due := sooner(fenceDue, sooner(statusDue, runningDue))
	if f.believed {
		due = sooner(due, createLag-r.Clock.Since(past.copiedAt))
	}
	return reconcile.Result{RequeueAfter: due}, cmp.Or(updateErr, statusErr, runningErr)
}

// sooner returns the smaller of two delays, of which zero means never.
func sooner(a, b time.Duration) time.Duration {
	if a == 0 || b != 0 && b < a {
		return b
	}
	return a
}

// finish says on the hub TrainJob how the copy ended, and then on the Dispatch.
func (r *reconciler) finish(ctx context.Context, f facts, past *recollection) (reconcile.Result, error) {
	if past.endSeen.IsZero() {
		past.endSeen = r.Clock.Now()
	}
	if trainjobs.Terminal(f.job) == nil {
		if ok, err := r.maySpeak(ctx, f, past); !ok || err != nil {
			return reconcile.Result{RequeueAfter: conflictDelay}, err
		}
		if err := r.writeJobStatus(ctx, f, past); err != nil {
			return reconcile.Result{}, err
		}
		timeToReport.Observe(r.Clock.Since(past.endSeen).Seconds())
	}
	return reconcile.Result{}, r.reportFinished(ctx, f)
}

// withdraw deletes a copy, in the foreground: when it is gone, its JobSet and pods are.
func (r *reconciler) withdraw(ctx context.Context, worker client.Client, copy *unstructured.Unstructured) error {
	uid := copy.GetUID()
	return r.delete(ctx, worker, copy, client.Preconditions{UID: &uid})
}

// withdrawOrSay is withdraw of the copy, and says on the Dispatch if the worker refuses.
func (r *reconciler) withdrawOrSay(ctx context.Context, worker client.Client, f facts) error {
	return r.orSay(ctx, f, r.withdraw(ctx, worker, f.copy))
}

// orSay returns the error of a deletion of the copy, and says on the Dispatch if the worker refuses it.
func (r *reconciler) orSay(ctx context.Context, f facts, err error) error {
	if isRefusal(err) || isFault(err) { // A webhook that cannot be called, say.
		err = errors.Join(err, r.reportKept(ctx, f, err))
	}
	return err
}

// reportKept says on the Dispatch why the copy is still there, in the worker's words.
func (r *reconciler) reportKept(ctx context.Context, f facts, refusal error) error {
	return r.ender().UpdateStatus(ctx, f.dispatch, func(status *v1alpha1.DispatchStatus) {
		attempts.SetCopied(status, f.dispatch, r.Clock.Now())
		if f.isCurrent(f.copy) {
			status.CopyUID = f.copy.GetUID()
		}
		r.setTrue(status, f.dispatch, v1alpha1.DispatchMirrored, v1alpha1.ReasonDeletionRefused,
			fmt.Sprintf("worker %q refuses to delete the copy: %s", r.Cluster, refusalWords(refusal)))
	})
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
	if f.believed || !dispatch.IsFinished() && !dispatch.AttemptEnded() {
		past.created = nil // Whether it is there is asked now.
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
	if jobStays(f) && trainjobs.Terminal(f.job) == nil { // It is placed again, with a higher attempt, whoever leads then.
		kept, err := attempts.Keep(ctx, r.Hub, r.HubReader, attempts.SpecOf(dispatch, cmp.Or(dispatch.Spec.ClusterID, r.ClusterID)))
		if !kept || err != nil {
			return reconcile.Result{RequeueAfter: conflictDelay}, err
		}
	}
	patch := client.MergeFromWithOptions(dispatch, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Patch(ctx, updated, patch, fieldOwner); client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, fmt.Errorf("remove finalizer of Dispatch %s/%s: %w", dispatch.Namespace, dispatch.Name, err)
	}
	return reconcile.Result{}, nil
}
