// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/decider"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/answers"
	"github.com/trainyard/trainyard/internal/inbox"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
	"github.com/trainyard/trainyard/remote"
)

const (
	// explanationInterval is the least time between two writes of a waiting job's explanation if only numbers in it
	// change.
	explanationInterval = 10 * time.Second
)

// Connections are the connections to workers. remote.Fleet has them.
type Connections interface {
	decider.Connections
	// Subscribe calls notify, which must not block, when a connection changes.
	Subscribe(notify func(v1alpha1.ClusterName, remote.Status)) (cancel func())
}

// Options of the controller. All are required but Protected, Trials, UnknownCopies, Shown, Kueue and AdmissionCheck.
type Options struct {
	// Hub reads from the hub's caches: TrainJobs unstructured, Namespaces as metadata. They need the indexes of
	// package records.
	Hub client.Client
	// HubReader reads from the hub's API server.
	HubReader client.Reader
	// ManagedBy is the value of spec.managedBy that this manager owns.
	ManagedBy string
	// Protected says that no job of a namespace is placed. Nil: there is none.
	Protected func(namespace string) bool
	// Connections have the workers' inventories.
	Connections Connections
	// Trials asks workers whether they take a job before others are stopped there for it. Nil: workers are not asked.
	Trials Trials
	// UnknownCopies holds back jobs that may be running already. Nil: there are none.
	UnknownCopies UnknownCopies
	// Shown says of a worker that has been connected whether UnknownCopies knows what is there. Until then, but not for
	// longer than half a minute after the start, nothing is placed. Nil: as soon as it is connected.
	Shown func(worker v1alpha1.ClusterName) bool
	// Kueue knows the jobs that a Kueue on the hub has. Nil: none can be its.
	Kueue Kueue
	// AdmissionCheck says that the admission checks of kueue.CheckController are decided here.
	AdmissionCheck bool
	// Recorder records Events on hub TrainJobs.
	Recorder events.EventRecorder
	// Clock of this process.
	Clock clock.Clock
}

// Reconciler reconciles hub TrainJobs.
type Reconciler struct {
	*Options
	decider *decider.Decider
	needs   *needs
	writer  *writer
	watches *watches
	waiting *waiting
	history *history
	inbox   *inbox.Inbox
}

// NewReconciler makes the controller's reconciler.
func NewReconciler(ctx context.Context, options Options) (*Reconciler, error) {
	demands, err := demand.NewDeriver(ctx, options.Hub)
	if err != nil {
		return nil, err
	}
	r := &Reconciler{
		Options: &options,
		needs: &needs{
			Options: &options, policies: Policies{Hub: options.Hub}, demands: demands, workerQueues: &workerQueues{},
		},
		writer:  &writer{&options},
		waiting: newWaiting(),
		history: &history{clock: options.Clock, jobs: map[types.NamespacedName]past{}},
		inbox:   &inbox.Inbox{},
	}
	decisions := decider.Options{
		Connections: options.Connections, Wake: r.wake,
		Workers: func(ctx context.Context) ([]v1alpha1.WorkerCluster, error) { return workersOf(ctx, options.Hub) },
		Shown:   options.Shown, Clock: options.Clock,
	}
	if options.Kueue != nil {
		decisions.KueueKnown = options.Kueue.Known
	}
	if options.Trials != nil {
		decisions.Digest = digestOf
	}
	r.decider = decider.New(decisions)
	r.watches = &watches{decider: r.decider, waiting: r.waiting, history: r.history, wake: r.wake, workerQueues: r.needs.workerQueues}
	return r, nil
}

// Busy is true while at least as many jobs wait to be looked at as the Reconciler handles at a time. Work that can wait
// should then leave the API servers to these jobs.
func (r *Reconciler) Busy() bool { return r.inbox.Waiting() >= concurrency }

