// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"cmp"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/remote"
)

// Connections are the connections to workers. remote.Fleet has them.
type Connections interface {
	Get(name v1alpha1.ClusterName) (*remote.Cluster, bool)
}

// fleet is the capacity of all workers. It implements queue.Fleet. It is under the lock of the Decider.
type fleet struct {
	connections Connections
	clock       clock.PassiveClock
	jobs        *assignments
	// nodes are what was last computed for each worker. snapshots are what the waiting list last saw of it.
	nodes     map[v1alpha1.ClusterName]*freeNodes
	snapshots map[v1alpha1.ClusterName]*snapshot
	// counts says what counts on each worker, as of the last refresh.
	counts map[v1alpha1.ClusterName]counts
	// charged says how the workers' Kueues charge quota.
	charged map[v1alpha1.ClusterName]*charging
	losses  losses
	// revision grows whenever a snapshot changes or goes.
	revision uint64
	// objects are the WorkerClusters as of the last refresh. list has their snapshots, in the same order.
	objects []v1alpha1.WorkerCluster
	list    []dispatch.Worker
	// stale are the workers that have changed since list was made.
	stale []v1alpha1.ClusterName
	// digest and runtimes are of the Options.
	digest   func(*v1alpha1.WorkerCluster) string
	runtimes func(v1alpha1.ClusterName) *dispatch.Runtimes
	// trials and preemptions say whether jobs may be stopped for a job, and visits when that changes. asks are the jobs
	// that have new trials.
	trials      trials
	preemptions *preemptions
	visits      visits
	asks        []types.NamespacedName
}

// snapshot is a worker as package dispatch sees it, and what it was made from.
type snapshot struct {
	dispatch.Worker
	uid             types.UID
	resourceVersion string
	nodes           *freeNodes
	runtimes        *dispatch.Runtimes
}

func newFleet(options Options, jobs *assignments) *fleet {
	return &fleet{
		connections: options.Connections,
		clock:       options.Clock,
		digest:      options.Digest,
		runtimes:    options.Runtimes,
		trials:      trials{jobs: map[types.NamespacedName]*jobTrials{}},
		preemptions: newPreemptions(),
		visits:      visits{},
		jobs:        jobs,
		nodes:       map[v1alpha1.ClusterName]*freeNodes{},
		snapshots:   map[v1alpha1.ClusterName]*snapshot{},
		counts:      map[v1alpha1.ClusterName]counts{},
		charged:     map[v1alpha1.ClusterName]*charging{},
		losses:      newLosses(options.Clock),
	}
}

// refresh makes the snapshots of all workers that have changed.
func (f *fleet) refresh(objects []v1alpha1.WorkerCluster) {
	f.losePatience()
	for _, worker := range f.visits.take(f.clock.Now()) {
		f.outdate(worker)
	}
	f.objects, f.stale = objects, f.stale[:0]
	f.list = f.list[:0]
	for i := range objects {
		f.list = append(f.list, f.snapshot(&objects[i]).Worker)
	}
	for name := range f.snapshots {
		if len(f.snapshots) > len(objects) && f.find(name) < 0 {
			delete(f.snapshots, name)
			delete(f.counts, name)
			delete(f.charged, name)
			f.losses.forget(name)
			f.revision++
		}
	}
}

// Workers implements queue.Fleet. The workers are as of the last refresh, with what has been assigned since.
func (f *fleet) Workers() []dispatch.Worker {
	for _, name := range f.stale {
		if at := f.find(name); at >= 0 {
			f.list[at] = f.snapshot(&f.objects[at]).Worker
		}
	}
	f.stale = f.stale[:0]
	return f.list
}

// find returns where a worker is in objects and list, -1 if it is not.
func (f *fleet) find(name v1alpha1.ClusterName) int {
	for at := range f.objects {
		if f.objects[at].Name == string(name) {
			return at
		}
	}
	return -1
}

// object returns the WorkerCluster of a name, an empty one if there is none.
func (f *fleet) object(name v1alpha1.ClusterName) *v1alpha1.WorkerCluster {
	if at := f.find(name); at >= 0 {
		return &f.objects[at]
	}
	return &v1alpha1.WorkerCluster{}
}

// takesJobs says whether new jobs may come to the worker. A worker that is not known takes none.
func (s *snapshot) takesJobs() bool { return s != nil && s.TakesJobs() }

