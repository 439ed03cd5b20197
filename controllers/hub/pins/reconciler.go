// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package pins

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// unneededFor is for how long nothing has needed a runtime that is deleted. Jobs that follow each other share one.
const unneededFor = 30 * time.Second

const (
	// heldCheck is how often a held runtime is looked at again.
	heldCheck = time.Second
	// namedCheck is when a runtime is looked at again that something names which no cache shows: a TrainJob of somebody else. For as
	// long a worker is not asked again that grants no right to delete.
	namedCheck = 10 * time.Minute
)

// Options of a Reconciler. All are required.
type Options struct {
	// Cluster is the worker's name, and ClusterID the ID of the cluster that it leads to.
	Cluster   v1alpha1.ClusterName
	ClusterID types.UID
	// HubID marks what is ours on the worker.
	HubID string
	// Hub reads Dispatches from the hub's caches, and HubReader from the hub's API server.
	Hub, HubReader client.Reader
	// Worker is the connection.
	Worker copies.Connection
	// Clock is the clock of this process.
	Clock clock.PassiveClock
}

// Reconciler deletes the pinned runtimes of one worker that nothing needs. One goroutine at a time may call Reconcile. Hold
// may be called concurrently.
type Reconciler struct {
	Options
	holds

	started time.Time
	// unneeded is since when nothing has needed a runtime.
	unneeded map[types.NamespacedName]unneeded
	// forbidden is when the worker has last refused a deletion for lack of the right.
	forbidden time.Time
}

// unneeded is since when nothing has needed a runtime.
type unneeded struct {
	uid   types.UID
	since time.Time
	// named is when the worker's API server has last shown a TrainJob that names the runtime, and that no cache shows.
	named time.Time
}

// NewReconciler makes the Reconciler of a worker.
func NewReconciler(options Options) *Reconciler {
	return &Reconciler{
		Options: options, started: options.Clock.Now(), unneeded: map[types.NamespacedName]unneeded{},
		holds: holds{held: map[types.NamespacedName]int{}, deleting: map[types.NamespacedName]types.UID{}},
	}
}

// Reconcile deletes the pinned runtimes of a namespace that nothing has needed for a while.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	namespace := request.Name
	worker, err := copies.Connect(r.Cluster, r.Worker)
	if err != nil {
		return reconcile.Result{}, nil //nolint:nilerr // The next connection brings the namespaces again.
	}
	list := &metav1.PartialObjectMetadataList{}
	list.SetGroupVersionKind(trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind + "List"))
	ours := client.MatchingLabels{v1alpha1.LabelPropagatedBy: r.HubID}
	err = worker.List(ctx, list, client.InNamespace(namespace), ours, client.HasLabels{v1alpha1.LabelPinned}, client.UnsafeDisableDeepCopy)
	if err != nil {
		return reconcile.Result{}, fmt.Errorf("list TrainingRuntimes of namespace %q from the cache of worker %q: %w", namespace, r.Cluster, err)
	}
	r.settle(namespace, list.Items)
	maps.DeleteFunc(r.unneeded, func(key types.NamespacedName, _ unneeded) bool {
		return key.Namespace == namespace && !slices.ContainsFunc(list.Items, func(its metav1.PartialObjectMetadata) bool { return its.Name == key.Name })
	})
	isNeeded, err := r.needs(ctx, worker, namespace)
	if err != nil {
		return reconcile.Result{}, err
	}
	var due time.Duration
	for i := range list.Items {
		if list.Items[i].DeletionTimestamp != nil {
			continue
		}
		again, err := r.look(ctx, worker, &list.Items[i], isNeeded(&list.Items[i]))
		if err != nil {
			return requeue.AfterConflict(reconcile.Result{}, err)
		}
		due = requeue.Sooner(due, again)
	}
	return reconcile.Result{RequeueAfter: due}, nil
}

// look deletes a runtime if nothing has needed it for a while. It returns when to look again, zero if an event will tell.
func (r *Reconciler) look(
	ctx context.Context, worker copies.Worker, runtime *metav1.PartialObjectMetadata, needed bool,
) (time.Duration, error) {
	key := client.ObjectKeyFromObject(runtime)
	if needed {
		delete(r.unneeded, key)
		return 0, nil
	}
	now := r.Clock.Now()
	if r.unneeded[key].uid != runtime.UID {
		r.unneeded[key] = unneeded{uid: runtime.UID, since: now}
	}
	known := r.unneeded[key]
	if wait := max(unneededFor-now.Sub(known.since), records.StartLag-now.Sub(r.started), namedCheck-now.Sub(known.named)); wait > 0 {
		return wait, nil
	}
	if now.Sub(r.forbidden) < namedCheck {
		return 0, nil // Events in the namespace must not cost requests that change nothing.
	}
	if !r.begin(key, runtime.UID) {
		return heldCheck, nil
	}
	deleted, err := r.delete(ctx, worker, runtime)
	if deleted {
		return 0, nil
	}
	r.end(key)
	return namedCheck, err
}

