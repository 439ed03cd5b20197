// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
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
	"github.com/trainyard/trainyard/dispatch/accelerators"
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

// Runtimes knows how the runtimes of workers differ from the hub's.
type Runtimes interface {
	// Of returns what is known of a worker, nil for nothing.
	Of(worker v1alpha1.ClusterName) *dispatch.Runtimes
	// Own returns the workers on which a runtime may make other pods than the hub's, nil for none. It is the same pointer until
	// something changes.
	Own(runtime types.NamespacedName) *dispatch.OwnRuntimes
	// Subscribe calls notify when something else is known of a worker. own are the runtimes with which the worker may make
	// other pods than before.
	Subscribe(notify func(worker v1alpha1.ClusterName, own []types.NamespacedName)) (cancel func())
}

// Options of the controller. All are required but Protected, Trials, UnknownCopies, Shown, Runtimes, Kueue,
// AdmissionCheck and Accelerators.
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
	// Runtimes knows the runtimes of workers. Nil: what the status of a WorkerCluster says counts.
	Runtimes Runtimes
	// Kueue knows the jobs that a Kueue on the hub has. Nil: none can be its.
	Kueue Kueue
	// AdmissionCheck says that the admission checks of kueue.CheckController are decided here.
	AdmissionCheck bool
	// Accelerators knows the resources that are accelerators.
	Accelerators accelerators.Table
	// Recorder records Events on hub TrainJobs.
	Recorder events.EventRecorder
	// Clock of this process.
	Clock clock.Clock
}

// Reconciler reconciles hub TrainJobs.
type Reconciler struct {
	options  Options
	observer *observer
	needs    *needs
	decider  *decider.Decider
	waiting  *waiting
	writer   *writer
	// admission and questions tell Kueue and ask workers about jobs that wait.
	admission *admission
	questions *questions
	watches   *watches
	inbox     *inbox.Inbox
}

// NewReconciler makes the controller's reconciler.
func NewReconciler(ctx context.Context, options Options) (*Reconciler, error) {
	demands, err := demand.NewDeriver(ctx, options.Hub)
	if err != nil {
		return nil, err
	}
	announcer := announcer{options.Recorder}
	pods := newPodAnswers(options.Clock)
	r := &Reconciler{
		options: options,
		needs: &needs{
			hub: options.Hub, protected: options.Protected, policies: Policies{Hub: options.Hub}, demands: demands,
			compiled: compiled{accelerators: options.Accelerators}, workerQueues: &workerQueues{}, missing: &missing{}, data: &data{}, pods: pods, clock: options.Clock,
		},
		waiting: newWaiting(options.Clock),
		writer: &writer{
			hub: options.Hub, hubReader: options.HubReader, announcer: announcer, clock: options.Clock,
			accelerators: options.Accelerators, runtimes: options.Runtimes,
		},
		inbox: &inbox.Inbox{},
	}
	decisions := decider.Options{
		Connections: options.Connections, Wake: r.wake,
		Workers: func(ctx context.Context) ([]v1alpha1.WorkerCluster, error) { return workersOf(ctx, options.Hub) },
		Shown:   options.Shown, Accelerators: options.Accelerators, Clock: options.Clock,
	}
	if options.Kueue != nil {
		decisions.KueueKnown = options.Kueue.Known
	}
	if options.Trials != nil {
		decisions.Digest = digestOf
	}
	if options.Runtimes != nil {
		decisions.Runtimes, r.needs.own = options.Runtimes.Of, options.Runtimes.Own
	}
	pods.wake = r.wake
	r.decider = decider.New(decisions)
	r.observer = &observer{
		hub: options.Hub, managedBy: options.ManagedBy, kueue: options.Kueue, copies: options.UnknownCopies,
		decider: r.decider, waiting: r.waiting, clock: options.Clock,
	}
	r.admission = &admission{hub: options.Hub, decider: r.decider, waiting: r.waiting, clock: options.Clock}
	r.questions = &questions{hub: options.Hub, trials: options.Trials, decider: r.decider, pods: pods, announcer: announcer, wake: r.wake}
	r.watches = &watches{decider: r.decider, waiting: r.waiting, wake: r.wake, workerQueues: r.needs.workerQueues, missing: r.needs.missing, data: r.needs.data}
	return r, nil
}

// workersOf lists the WorkerClusters from the cache.
func workersOf(ctx context.Context, hub client.Reader) ([]v1alpha1.WorkerCluster, error) {
	var workers v1alpha1.WorkerClusterList
	if err := hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list WorkerClusters: %w", err)
	}
	return workers.Items, nil
}

// Reconcile observes one TrainJob and its Dispatch, and takes the next step: it writes what the job has been granted or
// why it waits, or asks the decider for a grant.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	key := request.NamespacedName
	defer r.decider.Met(key) // Whatever happens to one job, the others go on.
	seen, err := r.observer.observe(ctx, key)
	if err != nil {
		return reconcile.Result{}, err
	}
	what := next(r.options.ManagedBy, &seen)
	log.FromContext(ctx).V(1).Info("Classified", "state", what)
	r.follow(key, &seen, what)
	var later time.Duration
	switch what {
	case settled, occupied, written: // An event tells of the next step.
	case evicted:
		err = r.writer.evict(ctx, &seen)
	case concluded:
		err = r.writer.conclude(ctx, &seen)
	case failed:
		err = r.writer.fail(ctx, &seen)
	case orphaned:
		err = r.writer.deleteOrphan(ctx, &seen)
	case suspended:
		err = r.writer.suspend(ctx, &seen)
	case held:
		err = r.admission.admit(ctx, &seen, seen.dispatch.Spec.Cluster)
	case silent:
		_, later = seen.awaitsKueue()
	case granted:
		later, err = r.place(ctx, &seen)
	case unplaced:
		if due, again := seen.retries(); due {
			err = r.retry(ctx, &seen)
		} else if later, err = r.find(ctx, request, &seen); err == nil {
			later = requeue.Sooner(later, again)
		}
	}
	return requeue.AfterLag(reconcile.Result{RequeueAfter: later}, err)
}

