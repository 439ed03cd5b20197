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

// reportDelay is how long changes are gathered into one write of a worker's status. What is over by then is not told of.
const reportDelay = time.Second

// QuarantineOptions are all required.
type QuarantineOptions struct {
	// Hub reads from the hub's caches.
	Hub client.Client
	// Recorder records Events on WorkerClusters.
	Recorder events.EventRecorder
	// Clock of this process.
	Clock clock.Clock
	// Enqueue brings a key to the garbage collector of a worker, if it has joined. It must not block.
	Enqueue func(worker v1alpha1.ClusterName, key types.NamespacedName)
}

// Quarantine knows the copies of all workers that the hub has no record of, and says in the status of each WorkerCluster which they are.
// It is one for all garbage collectors, and brings them what changes on the hub. Its methods may be called from several goroutines.
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

// Of returns a worker that has a copy of which the hub has no record, and which may be the job of this name and UID. The job must not be
// placed then, or it could run twice.
func (q *Quarantine) Of(key types.NamespacedName, origin types.UID) (worker v1alpha1.ClusterName, ok bool) {
	return q.registry.of(key, origin)
}

// Swept is true once this process has asked the worker's API server what is there: before, Of cannot know of its copies, unless its status
// has them.
func (q *Quarantine) Swept(worker v1alpha1.ClusterName) bool { return q.registry.isSwept(worker) }

// Holds is true while no first copy of a Dispatch's attempt may be created on its worker: another worker has a copy of the same job and of
// this attempt or a later one, which the Dispatch is made to say, or this process has just begun to work and could not look at all workers
// that it expects.
func (q *Quarantine) Holds(ctx context.Context, d *v1alpha1.Dispatch) bool {
	attempt, worker := q.registry.rivalOf(client.ObjectKeyFromObject(d), d.Spec.TrainJob.UID, d.Spec.Cluster)
	if attempt >= d.Spec.Attempt {
		q.sayHeld(ctx, d, worker)
		return true
	}
	return !q.isStartupOver(ctx)
}

// Subscribe has f called with the key of a job whenever a copy appears or goes that Of tells of, and with an empty key when Swept has become
// true for a worker. f must not block.
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

// Begin is called when this process begins to work. Until then, and until the workers have been looked at, Holds is true.
func (q *Quarantine) Begin() { q.startup.begin(q.Clock.Now()) }

type requestQueue = workqueue.TypedRateLimitingInterface[reconcile.Request]

// workerHandler has taken in what an earlier process has found on a worker, and its copies looked at when an admin has decided.
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

// decisionsOf are the annotations with which an admin decides, as something to compare.
func decisionsOf(worker client.Object) string {
	decisions := map[string]string{}
	for key, value := range worker.GetAnnotations() {
		if strings.HasPrefix(key, v1alpha1.AnnotationDecisionPrefix) {
			decisions[key] = value
		}
	}
	return fmt.Sprint(decisions) // in the order of the keys
}

// lookAgain has the unknown copies of a name looked at when something about it changes on the hub.
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

// enqueueAll has all unknown copies of a worker looked at.
func (q *Quarantine) enqueueAll(worker v1alpha1.ClusterName) {
	for _, key := range q.registry.keysOf(worker) {
		q.Enqueue(worker, key)
	}
}

// forget is for a worker that is not registered any more. What it has is unknown to nobody then.
func (q *Quarantine) forget(worker v1alpha1.ClusterName) {
	c := q.registry.forget(worker)
	copiesUnknown.DeleteLabelValues(string(worker))
	q.changed(worker, c)
}

// changed tells of a change: subscribers, the other workers that have a copy of the same job, and, soon, the status of the worker.
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

// hold keeps a copy that the hub has no record of. Until that is certain only the job of its origin has to wait for it.
func (q *Quarantine) hold(worker v1alpha1.ClusterName, key types.NamespacedName, s suspect) {
	q.changed(worker, q.registry.put(worker, key, s))
}

// release lets a copy go that is known now, or gone.
func (q *Quarantine) release(worker v1alpha1.ClusterName, key types.NamespacedName) {
	q.changed(worker, q.registry.drop(worker, key))
}

// recall takes in what the status of a worker says of it, as long as this process has not looked at it.
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

// isEarly is true as long as a copy that appears on a worker may be one that another process has asked for.
func (q *Quarantine) isEarly(worker v1alpha1.ClusterName) bool {
	return !q.registry.isSwept(worker) || q.startup.isEarly(q.Clock.Now())
}

// swept takes in what a worker has, and has the garbage collector look at it.
func (q *Quarantine) swept(worker v1alpha1.ClusterName, suspects map[types.NamespacedName]suspect) {
	q.changed(worker, q.registry.sweep(worker, suspects))
	q.enqueueAll(worker)
}
