// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/inbox"
)

// reportDelay is how long changes are gathered into one write of a worker's status. A copy that is known by then is not
// reported.
const reportDelay = time.Second

// QuarantineOptions are the options of a Quarantine. All are required.
type QuarantineOptions struct {
	// Hub reads from the hub's caches.
	Hub client.Client
	// Recorder records Events on WorkerClusters.
	Recorder events.EventRecorder
	// Clock is the clock of this process.
	Clock clock.Clock
	// Enqueue brings a key to the garbage collector of a worker, if it has joined. It must not block.
	Enqueue func(worker v1alpha1.ClusterName, key types.NamespacedName)
}

// Quarantine knows the copies on all workers that the hub has no record of, and lists them in the status of each
// WorkerCluster. All garbage collectors share it, and it brings them what changes on the hub. It is safe for concurrent
// use.
type Quarantine struct {
	QuarantineOptions
	registry registry
	startup  startup
	inbox    inbox.Inbox
}

// NewQuarantine makes a Quarantine without copies.
func NewQuarantine(options QuarantineOptions) *Quarantine {
	return &Quarantine{QuarantineOptions: options, registry: newRegistry()}
}

// Of returns a worker with an unknown copy that may belong to this job. Such a job must not be placed: it could run
// twice.
func (q *Quarantine) Of(key types.NamespacedName, origin types.UID) (worker v1alpha1.ClusterName, ok bool) {
	return q.registry.of(key, origin)
}

// Swept is true once this process has listed the worker's copies. Until then, Of knows only what the worker's status
// lists.
func (q *Quarantine) Swept(worker v1alpha1.ClusterName) bool { return q.registry.isSwept(worker) }

// Holds says whether no first copy of a Dispatch's attempt may be created on its worker now. One reason is that another
// worker, by, has an unknown copy of the same job, of this attempt or a later attempt. The other reason is that this
// process has just started, and has not yet looked at all workers that it expects.
func (q *Quarantine) Holds(ctx context.Context, d *v1alpha1.Dispatch) (holds bool, by v1alpha1.ClusterName) {
	attempt, worker := q.registry.runningAttempt(client.ObjectKeyFromObject(d), d.Spec.TrainJob.UID, d.Spec.Cluster)
	if attempt >= d.Spec.Attempt {
		return true, worker
	}
	return !q.isStartupOver(ctx), ""
}

// Subscribe lets the Quarantine call f with the key of a job whenever a copy that matters to Of appears or disappears,
// and with an empty key when Swept has become true for a worker. f must not block.
func (q *Quarantine) Subscribe(f func(key types.NamespacedName)) (cancel func()) {
	return q.registry.subscribe(f)
}

// Add adds the controller to the hub's manager.
func (q *Quarantine) Add(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("quarantine").
		Watches(&v1alpha1.WorkerCluster{}, q.workerHandler()).
		Watches(&v1alpha1.Tombstone{}, q.tombstoneHandler()).
		Watches(&v1alpha1.Dispatch{}, q.lookAgain()).
		Watches(trainjobs.New(), q.lookAgain()).
		Watches(&v1alpha1.Dispatch{}, q.executeAgain(), builder.WithPredicates(attemptChanged())).
		Watches(trainjobs.New(), q.executeAgain(), builder.WithPredicates(jobEnds())).
		WatchesRawSource(q.inbox.Source()).
		Complete(q)
	if err != nil {
		return fmt.Errorf("add quarantine controller: %w", err)
	}
	return mgr.Add(manager.RunnableFunc(func(context.Context) error {
		q.Begin()
		return nil
	}))
}

// Begin says that this process begins to work. Holds is true until it has begun and has looked at the workers.
func (q *Quarantine) Begin() { q.startup.begin(q.Clock.Now()) }

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// workerHandler enqueues each new worker, so that the Quarantine takes in what an earlier process has found there. It
// enqueues the copies of a worker when an admin has decided about them.
func (q *Quarantine) workerHandler() handler.EventHandler {
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, queue requestQueue) {
			queue.Add(reconcile.Request{NamespacedName: client.ObjectKeyFromObject(e.Object)})
		},
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ requestQueue) {
			if decisionsOf(e.ObjectOld) != decisionsOf(e.ObjectNew) {
				q.enqueueAll(v1alpha1.ClusterName(e.ObjectNew.GetName()))
			}
		},
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ requestQueue) {
			q.forget(v1alpha1.ClusterName(e.Object.GetName()))
		},
	}
}

