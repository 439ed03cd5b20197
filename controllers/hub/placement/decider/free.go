// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/quota"
	"github.com/trainyard/trainyard/remote"
)

// freeNodes is what a worker has free, for one generation of its inventory.
//
// What counts against a worker is every pod that is bound to its nodes, plus, for our live jobs there, the pods that
// are not bound yet: the demand on the Dispatch minus the job's pods that have been seen. No job counts twice. If the
// quota of the worker's Kueue counts, so do its Workloads that have reserved quota, plus our live jobs that have not.
type freeNodes struct {
	cluster   *remote.Cluster
	inventory *capacity.Snapshot
	counts    counts
	// quota is nil if it does not count.
	quota *quota.Tree
	// nodes is nil when it is out of date.
	nodes       *dispatch.Nodes
	allocatable dispatch.Resources
	// queued jobs have pods that are not bound yet.
	queued int
	// addable are the nodes that the worker can add.
	addable []dispatch.NodeGroup
	// empty is made when it is asked for.
	empty *dispatch.Nodes
}

// counts is what counts on a worker, as its WorkerCluster says.
type counts struct {
	// kueue says whether quota counts too.
	kueue v1alpha1.KueueCapacity
	// ignored resources do not count.
	ignored []v1alpha1.ExtendedResourceName
	// expandable are the nodes that the worker adds when pods need them, of a WorkerCluster as of a generation. Both are
	// zero if there are none.
	expandable []v1alpha1.ExpandableNodes
	uid        types.UID
	generation int64
}

func countsOf(worker *v1alpha1.WorkerCluster) counts {
	c := counts{kueue: worker.Spec.Kueue.Capacity, ignored: worker.Spec.IgnoredResources, expandable: worker.Spec.Expandable}
	if len(c.expandable) > 0 {
		c.uid, c.generation = worker.UID, worker.Generation
	}
	return c
}

func (c counts) equal(other counts) bool {
	return c.kueue == other.kueue && slices.Equal(c.ignored, other.ignored) &&
		c.uid == other.uid && c.generation == other.generation
}

func newFreeNodes(
	cluster *remote.Cluster, inventory *capacity.Snapshot, counts counts, charged *charging, jobs []*assignment,
) *freeNodes {
	n := &freeNodes{cluster: cluster, inventory: inventory, counts: counts, allocatable: dispatch.Resources{}}
	if counts.kueue.CountsQuota() {
		n.quota = quota.New(inventory.Quota)
		charged.learn(n.quota, jobs)
		n.quota = n.quota.On(charged.basis)
	}
	for _, node := range inventory.Nodes {
		if node.Schedulable {
			n.allocatable.AddTimes(dispatch.Resources(node.Allocatable), node.Count)
		}
	}
	n.addable = dispatch.Addable(counts.expandable, inventory.Recognized)
	n.nodes, n.queued = n.free(jobs, nil)
	return n
}

// charging is what is known of how a worker's Kueue charges quota. It is in memory only: after a restart it is assumed
// again, until a Workload shows it.
type charging struct {
	basis quota.Basis
	// since is when the job was placed whose Workload has shown it. That of a later job counts more: the worker's Kueue may
	// have been replaced.
	since time.Time
}

// learn looks at the Workloads of our jobs.
func (c *charging) learn(tree *quota.Tree, jobs []*assignment) {
	for _, a := range jobs {
		if a.since.Before(c.since) || !isAmbiguous(a.podSets) {
			continue
		}
		for _, requests := range tree.Requests(a.key) {
			if basis := dispatch.BasisOf(a.podSets, requests); basis != quota.Assumed {
				c.basis, c.since = basis, a.since
			}
		}
	}
}

// isAmbiguous says whether what a Kueue charges for some of the pods depends on how it was built.
func isAmbiguous(podSets []v1alpha1.PodSet) bool {
	return slices.ContainsFunc(podSets, func(set v1alpha1.PodSet) bool { return dispatch.IsAmbiguous(&set) })
}

// free returns what bound pods, and pods that are to come, leave of the nodes that take pods. Some jobs can be left
// out.
func (n *freeNodes) free(jobs []*assignment, without map[types.NamespacedName]bool) (nodes *dispatch.Nodes, queued int) {
	gone := func(gang types.NamespacedName) bool { return without[gang] }
	nodes = n.nodesWithout(gone)
	if n.quota != nil {
		nodes = n.limit(nodes, n.quota.Without(gone))
	}
	for _, a := range jobs {
		if without[a.key] {
			continue
		}
		if n.quota != nil {
			nodes = n.charge(nodes, a)
		}
		if rest := unbound(a.podSets, n.podsOf(a)); len(rest) > 0 {
			nodes = nodes.Spread(rest)
			queued++
		}
	}
	return nodes, queued
}