// needs returns what says whether a Dispatch or a copy needs a runtime of a namespace, as far as the caches show it now.
func (r *Reconciler) needs(
	ctx context.Context, worker copies.Worker, namespace string,
) (isNeeded func(runtime *metav1.PartialObjectMetadata) bool, err error) {
	live, err := records.LiveIn(ctx, r.Hub, r.Cluster, namespace)
	if err != nil {
		return nil, err
	}
	list := trainjobs.NewList()
	if err := worker.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list copies on worker %q: %w", r.Cluster, err)
	}
	named := sets.Set[string]{}
	for i := range list.Items {
		named.Insert(list.Items[i].GetAnnotations()[v1alpha1.AnnotationPinnedRuntime])
	}
	return func(runtime *metav1.PartialObjectMetadata) bool {
		return named.Has(runtime.Name) || r.isNamed(live, runtime)
	}, nil
}

// isNamed says whether a copy of one of these Dispatches may name a runtime.
func (r *Reconciler) isNamed(dispatches []v1alpha1.Dispatch, runtime *metav1.PartialObjectMetadata) bool {
	for i := range dispatches {
		d := &dispatches[i]
		if d.Namespace != runtime.Namespace || d.Spec.Cluster != r.Cluster || d.Spec.Runtime != v1alpha1.RuntimePin || d.IsFinished() ||
			d.Spec.ClusterID != "" && d.Spec.ClusterID != r.ClusterID {
			continue
		}
		counted := d.Spec.Counted
		if counted == nil || strings.HasPrefix(runtime.Annotations[v1alpha1.AnnotationSource], counted.Runtime+".") {
			return true
		}
	}
	return false
}

// delete asks the API servers of hub and worker whether anything needs a runtime, and deletes it if nothing does.
func (r *Reconciler) delete(ctx context.Context, worker copies.Worker, runtime *metav1.PartialObjectMetadata) (deleted bool, err error) {
	dispatches := &v1alpha1.DispatchList{}
	if err := r.HubReader.List(ctx, dispatches, client.InNamespace(runtime.Namespace)); err != nil {
		//nolint:errorlint // The hub's answer must not be taken for the worker's.
		return false, fmt.Errorf("list Dispatches of namespace %q: %v", runtime.Namespace, err)
	}
	if r.isNamed(dispatches.Items, runtime) {
		return false, nil // Its event is on its way.
	}
	reader, err := r.Worker.APIReader()
	if err != nil {
		return false, err
	}
	list := trainjobs.NewList()
	if err := reader.List(ctx, list, client.InNamespace(runtime.Namespace)); err != nil {
		return false, fmt.Errorf("list TrainJobs of namespace %q on worker %q: %w", runtime.Namespace, r.Cluster, err)
	}
	for i := range list.Items {
		if kind, key := trainjobs.RuntimeOf(&list.Items[i]); kind == trainer.TrainingRuntimeKind && key == client.ObjectKeyFromObject(runtime) {
			known := r.unneeded[key]
			known.named = r.Clock.Now()
			r.unneeded[key] = known
			return false, nil
		}
	}
	err = worker.Delete(ctx, runtime.DeepCopy(), client.Preconditions{UID: &runtime.UID, ResourceVersion: &runtime.ResourceVersion})
	switch {
	case err == nil:
		log.FromContext(ctx).Info("Deleted pinned runtime that no copy names", "namespace", runtime.Namespace, "runtime", runtime.Name)
		return true, nil
	case apierrors.IsNotFound(err), apierrors.IsConflict(err):
		return false, nil // Its event is on its way.
	}
	err = fmt.Errorf("delete TrainingRuntime %s/%s on worker %q: %w", runtime.Namespace, runtime.Name, r.Cluster, err)
	if apierrors.IsForbidden(err) { // The worker does not grant config/worker-pins: the runtime stays.
		r.forbidden = r.Clock.Now()
		return false, reconcile.TerminalError(err)
	}
	return false, err
}
