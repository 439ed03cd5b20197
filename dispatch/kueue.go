// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/quota"
)

// QueueOf returns the LocalQueue of a worker into which the copy of a job comes: as the WorkerCluster says, or else the
// job's policy. The name is empty for a copy that Kueue does not queue. Only this function decides that. mirror does
// for an attempt what the Dispatch says.
func QueueOf(job *Job, worker v1alpha1.WorkerQueue) types.NamespacedName {
	name := job.Labels[v1alpha1.LabelLocalQueue]
	switch setting := cmp.Or(worker, job.WorkerQueue); {
	case job.Nominated, setting == v1alpha1.WorkerQueueFromJob: // MultiKueue's queues have one name on all clusters.
	case setting == v1alpha1.WorkerQueueNone, setting == "" && job.QueuedOnHub:
		name = ""
	case setting != "":
		name = string(setting)
	}
	if name == "" {
		return types.NamespacedName{}
	}
	return types.NamespacedName{Namespace: job.Namespace, Name: name}
}

// queueQuota is the quota that counts beside the nodes of a worker, or instead of them.
type queueQuota struct {
	tree *quota.Tree
	// alone: for jobs in a LocalQueue the nodes do not count.
	alone bool
	// whole is nil until a job looks at the nodes. Then it is the nodes that In was called on.
	whole *Nodes
	// local is the LocalQueue of the job that looks. Its name is empty for a job that Kueue does not queue.
	local types.NamespacedName
	// queue is the ClusterQueue of that job. problem says why that job would not start there.
	queue   quota.ClusterQueue
	problem string
}

// WithQuota returns the nodes with the quota of the worker's Kueue, which also limits the jobs in its LocalQueues. With
// alone, only the quota limits these jobs.
func (n *Nodes) WithQuota(tree *quota.Tree, alone bool) *Nodes {
	limited := *n
	limited.quota = &queueQuota{tree: tree, alone: alone}
	return &limited
}

// Charge returns the nodes without the quota that a job in a LocalQueue will reserve. If the job does not fit, the
// ClusterQueue then has less than nothing, so that the next room is the job's.
func (n *Nodes) Charge(local types.NamespacedName, podSets []v1alpha1.PodSet) *Nodes {
	if n == nil || n.quota == nil || local.Name == "" {
		return n
	}
	queue, problem := n.quota.tree.Queue(local)
	if problem != "" {
		return n
	}
	charges, _ := assignFlavors(queue, podSets, true)
	return n.WithQuota(queue.Charge(charges), n.quota.alone)
}

// In returns the nodes as a job in a LocalQueue sees them. The name is empty for a job that Kueue does not queue. If
// only the quota counts, each flavor of the ClusterQueue is one node.
func (n *Nodes) In(local types.NamespacedName) *Nodes {
	if n == nil || n.quota == nil {
		return n
	}
	whole := n
	if n.quota.whole != nil {
		whole = n.quota.whole
	}
	seen := &queueQuota{tree: whole.quota.tree, alone: whole.quota.alone, whole: whole, local: local}
	view := *whole
	if local.Name != "" {
		seen.queue, seen.problem = seen.tree.Queue(local)
		if seen.alone {
			view = *flavorNodes(seen)
		}
	}
	view.quota = seen
	return &view
}

// withNodes returns nodes that a job looks at, with the nodes counted beside the quota and not left out.
func (n *Nodes) withNodes() *Nodes {
	if !n.queued().only() {
		return n
	}
	seen, view := *n.quota, *n.quota.whole
	seen.alone = false
	view.quota = &seen
	return &view
}

// flavorNodes has one node for each flavor of a ClusterQueue, with what is available of it.
func flavorNodes(q *queueQuota) *Nodes {
	var groups []NodeGroup
	if q.problem == "" {
		for _, group := range q.queue.Groups() {
			for i := range group.Flavors {
				name, free := group.Flavors[i].Name, Resources{}
				for _, resource := range group.Resources {
					free[resource] = q.queue.Available(quota.Resource{Flavor: name, Name: resource})
				}
				if flavor := q.queue.Flavor(name); flavor != nil {
					groups = append(groups, NodeGroup{Labels: flavor.Labels, Taints: flavor.Taints, Free: free, Count: 1})
				}
			}
		}
	}
	return NewNodes(groups)
}

// queued returns the quota that counts for the job that looks at the nodes, or nil if none does.
func (n *Nodes) queued() *queueQuota {
	if n == nil || n.quota == nil || n.quota.whole == nil || n.quota.local.Name == "" {
		return nil
	}
	return n.quota
}

// only says whether the nodes do not count for the job that looks at them.
func (q *queueQuota) only() bool { return q != nil && q.alone }

// boundless: no job has looked at the nodes, and for some jobs the nodes do not count. So nothing is certain about what
// has no room.
func (n *Nodes) boundless() bool {
	return n != nil && n.quota != nil && n.quota.alone && n.quota.whole == nil
}

// hold is Hold and Close for a job that looks at the nodes: also the quota that it needs is held.
func (q *queueQuota) hold(podSets []v1alpha1.PodSet, nodes func(whole *Nodes) *Nodes) *Nodes {
	held := q.whole
	if !q.alone || q.local.Name == "" {
		held = nodes(held)
	}
	return held.Charge(q.local, podSets)
}

// seenBy returns the workers as a job sees them. They are the same without the quota of a Kueue and without nodes to add.
func seenBy(job *Job, workers []Worker) []Worker {
	seen := workers
	var at v1alpha1.ClusterName
	defer Blame(&at)
	for i := range workers {
		at = workers[i].Name
		if n := workers[i].Nodes; n == nil || n.quota == nil && n.there == nil {
			continue
		}
		if &seen[0] == &workers[0] {
			seen = slices.Clone(workers)
		}
		w := &seen[i]
		if w.Nodes = w.NodesFor(job); w.Nodes.queued().only() {
			w.Revision = 0 // An expression sees what is free, and that depends on the queue of the job.
		}
	}
	return seen
}

// podsOf returns the number of pods.
func podsOf(podSets []v1alpha1.PodSet) int64 {
	var pods int64
	for i := range podSets {
		pods = addUpTo(pods, int64(max(podSets[i].Count, 0)))
	}
	return pods
}