// decisionsOf returns the annotations with which an admin decides, as a text to compare.
func decisionsOf(worker client.Object) string {
	decisions := map[string]string{}
	for key, value := range worker.GetAnnotations() {
		if strings.HasPrefix(key, v1alpha1.AnnotationDecisionPrefix) {
			decisions[key] = value
		}
	}
	return fmt.Sprint(decisions) // fmt sorts the keys.
}

// lookAgain enqueues the unknown copies of a name when a hub object of that name changes.
func (q *Quarantine) lookAgain() handler.EventHandler {
	look := func(object client.Object) {
		key := client.ObjectKeyFromObject(object)
		for _, worker := range q.registry.workersOf(key) {
			q.Enqueue(worker, key)
		}
	}
	return handler.Funcs{
		CreateFunc: func(_ context.Context, e event.CreateEvent, _ requestQueue) { look(e.Object) },
		UpdateFunc: func(_ context.Context, e event.UpdateEvent, _ requestQueue) { look(e.ObjectNew) },
		DeleteFunc: func(_ context.Context, e event.DeleteEvent, _ requestQueue) { look(e.Object) },
	}
}

// enqueueAll enqueues all unknown copies of a worker.
func (q *Quarantine) enqueueAll(worker v1alpha1.ClusterName) {
	for _, key := range q.registry.keysOf(worker) {
		q.Enqueue(worker, key)
	}
}

// forget removes a worker that is no longer registered, with its unknown copies.
func (q *Quarantine) forget(worker v1alpha1.ClusterName) {
	c := q.registry.forget(worker)
	copiesUnknown.DeleteLabelValues(string(worker))
	q.changed(worker, c)
}

// changed reports a change to subscribers, to other workers with a copy of the same job, and in the worker's status.
func (q *Quarantine) changed(worker v1alpha1.ClusterName, c change) {
	if c.certain {
		q.inbox.AddAfter(types.NamespacedName{Name: string(worker)}, reportDelay)
	}
	for _, key := range c.keys {
		for _, other := range q.registry.workersOf(key) {
			if other != worker {
				q.Enqueue(other, key)
			}
		}
		for _, f := range q.registry.listeners() {
			f(key)
		}
	}
}

// hold keeps a copy that the hub has no record of. Until that is certain, only the job of its origin has to wait.
func (q *Quarantine) hold(worker v1alpha1.ClusterName, key types.NamespacedName, s unknownCopy) {
	q.changed(worker, q.registry.put(worker, key, s))
}

// release removes a copy that is known now, or gone.
func (q *Quarantine) release(worker v1alpha1.ClusterName, key types.NamespacedName) {
	q.changed(worker, q.registry.drop(worker, key))
}

// recall takes in the unknown copies from a worker's status, as long as this process has not swept the worker.
func (q *Quarantine) recall(ctx context.Context, name v1alpha1.ClusterName) error {
	if q.registry.isSwept(name) {
		return nil
	}
	worker := &v1alpha1.WorkerCluster{}
	if err := q.Hub.Get(ctx, client.ObjectKey{Name: string(name)}, worker, client.UnsafeDisableDeepCopy); err != nil {
		if client.IgnoreNotFound(err) != nil {
			return fmt.Errorf("get WorkerCluster %q: %w", name, err)
		}
		return nil
	}
	q.changed(name, q.registry.recall(name, worker.Status.UnknownCopies, q.Clock.Now()))
	return nil
}

// isEarly is true as long as another process may have requested a copy that appears on a worker now.
func (q *Quarantine) isEarly(worker v1alpha1.ClusterName) bool {
	return !q.registry.isSwept(worker) || q.startup.isEarly(q.Clock.Now())
}

// swept records the unknown copies that a sweep has found on a worker, and enqueues all unknown copies of that worker.
func (q *Quarantine) swept(worker v1alpha1.ClusterName, found map[types.NamespacedName]unknownCopy) {
	q.changed(worker, q.registry.sweep(worker, found))
	q.enqueueAll(worker)
}
