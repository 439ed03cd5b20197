// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Worker is the connection to the worker. remote.Cluster is one.
type Worker interface {
	// Client reads copies from the connection's caches and writes to the worker. It fails while the worker is not connected.
	Client() (client.Client, error)
}

// Options of a garbage collector. All are required.
type Options struct {
	// Cluster is the worker's name.
	Cluster v1alpha1.ClusterName
	// Hub reads from the hub's caches.
	Hub client.Client
	// Worker is the connection.
	Worker Worker
	// Retention returns how long the finished copy of a job stays.
	Retention func(ctx context.Context, job *unstructured.Unstructured) (time.Duration, error)
	// Clock of this process.
	Clock clock.Clock
}

// NewReconciler makes the garbage collector of one worker. Its keys are those of the worker's copies and of their Dispatches.
func NewReconciler(options Options) reconcile.Reconciler {
	return &reconciler{Options: options, unknown: unknownCopies{cluster: options.Cluster}}
}

type reconciler struct {
	Options
	unknown unknownCopies
}

// Reconcile deletes one copy if it is garbage.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	worker, err := r.Worker.Client()
	if err != nil {
		return reconcile.Result{}, nil //nolint:nilerr // Not connected: the keys come again with the next connection.
	}
	copy := trainjobs.New()
	if err := worker.Get(ctx, request.NamespacedName, copy); err != nil {
		r.unknown.remove(request.NamespacedName)
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	dispatch := &v1alpha1.Dispatch{}
	if err := r.Hub.Get(ctx, request.NamespacedName, dispatch); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("get Dispatch %s: %w", request, err)
		}
		dispatch = nil
	}
	verdict := judge(r.Cluster, copy, dispatch)
	r.unknown.set(request.NamespacedName, verdict == unknown)
	switch verdict {
	case outdated:
		return reconcile.Result{}, r.delete(ctx, worker, copy, "outdated")
	case ended:
		return r.retire(ctx, worker, copy, dispatch)
	case needed, unknown:
	}
	return reconcile.Result{}, nil
}

// retire deletes a finished copy when its retention is over. Its age is measured on the hub, from the Dispatch's Finished
// condition: clocks of two clusters are not compared.
func (r *reconciler) retire(
	ctx context.Context, worker client.Client, copy *unstructured.Unstructured, dispatch *v1alpha1.Dispatch,
) (reconcile.Result, error) {
	retention, err := r.retention(ctx, copy)
	if err != nil {
		return reconcile.Result{}, err
	}
	end := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchFinished).LastTransitionTime
	if left := retention - r.Clock.Since(end.Time); left > 0 {
		return reconcile.Result{RequeueAfter: left}, nil
	}
	return reconcile.Result{}, r.delete(ctx, worker, copy, "retention")
}

// retention is by the policy of the hub's job. Without the job there is nothing to keep the copy for.
func (r *reconciler) retention(ctx context.Context, copy *unstructured.Unstructured) (time.Duration, error) {
	job := trainjobs.New()
	if err := r.Hub.Get(ctx, client.ObjectKeyFromObject(copy), job); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return r.Retention(ctx, job)
}

// delete deletes exactly this copy, and its JobSet and pods with it.
func (r *reconciler) delete(ctx context.Context, worker client.Client, copy *unstructured.Unstructured, why string) error {
	uid := copy.GetUID()
	err := worker.Delete(ctx, copy, client.PropagationPolicy(metav1.DeletePropagationForeground), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete TrainJob %s/%s on worker %q: %w", copy.GetNamespace(), copy.GetName(), r.Cluster, err)
	}
	log.FromContext(ctx).V(1).Info("Deleted copy", "workerCluster", r.Cluster, "why", why)
	copiesDeleted.WithLabelValues(string(r.Cluster), why).Inc()
	return nil
}

// verdict on a copy.
type verdict int

const (
	// needed: its job is live here, or it is going already.
	needed verdict = iota
	// ended: its attempt is the last one and has finished.
	ended
	// outdated: the hub has moved on to a later attempt, or to another worker.
	outdated
	// unknown: the hub has no record that says what the copy is.
	unknown
)

// judge says what a copy on a worker is to the hub, whose Dispatch of that name is nil if there is none.
func judge(worker v1alpha1.ClusterName, copy *unstructured.Unstructured, dispatch *v1alpha1.Dispatch) verdict {
	if copy.GetDeletionTimestamp() != nil {
		return needed
	}
	if dispatch == nil || copy.GetLabels()[v1alpha1.LabelOriginUID] != string(dispatch.Spec.TrainJob.UID) {
		return unknown
	}
	attempt, err := strconv.ParseInt(copy.GetAnnotations()[v1alpha1.AnnotationAttempt], 10, 32)
	switch {
	case err != nil, int32(attempt) > dispatch.Spec.Attempt:
		return unknown // The hub was restored from a time before this attempt.
	case int32(attempt) < dispatch.Spec.Attempt, dispatch.Spec.Cluster == "":
		return outdated
	case dispatch.Spec.Cluster != worker:
		return unknown // Of this very attempt: the cluster has got another name, and the job goes on under the old one.
	case dispatch.IsFinished():
		return ended
	default:
		return needed
	}
}