// wake makes the Reconciler look at jobs.
func (r *Reconciler) wake(jobs ...types.NamespacedName) {
	for _, key := range jobs {
		r.inbox.Add(key)
	}
}

// workersOf lists the WorkerClusters from the cache.
func workersOf(ctx context.Context, hub client.Reader) ([]v1alpha1.WorkerCluster, error) {
	var workers v1alpha1.WorkerClusterList
	if err := hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list WorkerClusters: %w", err)
	}
	return workers.Items, nil
}

// Reconcile tells the decider what one TrainJob needs, and writes what it has been granted or why it waits.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	defer r.decider.Met(key) // Whatever happens to one job, the others go on.
	f, err := r.observe(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	return requeue.AfterLag(r.act(ctx, key, f))
}

// act does what the state asks for.
func (r *Reconciler) act(ctx context.Context, key types.NamespacedName, f observation) (reconcile.Result, error) {
	what := classify(r.ManagedBy, f)
	log.FromContext(ctx).V(1).Info("Classified", "state", what)
	if what == unplaced {
		return r.place(ctx, key, f)
	}
	r.decider.Leave(key)
	if r.waiting.drop(key); f.kueue.Standing == kueue.Unknown {
		r.waiting.put(key, f.job) // It is looked at again when more is known.
	}
	switch what {
	case settled:
		r.history.forget(key)
	case evicted:
		return reconcile.Result{}, r.writer.evict(ctx, f)
	case concluded:
		return reconcile.Result{}, r.writer.conclude(ctx, f)
	case orphaned:
		return reconcile.Result{}, client.IgnoreNotFound(r.writer.records().DeleteUnchanged(ctx, f.dispatch))
	case suspended:
		return reconcile.Result{}, r.writer.suspend(ctx, f)
	case held:
		return reconcile.Result{}, r.admit(ctx, f, f.dispatch.Spec.Cluster)
	case occupied, unplaced:
	}
	return reconcile.Result{}, nil
}

// observe reads the job and its Dispatch from the caches.
func (r *Reconciler) observe(ctx context.Context, key types.NamespacedName) (observation, error) {
	var f observation
	var err error
	if f.job, err = records.Job(ctx, r.Hub, key); err != nil {
		return f, err
	}
	if f.dispatch, err = records.Dispatch(ctx, r.Hub, key); err != nil {
		return f, err
	}
	if f.dispatch != nil {
		f.eviction = r.decider.Eviction(f.dispatch.Spec.TrainJob.UID)
	}
	f = r.observeKueue(f)
	if f.eviction == nil && f.suspends() {
		f.eviction = &v1alpha1.Eviction{Reason: v1alpha1.EvictionSuspended, Message: suspensionMessage}
	}
	return f, nil
}

// place writes what an unplaced job has been granted. A job without a grant asks the decider for one.
func (r *Reconciler) place(ctx context.Context, key types.NamespacedName, f observation) (reconcile.Result, error) {
	var err error
	if f.past, err = r.past(ctx, f); err != nil {
		return reconcile.Result{}, err
	}
	grant, placed := r.decider.Granted(f.job.GetUID(), record.NextAttempt(f.past.attempt))
	switch {
	case !placed:
		return r.wait(ctx, key, f)
	case grant == nil:
		return reconcile.Result{}, nil // The cache will show it.
	}
	return reconcile.Result{}, r.write(ctx, key, f, grant)
}

