// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/internal/inbox"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// Options of the controller. All are required but Protected, UnknownCopies, Shown and Kueue.
type Options struct {
	// Hub reads from the hub's caches: TrainJobs unstructured, Namespaces as metadata. They need the indexes of package records.
	Hub client.Client
	// HubReader reads from the hub's API server.
	HubReader client.Reader
	// ManagedBy is the value of spec.managedBy that this manager owns.
	ManagedBy string
	// Protected says that no job of a namespace is placed. Nil: there is none.
	Protected func(namespace string) bool
	// Connections have the workers' inventories.
	Connections Connections
	// UnknownCopies holds back jobs that may be running already. Nil: there are none.
	UnknownCopies UnknownCopies
	// Shown says of a worker that has been connected whether UnknownCopies knows what is there. Until then, but not for longer than half
	// a minute after the start, nothing is placed. Nil: as soon as it is connected.
	Shown func(worker v1alpha1.ClusterName) bool
	// Kueue knows the jobs that a Kueue on the hub has. Nil: none can be its.
	Kueue Kueue
	// Recorder records Events on hub TrainJobs.
	Recorder events.EventRecorder
	// Clock of this process.
	Clock clock.Clock
}

// Reconciler reconciles hub TrainJobs.
type Reconciler struct {
	Options
	policies Policies
	// compiled are the expressions of policies.
	compiled compiled
	demands  *demand.Deriver
	line     *line
	inbox    inbox.Inbox
	wake     chan struct{}

	mu sync.Mutex
	// remembered is what is known of unplaced jobs beyond the caches, under mu.
	remembered map[types.NamespacedName]memory
	// subscribers are told when there may be more room, by a number of their own, and subscriptions is the last one. Under mu.
	subscribers   map[int]func()
	subscriptions int
}

// NewReconciler makes the controller's reconciler.
func NewReconciler(ctx context.Context, options Options) (*Reconciler, error) {
	demands, err := demand.NewDeriver(ctx, options.Hub)
	if err != nil {
		return nil, err
	}
	r := &Reconciler{
		Options:  options,
		policies: Policies{Hub: options.Hub},
		demands:  demands,
		line:     newLine(options.Connections, options.Clock),
		wake:     make(chan struct{}, 1),

		remembered:  map[types.NamespacedName]memory{},
		subscribers: map[int]func(){},
	}
	r.line.opening.shown = options.Shown
	if options.Kueue != nil {
		r.line.opening.known = options.Kueue.Known
	}
	return r, nil
}

// Busy is true while as many jobs wait to be looked at as can be at a time. Work that can wait leaves the API servers
// to them.
func (r *Reconciler) Busy() bool { return r.inbox.Waiting() >= concurrency }

// Reconcile places one TrainJob, or says why it waits.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	defer func() { // Whatever happens to one job, the others go on.
		if r.line.met(key) {
			r.signal()
			r.wakeAll()
		}
	}()
	f, err := r.observe(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	return requeue.AfterLag(r.act(ctx, key, f))
}

// act does what the state of the facts asks for.
func (r *Reconciler) act(ctx context.Context, key types.NamespacedName, f facts) (reconcile.Result, error) {
	what := classify(r.ManagedBy, f)
	log.FromContext(ctx).V(1).Info("Classified", "state", what)
	if what == unplaced {
		return r.place(ctx, f)
	}
	if r.line.leave(key) {
		r.signal()
	}
	switch what {
	case settled:
		r.forget(key)
	case evicted:
		return reconcile.Result{}, r.evict(ctx, f)
	case concluded:
		return reconcile.Result{}, r.conclude(ctx, f)
	case orphaned:
		// As it was seen: by now it may name a worker.
		exactly := client.Preconditions{UID: &f.dispatch.UID, ResourceVersion: &f.dispatch.ResourceVersion}
		return reconcile.Result{}, client.IgnoreNotFound(r.Hub.Delete(ctx, f.dispatch, exactly))
	case suspended:
		return reconcile.Result{}, r.gate(ctx, f)
	case occupied, unplaced:
	}
	return reconcile.Result{}, nil
}

// observe reads the job and its Dispatch from the caches.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (facts, error) {
	var f facts
	job := trainjobs.New()
	switch err := r.Hub.Get(ctx, key, job); {
	case err == nil:
		f.job = job
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("get TrainJob %s: %w", key, err)
	}
	d := &v1alpha1.Dispatch{}
	switch err := r.Hub.Get(ctx, key, d); {
	case err == nil:
		f.dispatch = d
	case !apierrors.IsNotFound(err):
		return f, fmt.Errorf("get Dispatch %s: %w", key, err)
	}
	if f.dispatch != nil {
		f.eviction = r.line.eviction(f.dispatch.Spec.TrainJob.UID)
	}
	f = r.observeKueue(f)
	if f.eviction == nil && f.job != nil && trainjobs.Suspended(f.job) {
		f.eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionSuspended, Message: suspensionMessage}
	}
	return f, nil
}

