// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/views/output"
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

// isPending is true for a Dispatch that holds room on a worker that has not reported anything about it, or that has to
// add nodes for it. Until all its pods run, nodes that have come may count twice: as used and as held.
func isPending(d *v1alpha1.Dispatch) bool {
	if !record.AttemptOf(d).Live() {
		return false
	}
	return d.Status.Phase == v1alpha1.PhasePending || d.Status.Phase == v1alpha1.PhaseStarting && d.Spec.AddedNodes > 0
}

func newWorker(cluster *v1alpha1.WorkerCluster) (worker dispatch.Worker, exact bool) {
	groups, exact := freeOf(cluster.Status.NodeGroups)
	nodes := dispatch.NewNodes(append(groups, dispatch.AddableOf(cluster)...))
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

// Ready returns the worker's state in a few words, with the age of its data where that matters.
func Ready(cluster *v1alpha1.WorkerCluster, now time.Time) string {
	text := strings.Join(States(cluster), ",")
	if seen := cluster.Status.LastSeenTime; seen != nil {
		text += fmt.Sprintf(" (seen %s ago)", output.Age(*seen, now))
	}
	return text
}

// States says in words whether the worker gets new jobs: True, or why not, and what an admin has decided about it.
func States(cluster *v1alpha1.WorkerCluster) []string {
	state, _ := readiness(cluster)
	states := []string{output.Or(state, "True")}
	switch {
	case cluster.Spec.Drain:
		states = append(states, "Draining") // A drain cordons the worker too.
	case cluster.Spec.Unschedulable:
		states = append(states, "Cordoned")
	}
	if meta.IsStatusConditionTrue(cluster.Status.Conditions, v1alpha1.WorkerClusterFailoverPaused) {
		states = append(states, "FailoverPaused")
	}
	if id := cluster.Status.ClusterID; id != "" && cluster.Annotations[v1alpha1.AnnotationForget] == string(id) {
		states = append(states, "Forgotten")
	}
	return states
}

// Agent returns the state of the worker's agent in a word. It is True if the agent answers, so that jobs can be fenced.
func Agent(cluster *v1alpha1.WorkerCluster) string {
	agent := meta.FindStatusCondition(cluster.Status.Conditions, v1alpha1.WorkerClusterAgentReady)
	switch {
	case agent == nil:
		return output.Unknown
	case agent.Status == metav1.ConditionTrue:
		return "True"
	}
	return strings.TrimPrefix(agent.Reason, "Agent")
}

// troubles are the conditions that say what an admin should look at while they are True.
var troubles = []string{v1alpha1.WorkerClusterSkewUnsupported, v1alpha1.WorkerClusterCredentialsExpiring, v1alpha1.WorkerClusterSweepRefused}

// Notes returns a line for each problem that an admin should look at, and what to do.
func Notes(clusters []v1alpha1.WorkerCluster) []string {
	var notes []string
	for i := range clusters {
		cluster := &clusters[i]
		for _, c := range cluster.Status.Conditions {
			switch {
			case c.Status != metav1.ConditionTrue:
			case c.Type == v1alpha1.WorkerClusterFailoverPaused:
				notes = append(notes, fmt.Sprintf("the jobs of worker %q are not moved: %s", cluster.Name, c.Message))
			case slices.Contains(troubles, c.Type):
				notes = append(notes, fmt.Sprintf("worker %q: %s", cluster.Name, c.Message))
			case c.Type == v1alpha1.WorkerClusterReady: // It gets jobs, but is not all that it could be.
				if missing, found := strings.CutPrefix(c.Message, v1alpha1.MessageConnected+"; "); found {
					notes = append(notes, fmt.Sprintf("worker %q: %s", cluster.Name, missing))
				}
			}
		}
		if n := len(cluster.Status.Runtimes); n > 0 {
			notes = append(notes, fmt.Sprintf("worker %q has runtimes that are not the hub's of the same name: kubectl trainyard runtimes --diff "+
				"prints %d of them", cluster.Name, n))
		}
		if n := len(cluster.Status.UnknownCopies); n > 0 {
			notes = append(notes, fmt.Sprintf("worker %q has copies that the hub has no record of: kubectl trainyard adopt %s prints %d of them",
				cluster.Name, cluster.Name, n))
		}
	}
	return notes
}
