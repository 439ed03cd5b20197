// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/remote"
)

// Connections are the connections to workers. remote.Fleet has them.
type Connections interface {
	Get(name v1alpha1.ClusterName) (*remote.Cluster, bool)
}

// fleet is the workers as a queue sees them. It is under the lock of line.
type fleet struct {
	connections Connections
	clock       clock.PassiveClock
	ledger      ledger
	// views are what was last computed for each worker, and faces what the queue was last shown of it.
	views map[v1alpha1.ClusterName]*view
	faces map[v1alpha1.ClusterName]*face
	// revision grows whenever a face changes or goes.
	revision uint64
	// list has the faces in the order of objects, which are the WorkerClusters as of the last refresh, and stale what of it has changed.
	objects []v1alpha1.WorkerCluster
	list    []dispatch.Worker
	stale   []v1alpha1.ClusterName
}

// face is a worker as dispatch sees it, and what it was made from.
type face struct {
	dispatch.Worker
	uid             types.UID
	resourceVersion string
	view            *view
	// state of the worker that a refusal may be about.
	state string
}

func newFleet(connections Connections, clock clock.PassiveClock) *fleet {
	return &fleet{
		connections: connections,
		clock:       clock,
		views:       map[v1alpha1.ClusterName]*view{},
		faces:       map[v1alpha1.ClusterName]*face{},
	}
}

// refresh looks at all workers anew.
func (f *fleet) refresh(objects []v1alpha1.WorkerCluster) {
	f.losePatience()
	f.objects, f.stale = objects, f.stale[:0]
	f.list = f.list[:0]
	for i := range objects {
		f.list = append(f.list, f.face(&objects[i]).Worker)
	}
	if len(f.faces) == len(objects) {
		return
	}
	present := make(map[v1alpha1.ClusterName]bool, len(objects))
	for i := range objects {
		present[v1alpha1.ClusterName(objects[i].Name)] = true
	}
	for name := range f.faces {
		if !present[name] {
			delete(f.faces, name)
			f.revision++
		}
	}
}

// Workers implements queue.Fleet: they are as of the last refresh, with what has been assigned since.
func (f *fleet) Workers() []dispatch.Worker {
	for _, name := range f.stale {
		if at := f.find(name); at >= 0 {
			f.list[at] = f.face(&f.objects[at]).Worker
		}
	}
	f.stale = f.stale[:0]
	return f.list
}

// find returns where a worker is in objects and list, -1 if it is not.
func (f *fleet) find(name v1alpha1.ClusterName) int {
	return slices.IndexFunc(f.objects, func(worker v1alpha1.WorkerCluster) bool { return worker.Name == string(name) })
}

// clusterID is the ID of the cluster that a worker's name leads to, empty if that is not known.
func (f *fleet) clusterID(name v1alpha1.ClusterName) types.UID {
	if at := f.find(name); at >= 0 {
		return f.objects[at].Status.ClusterID
	}
	return ""
}

// Assign implements queue.Fleet.
func (f *fleet) Assign(job *queue.Job, decision dispatch.Decision) {
	a := &assignment{
		key: job.Key(), uid: job.UID, worker: decision.Cluster, attempt: job.Attempt,
		podSets: job.PodSets, priority: job.Priority, since: f.clock.Now(), grant: &decision, failover: v1alpha1.FailoverHold,
	}
	if at := f.find(a.worker); at >= 0 {
		worker := &f.objects[at]
		a.clusterID, a.failover = worker.Status.ClusterID, failoverOf(decision.Policy, worker)
		a.asked = digest(job.Circumstances, f.face(worker).state)
	}
	f.assign(a)
}

// Empty implements queue.Fleet.
func (f *fleet) Empty(worker v1alpha1.ClusterName) *dispatch.Nodes {
	if v := f.view(worker); v != nil {
		return v.withoutJobs()
	}
	return nil
}

// Occupancy implements queue.Fleet.
func (f *fleet) Occupancy(worker v1alpha1.ClusterName) dispatch.Occupancy {
	return &occupancy{jobs: f.ledger.on(worker), view: f.view(worker), clusterID: f.clusterID(worker)}
}

// Evict implements queue.Fleet.
func (f *fleet) Evict(preemption dispatch.Preemption, job *queue.Job) {
	for _, victim := range preemption.Victims {
		a := f.ledger.byJob[victim.UID]
		if a == nil {
			continue
		}
		f.ledger.evict(a, &v1alpha1.Eviction{
			Reason: v1alpha1.EvictionPreempted, For: job.UID,
			// Without its name: it may be of another namespace, which is not everybody's to know.
			Message: fmt.Sprintf("a TrainJob of priority %d needs the room on worker %s; the priority of this one is %d",
				job.Priority, preemption.Cluster, a.priority),
		}, f.clock.Now())
		a.evictor = job.Key()
	}
}

// evictionPatience is how long a job waits for those that were stopped for it. How long pods take to stop their owner
// decides (terminationGracePeriodSeconds), who may not hold up a job of higher priority for ever: then others are
// stopped, or it goes elsewhere.
const evictionPatience = 10 * time.Minute

