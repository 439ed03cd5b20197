// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/remote"
)

// view is a worker's free nodes for one generation of its inventory.
//
// What counts against a worker is every pod that is bound to its nodes, plus, for our live jobs there, the pods that are not
// bound yet: the demand on the Dispatch minus the job's pods that have been seen. No job counts twice.
type view struct {
	cluster  *remote.Cluster
	snapshot *capacity.Snapshot
	// nodes is nil for a view that is out of date.
	nodes       *dispatch.Nodes
	allocatable dispatch.Resources
	// queued jobs have pods that are not bound yet.
	queued int
	// empty is made when it is asked for.
	empty *dispatch.Nodes
}

func newView(cluster *remote.Cluster, snapshot *capacity.Snapshot, jobs []*assignment) *view {
	v := &view{cluster: cluster, snapshot: snapshot, allocatable: dispatch.Resources{}}
	for _, node := range snapshot.Nodes {
		if node.Schedulable {
			v.allocatable.AddTimes(dispatch.Resources(node.Allocatable), node.Count)
		}
	}
	v.nodes, v.queued = v.free(jobs, nil)
	return v
}

// free is what the bound pods leave of the nodes that take pods, and what the pods leave that are to come. Jobs without which it
// would be are not counted.
func (v *view) free(jobs []*assignment, without map[types.NamespacedName]bool) (nodes *dispatch.Nodes, queued int) {
	nodes = v.nodesWithout(func(gang types.NamespacedName) bool { return without[gang] })
	for _, a := range jobs {
		if without[a.key] {
			continue
		}
		if rest := unbound(a.podSets, v.snapshot.Gangs[a.key]); len(rest) > 0 {
			nodes = nodes.Spread(rest)
			queued++
		}
	}
	return nodes, queued
}

// withoutJobs are the nodes without any job's pods, those of jobs that are not ours either: they end too. Other pods stay.
func (v *view) withoutJobs() *dispatch.Nodes {
	if v.empty == nil {
		v.empty = v.nodesWithout(func(types.NamespacedName) bool { return true })
	}
	return v.empty
}

// nodesWithout are the nodes that take pods, without what the pods of some jobs use.
func (v *view) nodesWithout(gone func(types.NamespacedName) bool) *dispatch.Nodes {
	groups := make([]dispatch.NodeGroup, 0, len(v.snapshot.Nodes))
	for _, node := range v.snapshot.Nodes {
		if !node.Schedulable {
			continue
		}
		free := maps.Clone(dispatch.Resources(node.Allocatable))
		free.Sub(dispatch.Resources(node.Used))
		for gang, used := range node.Gangs {
			if gone(gang) {
				free.Add(dispatch.Resources(used))
			}
		}
		groups = append(groups, dispatch.NodeGroup{Labels: node.Labels, Taints: node.Taints, Free: free, Count: node.Count})
	}
	return dispatch.NewNodes(groups)
}

// unbound is the part of a demand whose pods are not to be seen yet. A pod that has succeeded is not coming back.
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

// hasPods says whether pods of a job are bound to nodes.
func (v *view) hasPods(job types.NamespacedName) bool {
	for _, pods := range v.snapshot.Gangs[job] {
		if pods.Bound > 0 {
			return true
		}
	}
	return false
}

// occupancy is what runs on a worker. It implements dispatch.Occupancy.
type occupancy struct {
	jobs []*assignment
	view *view
	// clusterID of the worker. What was placed on another cluster under its name is not there.
	clusterID types.UID
}

// Victims implements dispatch.Occupancy. A job whose Dispatch has not been written yet cannot be evicted.
func (o *occupancy) Victims() []dispatch.Victim {
	var victims []dispatch.Victim
	for _, a := range o.jobs {
		if !a.leaves() && a.grant == nil && (a.clusterID == "" || a.clusterID == o.clusterID) {
			victims = append(victims, dispatch.Victim{UID: a.uid, Key: a.key, Priority: a.priority, Since: a.since, Slow: a.stopsSlowly()})
		}
	}
	return victims
}

// Without implements dispatch.Occupancy.
func (o *occupancy) Without(victims []types.UID) *dispatch.Nodes {
	if o.view == nil {
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
	nodes, _ := o.view.free(o.jobs, gone)
	return nodes
}
