// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/remote"
)

// Connections are the connections to workers. remote.Fleet has them.
type Connections interface {
	Get(name v1alpha1.ClusterName) (*remote.Cluster, bool)
}

// capacity knows what every worker has free, and makes decisions one at a time, so that each sees what the one before it took.
//
// What counts against a worker is every pod that is bound to its nodes, plus, for our live jobs there, the pods that are not
// bound yet: the demand on the Dispatch minus the job's pods that have been seen. No job counts twice.
type capacity struct {
	connections Connections

	mu sync.Mutex
	// assigned are our live jobs by UID of the TrainJob, and byWorker the same by worker. Under mu.
	assigned map[types.UID]*assignment
	byWorker map[v1alpha1.ClusterName]map[types.UID]*assignment
	// views are what was last computed for each worker, and faces what dispatch was last shown of it. Under mu.
	views map[v1alpha1.ClusterName]*view
	faces map[v1alpha1.ClusterName]*face
	// revision grows whenever a face changes or goes. Under mu.
	revision uint64
	// explained are the explanations that have been made for this revision, by what they are about. Under mu.
	explained   map[string][]v1alpha1.ClusterExplanation
	explainedAt uint64
}

// assignment is a live job on a worker.
type assignment struct {
	key     types.NamespacedName
	worker  v1alpha1.ClusterName
	attempt int32
	podSets []v1alpha1.PodSet
	// suspended jobs take nothing but what their pods still take.
	suspended bool
}

// view is a worker's free nodes for one generation of its inventory. A nil nodes asks for a new one.
type view struct {
	cluster     *remote.Cluster
	generation  uint64
	nodes       *dispatch.Nodes
	allocatable dispatch.Resources
	// queued jobs have pods that are not bound yet.
	queued int
}

// face is a worker as dispatch sees it, and what it was made from.
type face struct {
	dispatch.Worker
	uid             types.UID
	resourceVersion string
	view            *view
}

func newCapacity(connections Connections) *capacity {
	return &capacity{
		connections: connections,
		assigned:    map[types.UID]*assignment{},
		byWorker:    map[v1alpha1.ClusterName]map[types.UID]*assignment{},
		views:       map[v1alpha1.ClusterName]*view{},
		faces:       map[v1alpha1.ClusterName]*face{},
	}
}

// candidate is a job to be decided on.
type candidate struct {
	job      dispatch.Job
	key      types.NamespacedName
	attempt  int32
	policies []dispatch.Policy
	workers  []v1alpha1.WorkerCluster
}

// clusterID is the ID of the cluster that a worker's name leads to.
func (c *candidate) clusterID(name v1alpha1.ClusterName) types.UID {
	for i := range c.workers {
		if c.workers[i].Name == string(name) {
			return c.workers[i].Status.ClusterID
		}
	}
	return ""
}

// decide asks for a worker, and takes the job's demand off what that worker has free. If the decision cannot be written the
// caller must forget it.
func (c *capacity) decide(wanted candidate) dispatch.Decision {
	c.mu.Lock()
	defer c.mu.Unlock()
	decision := dispatch.Decide(wanted.job, wanted.policies, c.workers(wanted.workers))
	if decision.Cluster == "" {
		return decision
	}
	c.assign(wanted.job.UID, &assignment{
		key: wanted.key, worker: decision.Cluster, attempt: wanted.attempt, podSets: wanted.job.PodSets,
	})
	return decision
}

// maxExplained is how many explanations are kept until something changes.
const maxExplained = 64

// explain says for every worker why it does or does not take the job. Jobs of the same class share what is returned.
func (c *capacity) explain(wanted candidate, class string) []v1alpha1.ClusterExplanation {
	key := class + explanationKey(wanted.job)
	c.mu.Lock()
	workers := c.workers(wanted.workers)
	revision := c.revision
	if c.explainedAt != revision || len(c.explained) >= maxExplained {
		c.explained, c.explainedAt = map[string][]v1alpha1.ClusterExplanation{}, revision
	}
	known, ok := c.explained[key]
	c.mu.Unlock()
	if ok {
		return known
	}
	explanation := dispatch.Explain(wanted.job, wanted.policies, workers)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.explainedAt == revision {
		c.explained[key] = explanation
	}
	return explanation
}