// find has a worker found for a job, or says why the job waits, or gives the job up. It returns when to look again.
func (r *Reconciler) find(ctx context.Context, request reconcile.Request, seen *observation) (later time.Duration, err error) {
	why, err := r.enter(ctx, seen)
	switch {
	case err != nil, why.Cluster == "" && why.Reason == "":
		return 0, err
	case why.Cluster != "": // What is observed now says whether the grant is written or taken back.
		result, err := r.Reconcile(ctx, request)
		return result.RequeueAfter, err
	}
	end := seen.deadline(why)
	left, due := end.left(seen.at)
	if due {
		if left = decider.Starting(r.decider); left == 0 {
			return 0, r.giveUp(ctx, seen, why, end)
		}
	}
	later, err = r.report(ctx, seen, why)
	return requeue.Sooner(later, left), err
}

// follow tells waiting and the decider what has become of a job, except what enter tells the decider.
func (r *Reconciler) follow(key types.NamespacedName, seen *observation, what state) {
	if what == granted || what == written {
		return // The job has left the waiting list.
	}
	if what == settled {
		r.waiting.forget(key)
	}
	if what == unplaced || what == silent || seen.kueue.Standing == kueue.Unknown {
		// Before the job's runtime is read: a change after that wakes the job.
		r.waiting.put(seen.job, seen.kueue.Review != nil)
	} else {
		r.waiting.drop(key)
	}
	if what != unplaced {
		r.decider.Leave(key)
	}
}

// place writes a grant. If the API server has refused the grant, what the job was given is free for others. After any
// other failure it is not known whether the grant is on record, so the job keeps its room, and tries again. Before the
// first pods of a kind come to a worker, the worker is asked what it makes of them. Meanwhile the job keeps its room.
func (r *Reconciler) place(ctx context.Context, seen *observation) (time.Duration, error) {
	key, grant := seen.key(), seen.grant
	if ok, again := r.questions.confirm(seen); !ok {
		if again == 0 {
			r.decider.Forget(grant.Job.UID, grant.Job.Attempt)
			r.wake(key)
		}
		return again, nil
	}
	err := r.writer.place(ctx, seen)
	if err == nil {
		r.decider.Written(grant.Job.UID, grant.Job.Attempt)
		r.waiting.forget(key)
		timeToPlace.WithLabelValues(policyName(grant.Decision.Policy)).Observe(r.options.Clock.Since(seen.past.firstSeen).Seconds())
		return 0, r.admission.admit(ctx, seen, grant.Decision.Cluster)
	}
	if isRefused(err) {
		r.decider.Forget(grant.Job.UID, grant.Job.Attempt)
	}
	if records.IsFinal(err) { // The job comes back with a back-off, and when what it needs or what holds for it changes.
		r.decider.Leave(key)
	}
	return 0, err
}

// enter puts a job on the waiting list, or takes it off the list if there is an obstacle. It returns the worker that the
// job has been granted, or why the job waits. There is neither if that is not known yet: the decider wakes the job.
func (r *Reconciler) enter(ctx context.Context, seen *observation) (dispatch.Decision, error) {
	if err := r.needs.observe(ctx, seen); err != nil {
		return dispatch.Decision{}, err
	}
	if obstacle := seen.obstacle(); obstacle != nil {
		r.decider.Leave(seen.key())
		return *obstacle, nil
	}
	return r.decider.Enter(ctx, *seen.needs.job)
}

// report says on the Dispatch of a job, and in its admission check, why the job waits. It returns when to look again.
func (r *Reconciler) report(
	ctx context.Context, seen *observation, why dispatch.Decision,
) (later time.Duration, err error) {
	if seen.obstacle() != nil {
		err = r.writer.wait(ctx, seen, seen.needs.job, why)
	} else {
		r.questions.ask(seen)
		later, err = r.explain(ctx, seen, why)
	}
	if err != nil {
		return 0, err
	}
	due, err := r.admission.keepQuota(ctx, seen, why.Reason)
	return requeue.Sooner(due, requeue.Sooner(later, max(0, seen.needs.expire))), err
}

// explain says on the Dispatch of a job on the waiting list what each worker lacks. If it is too early for that,
// explain returns how long to wait.
func (r *Reconciler) explain(ctx context.Context, seen *observation, why dispatch.Decision) (time.Duration, error) {
	job := seen.needs.job
	if nobody := r.decider.WhyNobodyStops(job); nobody != "" {
		why.Message += "; nobody is stopped for it: " + nobody
	}
	d, err := r.writer.withoutWorker(ctx, seen, job)
	if err != nil {
		return 0, err
	}
	explanation, again, err := r.questions.askOthers(ctx, seen, r.decider.Explain(job))
	if err != nil {
		return 0, err
	}
	explanation = record.BoundExplanation(explanation)
	if onlyNumbersChanged(d, why, explanation) {
		if early := explanationInterval - r.options.Clock.Since(seen.past.explained); early > 0 {
			return requeue.Sooner(early, again), nil
		}
	}
	if err := r.writer.say(ctx, seen, d, why, explanation); err != nil {
		return 0, err
	}
	r.waiting.explained(job.Key())
	return again, nil
}

// isRefused: the grant has certainly not been written, by any write.
func isRefused(err error) bool {
	answer := answers.Of(err)
	return answer == answers.Later || answer.IsRefusal()
}