// Assign implements queue.Fleet.
func (f *fleet) Assign(job *queue.Job, decision dispatch.Decision) {
	f.trials.drop(job.Key())
	f.preemptions.hold(job.UID, time.Time{})
	worker := f.object(decision.Cluster)
	f.assign(&assignment{
		key: job.Key(), uid: job.UID, worker: decision.Cluster, clusterID: worker.Status.ClusterID, attempt: job.Attempt,
		podSets: job.PodSetsIn(decision.Cluster, decision.Domain), domain: decision.Domain, queue: dispatch.QueueOf(&job.Job, worker.Spec.Kueue.WorkerQueue), priority: job.Priority, since: f.clock.Now(), unsaved: f.clock.Now(),
		grant: &Grant{Job: job, Decision: decision, Worker: worker},
	})
}

// Empty implements queue.Fleet.
func (f *fleet) Empty(worker v1alpha1.ClusterName) (empty *dispatch.Nodes) {
	defer f.spare(worker, func() { empty = nil })
	if n := f.freeNodes(worker); n != nil {
		return n.withoutJobs()
	}
	return nil
}

// Occupancy implements queue.Fleet.
func (f *fleet) Occupancy(worker v1alpha1.ClusterName) dispatch.Occupancy {
	return &occupancy{jobs: f.jobs.on(worker), nodes: f.freeNodes(worker), clusterID: f.object(worker).Status.ClusterID}
}

// Evict implements queue.Fleet. The worker must have accepted the job's copy by a dry run: nobody is stopped for a job
// that no worker takes.
func (f *fleet) Evict(preemption dispatch.Preemption, job *queue.Job) bool {
	if !f.accepts(job, preemption.Cluster) {
		f.ask(job, preemption.Cluster)
		return false
	}
	f.preemptions.begin(job, f.jobs.overdueFor(job.UID), f.clock.Now())
	for _, victim := range preemption.Victims {
		a := f.jobs.of(victim.UID)
		if a == nil {
			continue
		}
		f.jobs.evict(a, &v1alpha1.Eviction{
			Reason: v1alpha1.EvictionPreempted, For: job.UID,
			// The message does not name the job: it may be in another namespace, and not everybody may know its name.
			Message: fmt.Sprintf("a TrainJob of priority %d needs the room on worker %s; the priority of this one is %d",
				job.Priority, preemption.Cluster, a.priority),
		}, f.clock.Now())
		a.evictor = job.Key()
	}
	return true
}

// Evicting implements queue.Fleet. The room of a stopped job is free when the worker reports that the job's pods are
// gone and its quota is free. Until then Evicting names the worker, or more jobs would be stopped for the same room. No
// job waits for jobs that take too long.
func (f *fleet) Evicting(job types.UID) v1alpha1.ClusterName {
	stopping, departed := f.jobs.evictedFor(job)
	if len(stopping) > 0 {
		return stopping[0].worker
	}
	for _, a := range departed {
		if n := f.freeNodes(a.worker); n != nil && n.takesRoom(a.key) {
			return a.worker
		}
		f.jobs.gone(a)
	}
	return ""
}

// follow makes the assignment of a job what its Dispatch says, unless the assignment is a later one. It returns
// whether that has freed something.
func (f *fleet) follow(seen *v1alpha1.Dispatch) bool {
	uid := seen.Spec.TrainJob.UID
	known := f.jobs.of(uid)
	if known != nil && known.attempt > seen.Spec.Attempt {
		return false
	}
	state := record.AttemptOf(seen)
	f.learn(uid, state)
	freed := state == record.Finished && f.unpromise(uid)
	switch {
	case !state.Live():
		return f.giveBack(uid) || freed
	case known == nil || known.worker != seen.Spec.Cluster || known.attempt != seen.Spec.Attempt:
		f.assign(assignmentOf(seen, f.clock.Now()))
	default:
		known.unsaved = record.UnsavedSince(seen)
		f.jobs.confirm(known) // It is on the API server, whatever the answer to the write was.
		if seen.Spec.Eviction != nil || known.evictor.Name == "" {
			f.jobs.evict(known, seen.Spec.Eviction, evictedAtOf(seen, f.clock.Now()))
			known.evictor = types.NamespacedName{}
		}
	}
	return freed
}

// learn notes what has come of stopping jobs for a job.
func (f *fleet) learn(job types.UID, state record.State) {
	switch state {
	case record.Copied, record.Finished:
		f.preemptions.worth(job)
	case record.Ended:
		f.preemptions.vain(job, f.clock.Now())
	case record.None, record.Waiting, record.Placed, record.Evicting, record.Lost, record.GivenUp, record.Leaving:
	}
}

// assign records an assignment, and takes what it needs off its worker's free nodes.
func (f *fleet) assign(a *assignment) {
	f.giveBack(a.uid)
	f.unpromise(a.uid)
	f.jobs.put(a)
	f.take(a)
}