// withoutJobs returns the nodes without the pods of any job, ours or not: all jobs end. Other pods stay.
func (n *freeNodes) withoutJobs() *dispatch.Nodes {
	if n.empty == nil {
		n.empty = n.nodesWithout(func(types.NamespacedName) bool { return true })
		if n.quota != nil {
			n.empty = n.limit(n.empty, n.quota.Empty())
		}
	}
	return n.empty
}

// nodesWithout returns the nodes that take pods, without what the pods of some jobs use, and the nodes that the worker
// can add.
func (n *freeNodes) nodesWithout(gone func(types.NamespacedName) bool) *dispatch.Nodes {
	groups := make([]dispatch.NodeGroup, 0, len(n.inventory.Nodes)+len(n.addable))
	for _, node := range n.inventory.Nodes {
		if !node.Schedulable {
			continue
		}
		free := dispatch.FreeOf(dispatch.Resources(node.Allocatable), dispatch.Resources(node.Used))
		for gang, used := range node.Gangs {
			if gone(gang) {
				free.Add(dispatch.Resources(used))
			}
		}
		groups = append(groups, dispatch.NodeGroup{Labels: node.Labels, Taints: node.Taints, Free: free, Count: node.Count})
	}
	return dispatch.NewNodes(append(groups, n.addable...)).Ignoring(n.counts.ignored)
}

// limit returns the nodes with the quota that counts beside them, or instead of them.
func (n *freeNodes) limit(nodes *dispatch.Nodes, tree *quota.Tree) *dispatch.Nodes {
	return nodes.WithQuota(tree, n.counts.kueue == v1alpha1.KueueCapacityQuota)
}

// charge takes off the quota that a job of ours will reserve. The worker's Kueue has reserved it for some jobs already.
// After a restart of this process the Workload says which queue a job is in.
func (n *freeNodes) charge(nodes *dispatch.Nodes, a *assignment) *dispatch.Nodes {
	reserved, queue := n.quota.Reserved(a.key)
	if reserved {
		return nodes
	}
	local := a.queue
	if local.Name == "" && queue != "" {
		local = types.NamespacedName{Namespace: a.key.Namespace, Name: queue}
	}
	return nodes.Charge(local, a.podSets)
}

// podsOf returns the pods of a job that have been seen, by PodSet. The pods that a job has in the domain that it is to
// leave are not in the domain that is promised to it.
func (n *freeNodes) podsOf(a *assignment) map[string]capacity.GangPods {
	if a.promised && a.domain != nil && !a.isNomination() {
		return nil
	}
	return n.inventory.Gangs[a.key]
}

// unbound is the part of a demand whose pods have not been seen. A pod that has succeeded does not come back.
func unbound(podSets []v1alpha1.PodSet, pods map[string]capacity.GangPods) []v1alpha1.PodSet {
	var rest []v1alpha1.PodSet
	for _, podSet := range podSets {
		seen := pods[podSet.Name]
		if podSet.Count -= seen.Bound + seen.Succeeded; podSet.Count > 0 {
			rest = append(rest, podSet)
		}
	}
	return rest
}

// takesRoom says whether pods of a job are bound to nodes, or quota is reserved for it.
func (n *freeNodes) takesRoom(job types.NamespacedName) bool {
	if n.quota != nil {
		if reserved, _ := n.quota.Reserved(job); reserved {
			return true
		}
	}
	for _, pods := range n.inventory.Gangs[job] {
		if pods.Bound > 0 {
			return true
		}
	}
	return false
}

// occupancy is what runs on a worker. It implements dispatch.Occupancy.
type occupancy struct {
	jobs  []*assignment
	nodes *freeNodes
	// clusterID of the worker. What was placed on another cluster under the worker's name is not there.
	clusterID types.UID
}

// Victims implements dispatch.Occupancy. A job whose Dispatch has not been written yet cannot be evicted.
func (o *occupancy) Victims() []dispatch.Victim {
	var victims []dispatch.Victim
	for _, a := range o.jobs {
		if !a.leaves() && a.grant == nil && (a.clusterID == "" || a.clusterID == o.clusterID) {
			victims = append(victims, dispatch.Victim{UID: a.uid, Key: a.key, Priority: a.priority, Since: a.unsaved, Slow: a.stopsSlowly()})
		}
	}
	return victims
}

// Without implements dispatch.Occupancy.
func (o *occupancy) Without(victims []types.UID) *dispatch.Nodes {
	if o.nodes == nil {
		return nil
	}
	gone := map[types.NamespacedName]bool{}
	for _, uid := range victims {
		for _, a := range o.jobs {
			if a.uid == uid {
				gone[a.key] = true
			}
		}
	}
	nodes, _ := o.nodes.free(o.jobs, gone)
	return nodes
}
