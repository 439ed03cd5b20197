// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import "github.com/trainyard/trainyard/api/v1alpha1"

// Worker is a WorkerCluster as it is now.
type Worker struct {
	// Name of the WorkerCluster. No two workers have the same.
	Name v1alpha1.ClusterName
	// Labels of the WorkerCluster.
	Labels map[string]string
	// NotReady is the reason and message of a Ready condition that is not True. Empty: the worker is Ready.
	NotReady string
	// Cordoned: the worker takes no jobs, by spec.unschedulable or because it is Draining, by spec.drain.
	Cordoned, Draining bool
	// Nodes that take pods, without what is reserved for jobs whose pods are not on them yet.
	Nodes *Nodes
	// Allocatable of all nodes together, for scores and expressions.
	Allocatable Resources
	// WorkerQueue is spec.kueue.workerQueue.
	WorkerQueue v1alpha1.WorkerQueue
	// Price is spec.price as PricesOf converts it. It can change the score of other workers, see v1alpha1.ScorePrice.
	Price Prices
	// Assigned counts jobs that are placed there and have not ended. Queued counts those with pods on no node yet.
	Assigned, Queued int
	// KubernetesVersion and NodeGroups come from the status of the WorkerCluster, for expressions.
	KubernetesVersion string
	NodeGroups        []v1alpha1.NodeGroup
	// Revision changes whenever another field changes. An expression may cache its answer by it. 0: it may not.
	Revision uint64
}

// WorkerOf returns what a WorkerCluster says of its worker, with nodes and allocatable as the caller has counted them.
// The caller adds NotReady, Queued and Revision, and may know a newer number of assigned jobs than the status.
func WorkerOf(cluster *v1alpha1.WorkerCluster, nodes *Nodes, allocatable Resources) Worker {
	return Worker{
		Name: v1alpha1.ClusterName(cluster.Name), Labels: cluster.Labels,
		Cordoned: cluster.Spec.Unschedulable || cluster.Spec.Drain, Draining: cluster.Spec.Drain,
		Nodes: nodes, Allocatable: allocatable, WorkerQueue: cluster.Spec.Kueue.WorkerQueue,
		Price: PricesOf(cluster.Spec.Price), Assigned: int(cluster.Status.Jobs),
		KubernetesVersion: cluster.Status.KubernetesVersion, NodeGroups: cluster.Status.NodeGroups,
	}
}

// TakesJobs says whether new jobs may come to the worker, whatever they need.
func (w *Worker) TakesJobs() bool { return w.NotReady == "" && !w.Cordoned }