// take takes what an assignment needs off its worker's free nodes.
func (f *fleet) take(a *assignment) {
	defer f.spare(a.worker, func() {})
	if n := f.nodes[a.worker]; n != nil && n.nodes != nil {
		next := *n // A copy: the next snapshot sees by the pointer that something has changed.
		next.nodes = n.nodes.Spread(a.podSets).Charge(a.queue, a.podSets)
		next.queued++
		f.nodes[a.worker] = &next
	}
	f.stale = append(f.stale, a.worker)
}

// giveBack drops an assignment, and returns true if there was one.
func (f *fleet) giveBack(uid types.UID) bool {
	a := f.jobs.drop(uid)
	if a == nil {
		return false
	}
	f.outdate(a.worker)
	return true
}

// outdate makes a worker's free nodes be computed again.
func (f *fleet) outdate(worker v1alpha1.ClusterName) {
	if n := f.nodes[worker]; n != nil {
		n.nodes = nil
	}
	f.stale = append(f.stale, worker)
}

// snapshot returns a worker as package dispatch sees it. It is the last snapshot if nothing has changed.
func (f *fleet) snapshot(worker *v1alpha1.WorkerCluster) *snapshot {
	name := v1alpha1.ClusterName(worker.Name)
	f.counts[name] = countsOf(worker)
	unready := notReady(worker)
	if unready == "" {
		unready = f.losses.why(name)
	}
	var nodes *freeNodes
	if unready == "" {
		if nodes = f.freeNodes(name); nodes == nil {
			unready = cmp.Or(f.losses.why(name), connecting)
		}
	}
	runtimes := runtimesOf(f, name)
	last, assigned := f.snapshots[name], f.jobs.count(name)
	if last != nil && last.uid == worker.UID && last.resourceVersion == worker.ResourceVersion && last.nodes == nodes && last.Assigned == assigned &&
		last.NotReady == unready && last.runtimes == runtimes {
		return last
	}
	f.revision++
	next := &snapshot{uid: worker.UID, resourceVersion: worker.ResourceVersion, nodes: nodes, runtimes: runtimes}
	if nodes == nil {
		next.Worker = dispatch.WorkerOf(worker, nil, nil)
	} else {
		next.Worker = dispatch.WorkerOf(worker, nodes.nodes, nodes.allocatable)
		next.Queued = nodes.queued
	}
	if f.runtimes != nil { // What this process knows is newer than the status, and has versions.
		next.Runtimes = runtimes
	}
	next.NotReady, next.Assigned, next.Revision = unready, assigned, f.revision
	f.snapshots[name] = next
	return next
}

// runtimesOf returns what is known of a worker's runtimes beside the status, nil for nothing.
func runtimesOf(f *fleet, name v1alpha1.ClusterName) *dispatch.Runtimes {
	if f.runtimes == nil {
		return nil
	}
	return f.runtimes(name)
}

// connecting is why a worker of which nothing is known yet takes no jobs.
const connecting = "Connecting: the connection is being made"

// SweepRefused returns the condition of a worker on which nothing new is created, nil if it has none.
func SweepRefused(worker *v1alpha1.WorkerCluster) *metav1.Condition {
	condition := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterSweepRefused)
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return nil
	}
	return condition
}

// notReady says why no copies can be created on a worker. It is empty for a worker that is Ready.
func notReady(worker *v1alpha1.WorkerCluster) string {
	condition := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterReady)
	switch {
	case worker.DeletionTimestamp != nil:
		return "Deleting: the WorkerCluster is being deleted"
	case condition == nil:
		return connecting
	case condition.Status != "True":
		return fmt.Sprintf("%s: %s", condition.Reason, condition.Message)
	}
	if refused := SweepRefused(worker); refused != nil {
		return fmt.Sprintf("%s: %s", refused.Type, refused.Message)
	}
	return ""
}

// freeNodes returns the present free nodes of a worker, nil if it is not connected, or lost.
func (f *fleet) freeNodes(name v1alpha1.ClusterName) (free *freeNodes) {
	defer f.spare(name, func() { free = nil })
	if f.losses.why(name) != "" {
		return nil
	}
	cluster, ok := f.connections.Get(name)
	if !ok || cluster.Status().State != remote.Connected {
		delete(f.nodes, name)
		return nil
	}
	inventory, counts := cluster.Inventory().Snapshot(), f.counts[name]
	if n := f.nodes[name]; n != nil && n.nodes != nil && n.cluster == cluster && n.inventory.Generation == inventory.Generation && n.counts.equal(counts) {
		return n
	}
	if f.charged[name] == nil {
		f.charged[name] = &charging{}
	}
	f.nodes[name] = newFreeNodes(cluster, inventory, counts, f.charged[name], f.jobs.on(name))
	return f.nodes[name]
}