// place finds a worker for a job and records it, or records why there is none.
func (r *Reconciler) place(ctx context.Context, f facts) (reconcile.Result, error) {
	var err error
	if f.buried, err = r.buried(ctx, f.job.GetUID()); err != nil {
		return reconcile.Result{}, err
	}
	if a := r.line.granted(f.job.GetUID(), r.nextAttempt(f)); a != nil {
		return r.grant(ctx, f, a)
	}
	if hushed, until := r.awaitsKueue(f); hushed {
		r.park(client.ObjectKeyFromObject(f.job))
		return reconcile.Result{RequeueAfter: until}, nil // Kueue wakes us.
	}
	// Before the runtime is read: a change after that wakes the job.
	r.line.waits(client.ObjectKeyFromObject(f.job), runtimeOf(f.job))
	job, verdict, err := r.candidate(ctx, f)
	if err != nil {
		return reconcile.Result{}, err
	}
	job.Since = r.waitsSince(f)
	if held := r.held(f); held != nil {
		verdict = held
	}
	if exhausted := r.exhausted(f); exhausted != nil {
		verdict = exhausted
	}
	if verdict != nil {
		r.park(job.Key())
		return r.wait(ctx, f, job, *verdict)
	}
	excluded, expire, err := r.excluded(ctx, f, job)
	if err != nil {
		return reconcile.Result{}, err
	}
	job.Excluded = excluded
	job.Class = classOf(job)
	r.line.stand(*job)
	if err := r.pass(ctx, job.Key()); err != nil {
		return reconcile.Result{}, err
	}
	if a := r.line.granted(job.UID, job.Attempt); a != nil {
		return r.grant(ctx, f, a)
	}
	answer, decided := r.line.answer(job.Key())
	if !decided {
		return reconcile.Result{}, nil // A pass will wake us.
	}
	result, err := r.wait(ctx, f, job, answer)
	result.RequeueAfter = requeue.Sooner(result.RequeueAfter, max(0, expire))
	return result, err
}

// park takes a job out of line that waits for something else than workers.
func (r *Reconciler) park(key types.NamespacedName) {
	if r.line.park(key) {
		r.signal()
	}
}

// held is the verdict on a job that somebody else may run. Nil: there is no sign of that.
func (r *Reconciler) held(f facts) *dispatch.Decision {
	if verdict := kueueVerdict(f); verdict != nil {
		return verdict
	}
	return r.unknownCopy(f)
}

// pass decides on what a change could help, and has the jobs looked at that it is about, but the one that is being looked at.
func (r *Reconciler) pass(ctx context.Context, except types.NamespacedName) error {
	round, err := r.line.pass(r.workers(ctx))
	if err != nil {
		return err
	}
	r.follow(round, except)
	return nil
}

// workers lists them from the cache.
func (r *Reconciler) workers(ctx context.Context) lister {
	return func() ([]v1alpha1.WorkerCluster, error) {
		var workers v1alpha1.WorkerClusterList
		if err := r.Hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
			return nil, fmt.Errorf("list WorkerClusters: %w", err)
		}
		return workers.Items, nil
	}
}

// follow has everybody told of what a pass has done, but the one job that is being looked at.
func (r *Reconciler) follow(done round, except types.NamespacedName) {
	if done.rearm {
		r.signal()
	}
	if done.changed {
		r.tellSubscribers()
	}
	for _, outcome := range done.outcomes {
		if key := outcome.Job.Key(); key != except {
			r.inbox.Add(key)
		}
		if outcome.Preemption != nil {
			for _, victim := range outcome.Preemption.Victims {
				r.inbox.Add(victim.Key)
			}
		}
	}
}

// grant writes a decision that has not been written. If the API server has refused it, what the job was given is free for others. Of any other failure it is not
// known whether the decision is on record, so the job keeps its room, and tries again.
//
// Since the job was put in line, a copy may have shown itself, or Kueue: then the decision is taken back.
func (r *Reconciler) grant(ctx context.Context, f facts, a *assignment) (reconcile.Result, error) {
	if a.grant == nil {
		return reconcile.Result{}, nil // The cache will show it.
	}
	f = r.observeKueue(f)
	if r.held(f) != nil || f.kueue.Standing == kueue.Unknown {
		if r.line.forget(a.uid, a.attempt) {
			r.signal()
		}
		return r.place(ctx, f)
	}
	err := r.record(ctx, f, a)
	if err == nil {
		r.line.written(a.uid, a.attempt)
		timeToPlace.Observe(r.Clock.Since(r.notice(f)).Seconds())
		r.forget(a.key)
		return reconcile.Result{}, nil
	}
	if isRefused(err) && r.line.forget(a.uid, a.attempt) {
		r.signal()
	}
	if records.IsFinal(err) && r.line.park(a.key) { // It comes back with a back-off, and when what it needs or what holds for it changes.
		r.signal()
	}
	return reconcile.Result{}, err
}

// isRefused: what was to be written has certainly not been.
func isRefused(err error) bool {
	return records.IsFinal(err) || apierrors.IsForbidden(err) || apierrors.IsNotFound(err) || apierrors.IsTooManyRequests(err) || apierrors.IsUnauthorized(err)
}
