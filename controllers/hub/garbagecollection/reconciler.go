// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
	"github.com/trainyard/trainyard/remote"
)

// Name is the name of the controller.
const Name = "garbagecollection"

// Worker is the connection to the worker. remote.Cluster implements it.
type Worker interface {
	// Client reads copies from the connection's caches and writes to the worker. It fails while there is no connection.
	Client() (client.Client, error)
	// APIReader reads from the worker's API server, and fails as Client does.
	APIReader() (client.Reader, error)
}

// Options are the options of a garbage collector. All are required but Others, Needs and Busy.
type Options struct {
	// Cluster is the worker's name, and ClusterID the ID of the cluster that it leads to.
	Cluster   v1alpha1.ClusterName
	ClusterID types.UID
	// HubID is on each copy of this hub.
	HubID string
	// ManagedBy is the value of spec.managedBy that this manager owns.
	ManagedBy string
	// Hub reads from the hub's caches, HubReader from its API server.
	Hub       client.Client
	HubReader client.Reader
	// Worker is the connection, and WorkerCache its caches. WorkerCache sends no requests to the API server: it fails to
	// list kinds that it does not hold. If it holds pods, they have the index remote.IndexJobSet.
	Worker      Worker
	WorkerCache client.Reader
	// Others returns the connections to the other workers. A worker may show a later attempt of a job that is on record
	// elsewhere. The manager believes this worker only if the worker on record says that it does not have the job. If
	// Others is nil, the manager does not believe it.
	Others Others
	// Quarantine is shared by the garbage collectors of all workers.
	Quarantine *Quarantine
	// Retention returns how long the finished copy of a job stays.
	Retention func(ctx context.Context, job *unstructured.Unstructured) (time.Duration, error)
	// Needs returns what a job needs and its priority, as placement would record them. Nil, or an error: they are not
	// known.
	Needs func(ctx context.Context, job *unstructured.Unstructured) ([]v1alpha1.PodSet, int32, error)
	// Busy is true while jobs wait for the hub or for this worker's mirror. The deletion of finished copies waits then,
	// and for burstPause after that. Nil means never busy.
	Busy func() bool
	// Recorder records Events on hub TrainJobs and WorkerClusters.
	Recorder events.EventRecorder
	// Clock is the clock of this process.
	Clock clock.Clock
}

// NewReconciler makes the garbage collector of one worker. Its keys are the keys of the worker's copies and of their
// Dispatches. A key without a namespace is the name of a Tombstone.
func NewReconciler(options Options) reconcile.Reconciler {
	return &reconciler{Options: options}
}

type reconciler struct {
	Options
	burst     burst
	leftovers leftovers
}

// Reconcile deletes one copy if a record says so, or executes one Tombstone.
func (r *reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	worker, err := r.Worker.Client()
	if err != nil {
		// The next connection brings all other keys again.
		return r.leftovers.disconnected(request.NamespacedName), nil //nolint:nilerr // It is no failure.
	}
	var result reconcile.Result
	if request.Namespace == "" {
		result, err = r.execute(ctx, worker, request.Name)
	} else {
		result, err = r.collect(ctx, worker, request.NamespacedName)
	}
	return requeue.AfterLag(result, err)
}

// collect judges one copy, and does what the verdict requires.
func (r *reconciler) collect(ctx context.Context, worker client.Client, key types.NamespacedName) (reconcile.Result, error) {
	copy := trainjobs.New()
	if err := worker.Get(ctx, key, copy); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return reconcile.Result{}, fmt.Errorf("get TrainJob %s on worker %q: %w", key, r.Cluster, err)
		}
		return r.missing(ctx, worker, key)
	}
	r.leftovers.forget(key)
	hub, err := r.observe(ctx, r.Hub, copy)
	if err != nil {
		return reconcile.Result{}, err
	}
	switch judge(r.here(), copy, hub) {
	case outdated:
		r.Quarantine.release(r.Cluster, key)
		return reconcile.Result{}, r.delete(ctx, worker, copy, "outdated")
	case ended:
		r.Quarantine.release(r.Cluster, key)
		return r.retire(ctx, worker, copy, hub.dispatch)
	case needed:
		r.Quarantine.release(r.Cluster, key)
		return reconcile.Result{}, r.heed(ctx, copy, hub)
	case unknown, adoptable, postponed:
		return r.investigate(ctx, worker, copy, hub)
	}
	return reconcile.Result{}, nil
}

func (r *reconciler) here() place { return place{Cluster: r.Cluster, ClusterID: r.ClusterID} }