// explanationKey tells apart jobs of one class of which other things are said.
func explanationKey(job dispatch.Job) string {
	var b strings.Builder
	b.WriteString(string(job.Previous))
	for _, name := range slices.Sorted(maps.Keys(job.Excluded)) {
		fmt.Fprintf(&b, "\n%s\n%s\n%s", name, job.Excluded[name].Reason, job.Excluded[name].Message)
	}
	return b.String()
}

// observe follows a Dispatch as the hub's cache shows it, and returns true if that has freed something. What was decided since
// stays.
func (c *capacity) observe(d *v1alpha1.Dispatch) (freed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid := d.Spec.TrainJob.UID
	known := c.assigned[uid]
	if known != nil && known.attempt > d.Spec.Attempt {
		return false
	}
	if d.Spec.Cluster == "" || d.IsFinished() || d.AttemptEnded() {
		return c.release(uid)
	}
	if known == nil || known.worker != d.Spec.Cluster || known.attempt != d.Spec.Attempt {
		key := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}
		c.assign(uid, &assignment{key: key, worker: d.Spec.Cluster, attempt: d.Spec.Attempt, podSets: d.Spec.PodSets})
	}
	return false
}

// decided returns the attempt for which a job was last assigned, 0 if it is not.
func (c *capacity) decided(uid types.UID) int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.assigned[uid]; a != nil {
		return a.attempt
	}
	return 0
}

// forget releases what a job held by an attempt, or an earlier one, whose decision was not written or whose Dispatch is gone. It
// returns true if that was something.
func (c *capacity) forget(uid types.UID, attempt int32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if a := c.assigned[uid]; a == nil || a.attempt > attempt {
		return false
	}
	return c.release(uid)
}

// suspend says whether an assigned job is suspended, and returns true if that has freed something.
func (c *capacity) suspend(uid types.UID, suspended bool) (freed bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	a := c.assigned[uid]
	if a == nil || a.suspended == suspended {
		return false
	}
	a.suspended = suspended
	if v := c.views[a.worker]; v != nil {
		v.nodes = nil
	}
	return suspended
}

// assign records an assignment and takes it off its worker's view. The caller holds mu.
func (c *capacity) assign(uid types.UID, a *assignment) {
	c.release(uid)
	c.assigned[uid] = a
	if c.byWorker[a.worker] == nil {
		c.byWorker[a.worker] = map[types.UID]*assignment{}
	}
	c.byWorker[a.worker][uid] = a
	if v := c.views[a.worker]; v != nil && v.nodes != nil {
		next := *v // Another view, so that it is seen that something has changed.
		next.nodes = v.nodes.Reserve(a.podSets)
		next.queued++
		c.views[a.worker] = &next
	}
}

// release drops an assignment, and its worker's view, which is computed again when it is needed. The caller holds mu.
func (c *capacity) release(uid types.UID) bool {
	a := c.assigned[uid]
	if a == nil {
		return false
	}
	delete(c.assigned, uid)
	delete(c.byWorker[a.worker], uid)
	if v := c.views[a.worker]; v != nil {
		v.nodes = nil
	}
	return true
}

// workers returns the workers as dispatch sees them. The caller holds mu.
func (c *capacity) workers(workers []v1alpha1.WorkerCluster) []dispatch.Worker {
	result := make([]dispatch.Worker, len(workers))
	for i := range workers {
		result[i] = c.face(&workers[i]).Worker
	}
	if len(c.faces) > len(workers) {
		present := make(map[v1alpha1.ClusterName]bool, len(workers))
		for i := range result {
			present[result[i].Name] = true
		}
		maps.DeleteFunc(c.faces, func(name v1alpha1.ClusterName, _ *face) bool { return !present[name] })
		c.revision++
	}
	return result
}