// losePatience makes workers on which jobs have not stopped in time ones that have changed, so that the jobs that wait
// for that are looked at.
func (f *fleet) losePatience() {
	for a := range f.ledger.leaving() {
		if at := patienceEnds(a); !at.IsZero() && !a.overdue && !f.clock.Now().Before(at) {
			a.overdue = true
			f.outdate(a.worker)
		}
	}
}

// nextPatience is when the first eviction is overdue, the zero time if none will be.
func (f *fleet) nextPatience() time.Time {
	var next time.Time
	for a := range f.ledger.leaving() {
		if at := patienceEnds(a); !at.IsZero() && !a.overdue && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next
}

// patienceEnds is when nobody waits for the end of an attempt any more, the zero time if nobody does anyway.
func patienceEnds(a *assignment) time.Time {
	if a.eviction == nil || a.eviction.For == "" {
		return time.Time{}
	}
	return a.evictedAt.Add(evictionPatience)
}

// Evicting implements queue.Fleet. The room of a job that has been stopped is there when the worker reports that its pods are gone: until
// then more jobs would be stopped for the same room. Jobs that take too long are not waited for.
func (f *fleet) Evicting(job types.UID) v1alpha1.ClusterName {
	for _, a := range f.ledger.evicted {
		if a.eviction.For == job && !a.overdue {
			return a.worker
		}
	}
	for uid, a := range f.ledger.departed {
		if a.eviction.For != job || a.overdue {
			continue
		}
		if v := f.view(a.worker); v != nil && v.hasPods(a.key) {
			return a.worker
		}
		delete(f.ledger.departed, uid)
	}
	return ""
}

// assign records an assignment and takes it off its worker's view.
func (f *fleet) assign(a *assignment) {
	f.release(a.uid)
	f.unpromise(a.uid)
	f.ledger.put(a)
	f.take(a)
}

// take takes what an assignment needs off its worker's view.
func (f *fleet) take(a *assignment) {
	if v := f.views[a.worker]; v != nil && v.nodes != nil {
		next := *v // Another view, so that it is seen that something has changed.
		next.nodes = v.nodes.Spread(a.podSets)
		next.queued++
		f.views[a.worker] = &next
	}
	f.stale = append(f.stale, a.worker)
}

// release drops an assignment, and returns true if there was one.
func (f *fleet) release(uid types.UID) bool {
	a := f.ledger.drop(uid)
	if a == nil {
		return false
	}
	f.outdate(a.worker)
	return true
}

// outdate has a worker's view computed again.
func (f *fleet) outdate(worker v1alpha1.ClusterName) {
	if v := f.views[worker]; v != nil {
		v.nodes = nil
	}
	f.stale = append(f.stale, worker)
}

// face returns a worker as dispatch sees it, the one of before if nothing has changed.
func (f *fleet) face(worker *v1alpha1.WorkerCluster) *face {
	name := v1alpha1.ClusterName(worker.Name)
	unready := notReady(worker)
	var v *view
	if unready == "" {
		if v = f.view(name); v == nil {
			unready = connecting
		}
	}
	known, assigned := f.faces[name], len(f.ledger.byWorker[name])
	if known != nil && known.uid == worker.UID && known.resourceVersion == worker.ResourceVersion && known.view == v && known.Assigned == assigned {
		return known
	}
	f.revision++
	next := &face{uid: worker.UID, resourceVersion: worker.ResourceVersion, view: v, state: stateOf(worker), Worker: dispatch.Worker{
		Name: name, Labels: worker.Labels, NotReady: unready,
		Cordoned: worker.Spec.Unschedulable || worker.Spec.Drain, Draining: worker.Spec.Drain,
		Price: dispatch.PricesOf(worker.Spec.Price), Assigned: assigned,
		KubernetesVersion: worker.Status.KubernetesVersion, NodeGroups: worker.Status.NodeGroups,
		Revision: f.revision,
	}}
	if v != nil {
		next.Nodes, next.Allocatable, next.Queued = v.nodes, v.allocatable, v.queued
	}
	f.faces[name] = next
	return next
}

// connecting is said of a worker of which nothing is known yet.
const connecting = "Connecting: the connection is being made"

// sweepRefused is the condition of a worker on which nothing new is created, nil if it has none.
func sweepRefused(worker *v1alpha1.WorkerCluster) *metav1.Condition {
	condition := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterSweepRefused)
	if condition == nil || condition.Status != metav1.ConditionTrue {
		return nil
	}
	return condition
}

// notReady is empty for a worker whose Ready condition is True and that lets us create copies.
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
	if refused := sweepRefused(worker); refused != nil {
		return fmt.Sprintf("%s: %s", refused.Type, refused.Message)
	}
	return ""
}

// view returns the current view of a worker, nil if it is not connected.
func (f *fleet) view(name v1alpha1.ClusterName) *view {
	cluster, ok := f.connections.Get(name)
	if !ok || cluster.Status().State != remote.Connected {
		delete(f.views, name)
		return nil
	}
	snapshot := cluster.Inventory().Snapshot()
	if v := f.views[name]; v != nil && v.nodes != nil && v.cluster == cluster && v.snapshot.Generation == snapshot.Generation {
		return v
	}
	f.views[name] = newView(cluster, snapshot, f.ledger.on(name))
	return f.views[name]
}