// observe reads what the hub has on record about a copy.
func (r *reconciler) observe(ctx context.Context, hub client.Reader, copy client.Object) (hubRecords, error) {
	var found hubRecords
	key := client.ObjectKeyFromObject(copy)
	dispatch := &v1alpha1.Dispatch{}
	switch err := hub.Get(ctx, key, dispatch); {
	case err == nil:
		found.dispatch = dispatch
	case !apierrors.IsNotFound(err):
		return found, fmt.Errorf("get Dispatch %s: %w", key, err)
	}
	var err error
	found.tombstones, err = r.tombstones(ctx, hub, originOf(copy), attemptOf(copy))
	return found, err
}

// tombstones reads the Tombstones of a job that may cover this attempt.
func (r *reconciler) tombstones(ctx context.Context, hub client.Reader, origin types.UID, attempt int32) ([]v1alpha1.Tombstone, error) {
	var found []v1alpha1.Tombstone
	for _, name := range records.TombstoneNames(origin, attempt) {
		tombstone := v1alpha1.Tombstone{}
		switch err := hub.Get(ctx, client.ObjectKey{Name: name}, &tombstone); {
		case err == nil:
			found = append(found, tombstone)
		case !apierrors.IsNotFound(err):
			return nil, fmt.Errorf("get Tombstone %q: %w", name, err)
		}
	}
	return found, nil
}

// retire deletes a finished copy when its retention is over and no burst of jobs is under way. It measures the copy's
// age on the hub, from the Dispatch's Finished condition: clocks of two clusters are not compared.
func (r *reconciler) retire(
	ctx context.Context, worker client.Client, copy *unstructured.Unstructured, dispatch *v1alpha1.Dispatch,
) (reconcile.Result, error) {
	retention, err := r.retention(ctx, copy)
	if err != nil {
		return reconcile.Result{}, err
	}
	end := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchFinished).LastTransitionTime
	waited := r.Clock.Since(end.Time) - retention
	if waited < 0 {
		return reconcile.Result{RequeueAfter: -waited}, nil
	}
	if copy.GetDeletionTimestamp() != nil {
		return reconcile.Result{}, nil
	}
	busy := r.Busy != nil && r.burst.lasts(r.Busy(), r.Clock.Now())
	if later := nextLook(waited, busy); later > 0 {
		return reconcile.Result{RequeueAfter: later}, nil
	}
	return reconcile.Result{}, r.deleteBy(ctx, worker, copy, "retention", r.propagation(ctx, copy))
}

// retention returns the retention from the policy of the hub's job, and zero if there is no job.
func (r *reconciler) retention(ctx context.Context, copy *unstructured.Unstructured) (time.Duration, error) {
	job := trainjobs.New()
	if err := r.Hub.Get(ctx, client.ObjectKeyFromObject(copy), job); err != nil {
		return 0, client.IgnoreNotFound(err)
	}
	return r.Retention(ctx, job)
}

// propagation says how to delete a finished copy. A deletion in the foreground ends after the copy's pods, and costs
// the worker three times the requests. So it is only for copies that have, or may have, a pod alive.
func (r *reconciler) propagation(ctx context.Context, copy *unstructured.Unstructured) metav1.DeletionPropagation {
	key := client.ObjectKeyFromObject(copy)
	var pods corev1.PodList
	err := r.WorkerCache.List(ctx, &pods, client.InNamespace(key.Namespace),
		client.MatchingFields{remote.IndexJobSet: key.Name}, client.UnsafeDisableDeepCopy)
	if err != nil { // With spec.capacity: Report the hub holds no pods. Asking the worker would cost a request.
		return metav1.DeletePropagationForeground
	}
	if trainjobs.Terminal(copy) == nil || slices.ContainsFunc(pods.Items, isAlive) {
		return metav1.DeletePropagationForeground
	}
	return metav1.DeletePropagationBackground
}

// delete deletes exactly this copy in the foreground: Kubernetes deletes its JobSet and pods first.
func (r *reconciler) delete(ctx context.Context, worker client.Client, copy client.Object, why string) error {
	return r.deleteBy(ctx, worker, copy, why, metav1.DeletePropagationForeground)
}

// deleteBy deletes exactly this copy, and its JobSet and pods with it.
func (r *reconciler) deleteBy(
	ctx context.Context, worker client.Client, copy client.Object, why string, propagation metav1.DeletionPropagation,
) error {
	if copy.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := copy.GetUID()
	err := worker.Delete(ctx, copy, client.PropagationPolicy(propagation), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete TrainJob %s/%s on worker %q: %w", copy.GetNamespace(), copy.GetName(), r.Cluster, err)
	}
	log.FromContext(ctx).V(1).Info("Deleted copy", "why", why, "propagation", propagation)
	copiesDeleted.WithLabelValues(string(r.Cluster), why).Inc()
	return nil
}
