// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"context"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// Options of a Decider. All are required but Shown, KueueKnown, Digest, Runtimes and Accelerators.
type Options struct {
	// Connections have the workers' inventories.
	Connections Connections
	// Workers lists the WorkerClusters from a cache.
	Workers func(context.Context) ([]v1alpha1.WorkerCluster, error)
	// Wake makes the reconciler look at jobs: at those with a Grant, a new answer or an Eviction. It must not block.
	Wake func(jobs ...types.NamespacedName)
	// Shown says whether the copies of a connected worker are known. Nil: they are.
	Shown func(worker v1alpha1.ClusterName) bool
	// KueueKnown says whether it is known which jobs are Kueue's. Nil: no job is.
	KueueKnown func() bool
	// Digest sums up everything of a worker on which it may depend whether the worker takes a job. No job is stopped for
	// another on a worker that has not accepted the other by a Trial. Nil: there are no Trials, and jobs are stopped.
	Digest func(worker *v1alpha1.WorkerCluster) string
	// Runtimes says how the runtimes of a worker differ from the hub's. Nil: the status of the WorkerCluster says it.
	Runtimes func(worker v1alpha1.ClusterName) *dispatch.Runtimes
	// Accelerators knows the resources that are accelerators.
	Accelerators accelerators.Table
	// Clock of this process.
	Clock clock.Clock
}

// Decider decides which waiting job gets which worker.
type Decider struct {
	options Options
	// changed has an element while something has changed since the last pass began.
	changed chan struct{}

	// All below are under mu.
	mu      sync.Mutex
	list    *queue.Queue
	jobs    *assignments
	fleet   *fleet
	startup startup
	// expected are the jobs whose demand has to be known before the first pass. Nil: these jobs are not known yet.
	expected map[types.NamespacedName]struct{}
	// unanswered are the jobs whose Enter had no answer. The pass that decides about them wakes them.
	unanswered sets.Set[types.NamespacedName]
	// questions are answered by the next pass.
	questions questions
	explainer explainer
	// due is when a pass is needed although nothing changes. revision is the fleet's revision in the last pass.
	due      time.Time
	revision uint64
	// subscribers are told when there may be more room, by a number of their own. subscriptions is the last number.
	subscribers   map[int]func()
	subscriptions int
}

// Grant is a decision that has not been written: the job gets the worker of the Decision.
type Grant struct {
	Job      *queue.Job
	Decision dispatch.Decision
	// Worker is the WorkerCluster as it was decided on.
	Worker *v1alpha1.WorkerCluster
}

// New returns a Decider with an empty waiting list. It decides nothing before Expect.
func New(options Options) *Decider {
	jobs := newAssignments()
	d := &Decider{
		options:     options,
		changed:     make(chan struct{}, 1),
		list:        queue.New(),
		jobs:        jobs,
		fleet:       newFleet(options, jobs),
		startup:     startup{options: options},
		unanswered:  sets.Set[types.NamespacedName]{},
		subscribers: map[int]func(){},
	}
	d.explainer = explainer{mu: &d.mu, list: d.list, fleet: d.fleet, explained: map[string][]v1alpha1.ClusterExplanation{}}
	return d
}

// Changed makes Run do a pass soon. It never blocks.
func (d *Decider) Changed() {
	select {
	case d.changed <- struct{}{}:
	default: // A pass is due already.
	}
}

// Expect names the jobs whose demand has to be known before the first pass, so that the first job in order is served
// first, and not the first job that is read.
func (d *Decider) Expect(jobs []types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.startup.begin()
	d.expected = map[types.NamespacedName]struct{}{}
	for _, key := range jobs {
		d.expected[key] = struct{}{}
	}
	d.Changed()
}

// Await has the first pass wait for jobs that need something else than before, unless the time after the start is over: a
// worker may change what they need for ever. Later passes wait for nobody.
func Await(d *Decider, jobs []types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.expected == nil || d.startup.over || !d.options.Clock.Now().Before(d.startup.until) {
		return
	}
	for _, key := range jobs {
		d.expected[key] = struct{}{}
	}
}

// Met notes that the reconciler has looked at a job, whatever came of it.
func (d *Decider) Met(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, is := d.expected[key]; !is {
		return
	}
	if delete(d.expected, key); len(d.expected) == 0 {
		d.Changed()
	}
}

// Enter puts a job on the waiting list, or changes what it needs, and waits for the next pass if something has changed
// since the last one. It returns the decision of the job's Grant, or else what the job waits for. There is neither if
// that is not known yet, or if the Grant has been written: the job is woken when there is news.
func (d *Decider) Enter(ctx context.Context, job queue.Job) (dispatch.Decision, error) {
	d.mu.Lock()
	stands, decided := d.stand(job)
	if !stands || decided || !d.startup.over {
		defer d.mu.Unlock()
		return d.outcome(&job), nil
	}
	var outcome dispatch.Decision
	d.Changed()
	q := d.questions.ask(ctx, job.Key(), func() { outcome = d.outcome(&job) })
	d.mu.Unlock()
	if err := q.wait(ctx); err != nil {
		return dispatch.Decision{}, err
	}
	return outcome, nil
}