// face returns a worker as dispatch sees it, the one of before if nothing has changed. The caller holds mu.
func (c *capacity) face(worker *v1alpha1.WorkerCluster) *face {
	name := v1alpha1.ClusterName(worker.Name)
	unready := notReady(worker)
	var v *view
	if unready == "" {
		if v = c.view(name); v == nil {
			unready = connecting
		}
	}
	f, assigned := c.faces[name], len(c.byWorker[name])
	if f != nil && f.uid == worker.UID && f.resourceVersion == worker.ResourceVersion && f.view == v && f.Assigned == assigned {
		return f
	}
	c.revision++
	f = &face{uid: worker.UID, resourceVersion: worker.ResourceVersion, view: v, Worker: dispatch.Worker{
		Name: name, Labels: worker.Labels, NotReady: unready, Cordoned: worker.Spec.Unschedulable,
		Price: dispatch.PricesOf(worker.Spec.Price), Assigned: assigned,
		KubernetesVersion: worker.Status.KubernetesVersion, NodeGroups: worker.Status.NodeGroups,
		Revision: c.revision,
	}}
	if v != nil {
		f.Nodes, f.Allocatable, f.Queued = v.nodes, v.allocatable, v.queued
	}
	c.faces[name] = f
	return f
}

// connecting is said of a worker of which nothing is known yet.
const connecting = "Connecting: the connection is being made"

// notReady is empty for a worker whose Ready condition is True.
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
	return ""
}

// view returns the current view of a worker, nil if it is not connected. The caller holds mu.
func (c *capacity) view(name v1alpha1.ClusterName) *view {
	cluster, ok := c.connections.Get(name)
	if !ok || cluster.Status().State != remote.Connected {
		delete(c.views, name)
		return nil
	}
	snapshot := cluster.Inventory().Snapshot()
	v := c.views[name]
	if v != nil && v.nodes != nil && v.cluster == cluster && v.generation == snapshot.Generation {
		return v
	}
	v = &view{cluster: cluster, generation: snapshot.Generation}
	v.nodes, v.allocatable = freeNodes(snapshot)
	for _, a := range sorted(c.byWorker[name]) {
		if a.suspended {
			continue
		}
		if rest := unbound(a.podSets, snapshot.Gangs[a.key]); len(rest) > 0 {
			v.nodes = v.nodes.Reserve(rest)
			v.queued++
		}
	}
	c.views[name] = v
	return v
}

// sorted puts assignments in an order that does not depend on the map, so that the same facts give the same answer.
func sorted(assignments map[types.UID]*assignment) []*assignment {
	return slices.SortedFunc(maps.Values(assignments), func(a, b *assignment) int {
		return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
}

// freeNodes is what the bound pods leave of the nodes that take pods, and the sum of what those nodes have.
func freeNodes(snapshot *remote.Snapshot) (*dispatch.Nodes, dispatch.Resources) {
	groups := make([]dispatch.NodeGroup, 0, len(snapshot.Nodes))
	allocatable := dispatch.Resources{}
	for _, node := range snapshot.Nodes {
		if !node.Schedulable {
			continue
		}
		free := maps.Clone(dispatch.Resources(node.Allocatable))
		free.Sub(dispatch.Resources(node.Used))
		groups = append(groups, dispatch.NodeGroup{Labels: node.Labels, Taints: node.Taints, Free: free, Count: 1})
		allocatable.Add(dispatch.Resources(node.Allocatable))
	}
	return dispatch.NewNodes(groups), allocatable
}

// unbound is the part of a demand whose pods are not to be seen yet. A pod that has succeeded is not coming back.
func unbound(podSets []v1alpha1.PodSet, pods map[string]remote.GangPods) []v1alpha1.PodSet {
	var rest []v1alpha1.PodSet
	for _, podSet := range podSets {
		seen := pods[podSet.Name]
		if podSet.Count -= seen.Bound + seen.Succeeded; podSet.Count > 0 {
			rest = append(rest, podSet)
		}
	}
	return rest
}
