// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
)

// Workers converts WorkerClusters for package dispatch. It subtracts the demand of placed Dispatches whose pods are not
// in the status yet. notes say which data is incomplete.
func Workers(clusters []v1alpha1.WorkerCluster, dispatches []v1alpha1.Dispatch) (workers []dispatch.Worker, notes []string) {
	pending := map[v1alpha1.ClusterName][]*v1alpha1.Dispatch{}
	for i := range dispatches {
		if d := &dispatches[i]; isPending(d) {
			pending[d.Spec.Cluster] = append(pending[d.Spec.Cluster], d)
		}
	}
	for i := range clusters {
		worker, exact := newWorker(&clusters[i])
		if !exact && worker.NotReady == "" {
			notes = append(notes, fmt.Sprintf("the status of WorkerCluster %q does not say what its nodes have free besides "+
				"GPUs: everything else counts as free",
				worker.Name))
		}
		for _, d := range pending[worker.Name] {
			Place(&worker, d.Spec.PodSets)
			worker.Assigned-- // The status counts it too.
		}
		workers = append(workers, worker)
	}
	return workers, notes
}

// Place subtracts a job's demand from a worker.
func Place(worker *dispatch.Worker, podSets []v1alpha1.PodSet) {
	worker.Nodes = worker.Nodes.Reserve(podSets)
	worker.Assigned++
	worker.Queued++
}

// isPending is true for a Dispatch that holds room on a worker that has not reported anything about it.
func isPending(d *v1alpha1.Dispatch) bool {
	return record.AttemptOf(d).Live() && d.Status.Phase == v1alpha1.PhasePending
}

func newWorker(cluster *v1alpha1.WorkerCluster) (worker dispatch.Worker, exact bool) {
	nodes, exact := Nodes(cluster.Status.NodeGroups)
	worker = dispatch.WorkerOf(cluster, nodes, dispatch.AllocatableOf(cluster.Status.NodeGroups))
	worker.NotReady = unready(cluster)
	return worker, exact
}

// unready returns reason and message of a worker that is not Ready, or "".
func unready(cluster *v1alpha1.WorkerCluster) string {
	reason, message := readiness(cluster)
	if reason == "" {
		return ""
	}
	return reason + ": " + message
}

// readiness returns reason and message of a worker that is not Ready, or empty texts.
func readiness(cluster *v1alpha1.WorkerCluster) (reason, message string) {
	ready := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.WorkerClusterReady)
	switch {
	case cluster.DeletionTimestamp != nil:
		return "Deleting", "the WorkerCluster is being deleted"
	case ready == nil:
		return "NotSeen", "the manager has not said anything about it yet"
	case ready.Status != metav1.ConditionTrue:
		return ready.Reason, ready.Message
	}
	return "", ""
}