// stand puts a job on the waiting list unless it has been placed. decided: the answer that the job has still holds. The
// caller holds mu.
func (d *Decider) stand(job queue.Job) (stands, decided bool) {
	d.changedIf(d.fleet.unpromise(job.UID))
	if a := d.jobs.granted(job.Key()); a != nil && a.uid != job.UID {
		d.changedIf(d.fleet.giveBack(a.uid)) // The job of this name before this one.
	}
	if d.jobs.placed(job.UID, job.Attempt) != nil {
		return false, false
	}
	if before := d.list.Job(job.Key()); before != nil && before.Circumstances != job.Circumstances {
		for worker := range d.fleet.trials.of(before) { // What it has said was about another copy.
			d.fleet.outdate(worker)
			d.Changed()
		}
	}
	if d.list.Enter(job) {
		d.Changed()
	}
	_, decided = d.list.Answer(job.Key())
	return true, decided && len(d.changed) == 0
}

// outcome is what has been decided about a job. The caller holds mu.
func (d *Decider) outcome(job *queue.Job) dispatch.Decision {
	switch a := d.jobs.placed(job.UID, job.Attempt); {
	case a == nil:
	case a.grant == nil:
		return dispatch.Decision{}
	default:
		return a.grant.Decision
	}
	waits, decided := d.list.Answer(job.Key())
	if !decided {
		d.unanswered.Insert(job.Key())
		return dispatch.Decision{}
	}
	return waits
}

// Leave takes a job off the waiting list, and takes back a Grant that has not been written.
func (d *Decider) Leave(key types.NamespacedName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	helps := d.list.Has(key)
	if helps {
		d.fleet.preemptions.vain(d.list.Job(key).UID, d.options.Clock.Now())
		d.fleet.preemptions.hold(d.list.Job(key).UID, time.Time{})
	}
	d.fleet.trials.drop(key)
	d.list.Leave(key)
	d.unanswered.Delete(key)
	helps = d.fleet.unpromiseEnded(key) || helps
	if a := d.jobs.granted(key); a != nil {
		helps = d.fleet.giveBack(a.uid) || helps
	}
	d.changedIf(helps)
}

// Granted returns whether a job has been placed for an attempt, or for a later one. The Grant is nil if it has been
// written.
func (d *Decider) Granted(uid types.UID, attempt int32) (grant *Grant, placed bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.jobs.placed(uid, attempt); a != nil {
		return a.grant, true
	}
	return nil, false
}

// Written notes that the Grant of a job is on the API server.
func (d *Decider) Written(uid types.UID, attempt int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if a := d.jobs.of(uid); a != nil && a.attempt == attempt {
		d.jobs.confirm(a)
	}
}

// Forget releases what a job has by an attempt, or by an earlier one: the Grant was not written, or the Dispatch is
// gone.
func (d *Decider) Forget(uid types.UID, attempt int32) {
	d.mu.Lock()
	defer d.mu.Unlock()
	helps := d.fleet.unpromise(uid)
	if a := d.jobs.of(uid); a != nil && a.attempt <= attempt {
		helps = d.fleet.giveBack(uid) || helps
	}
	d.changedIf(helps)
}

// Observe follows a Dispatch as the hub's cache shows it. What has been decided since stays. It wakes a job that has an
// Eviction which the Dispatch does not show.
func (d *Decider) Observe(seen *v1alpha1.Dispatch) {
	d.mu.Lock()
	d.changedIf(d.fleet.follow(seen))
	d.mu.Unlock()
	if seen.Spec.Eviction == nil && d.Eviction(seen.Spec.TrainJob.UID) != nil {
		d.options.Wake(types.NamespacedName{Namespace: seen.Namespace, Name: seen.Name})
	}
}

// Eviction returns the eviction of a job that has been decided and not been seen on its Dispatch, nil if there is none.
// It is taken back if the job that it makes room for does not wait any more, or has changed since its worker took it.
func (d *Decider) Eviction(uid types.UID) *v1alpha1.Eviction {
	d.mu.Lock()
	defer d.mu.Unlock()
	a := d.jobs.of(uid)
	if a == nil || a.eviction == nil || a.evictor.Name == "" {
		return nil
	}
	evictor := d.list.Job(a.evictor)
	if evictor == nil || evictor.UID != a.eviction.For || !d.fleet.accepts(evictor, a.worker) {
		d.jobs.evict(a, nil, time.Time{})
		return nil
	}
	return a.eviction
}

// WaitingList returns the jobs on the waiting list, in order.
func (d *Decider) WaitingList() []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.list.Keys()
}

// RefusedBy returns the jobs on the waiting list that a worker has refused.
func (d *Decider) RefusedBy(worker v1alpha1.ClusterName) []types.NamespacedName {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.list.Excluding(worker)
}

// changedIf calls Changed if what has been done may help waiting jobs.
func (d *Decider) changedIf(helps bool) {
	if helps {
		d.Changed()
	}
}