// write writes a grant. If a copy or Kueue has shown itself since the decider was told what the job needs, the job is
// looked at again instead. If the API server has refused the grant, what the job was given is free for others. After
// any other failure it is not known whether the grant is on record, so the job keeps its room, and tries again.
func (r *Reconciler) write(ctx context.Context, key types.NamespacedName, f observation, grant *decider.Grant) error {
	if heldBack(r.UnknownCopies, f) != nil || f.kueue.Standing == kueue.Unknown {
		r.decider.Forget(grant.Job.UID, grant.Job.Attempt)
		r.wake(key)
		return nil
	}
	err := r.writer.place(ctx, f, grant)
	if err == nil {
		r.decider.Written(grant.Job.UID, grant.Job.Attempt)
		r.waiting.drop(key)
		timeToPlace.WithLabelValues(policyName(grant.Decision.Policy)).Observe(r.Clock.Since(f.past.firstSeen).Seconds())
		r.history.forget(key)
		return r.admit(ctx, f, grant.Decision.Cluster)
	}
	if isRefused(err) {
		r.decider.Forget(grant.Job.UID, grant.Job.Attempt)
	}
	if records.IsFinal(err) { // The job comes back with a back-off, and when what it needs or what holds for it changes.
		r.decider.Leave(key)
	}
	return err
}

// wait puts a job on the decider's waiting list. It writes the grant if there is room, and otherwise says on the
// Dispatch why the job waits.
func (r *Reconciler) wait(ctx context.Context, key types.NamespacedName, f observation) (reconcile.Result, error) {
	r.waiting.put(key, f.job) // Before the runtime is read: a change after that wakes the job.
	r.waiting.hasQuota(key, f.kueue.Review != nil)
	if hushed, until := r.awaitsKueue(f); hushed {
		r.decider.Leave(key)
		return reconcile.Result{RequeueAfter: until}, nil // Kueue wakes us.
	}
	job, obstacle, err := r.needs.of(ctx, f)
	if err != nil {
		return reconcile.Result{}, err
	}
	if obstacle = cmp.Or(exhausted(f.past), heldBack(r.UnknownCopies, f), obstacle); obstacle != nil {
		r.decider.Leave(key)
		if err := r.writer.wait(ctx, f, job, *obstacle); err != nil {
			return reconcile.Result{}, err
		}
		due, err := r.keepQuota(ctx, f, obstacle.Reason)
		return reconcile.Result{RequeueAfter: due}, err
	}
	expire, err := r.needs.exclude(ctx, f, job)
	if err != nil {
		return reconcile.Result{}, err
	}
	grant, waits, err := r.decider.Enter(ctx, *job)
	switch {
	case err != nil:
		return reconcile.Result{}, err
	case grant != nil:
		return reconcile.Result{}, r.write(ctx, key, r.observeKueue(f), grant)
	case waits.Reason == "":
		return reconcile.Result{}, nil // The decider wakes us.
	}
	r.try(f, job)
	if why := r.decider.WhyNobodyStops(job); why != "" {
		waits.Message += "; nobody is stopped for it: " + why
	}
	delay, err := r.explain(ctx, f, job, waits)
	if err != nil {
		return reconcile.Result{}, err
	}
	due, err := r.keepQuota(ctx, f, waits.Reason)
	return reconcile.Result{RequeueAfter: requeue.Sooner(due, requeue.Sooner(delay, max(0, expire)))}, err
}

// explain says on the Dispatch of a job on the waiting list what each worker lacks. If it is too early for that,
// explain returns how long to wait.
func (r *Reconciler) explain(ctx context.Context, f observation, job *queue.Job, answer dispatch.Decision) (time.Duration, error) {
	d, err := r.writer.withoutWorker(ctx, f, job)
	if err != nil {
		return 0, err
	}
	explanation := record.BoundExplanation(r.decider.Explain(job))
	if onlyNumbersChanged(d, answer, explanation) {
		if early := explanationInterval - r.Clock.Since(f.past.explained); early > 0 {
			return early, nil
		}
	}
	if err := cmp.Or(r.writer.writeStatus(ctx, f, d, answer, explanation), r.writer.sayWhetherSuspended(ctx, f)); err != nil {
		return 0, err
	}
	r.history.explained(job.Key())
	return 0, nil
}

// isRefused: the grant has certainly not been written, by any write.
func isRefused(err error) bool {
	answer := answers.Of(err)
	return answer == answers.Later || answer.IsRefusal()
}
