// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
)

// These messages about the agent say what to do.
const (
	messageAgentAnswers = "the agent answers; it stops jobs with failover Fenced when the hub is silent"
	messageNoLeaseAPI   = "the worker has no ExecutionLease API, so no job there can be fenced: install it and the " +
		"agent with kubectl apply --server-side -k config/worker-agent"
	messageLeaseForbidden = "the worker does not let the hub's user get, list, watch, create or patch " +
		"executionleases.trainyard.dev, so no job there can be fenced: grant these rights (kubectl apply -k config/worker)"
	messageNoAgent = "nobody writes into the worker's ExecutionLease of this hub, so no job there can be fenced: " +
		"install the agent with kubectl apply --server-side -k config/worker-agent, and check that it runs"
	messageAgentSilent = "the agent does not write into the worker's ExecutionLease of this hub any more: check that " +
		"it runs and holds the lease fencing.trainyard.dev"
)

// agentReadiness returns reason and message of the AgentReady condition, and no reason if nothing is known.
func agentReadiness(state protocol.AgentState) (reason, message string) {
	switch state {
	case protocol.AgentAlive:
		return v1alpha1.ReasonAgentAnswers, messageAgentAnswers
	case protocol.AgentUnsupported:
		return v1alpha1.ReasonAgentMissing, messageNoLeaseAPI
	case protocol.AgentForbidden:
		return v1alpha1.ReasonAgentMissing, messageLeaseForbidden
	case protocol.AgentAbsent:
		return v1alpha1.ReasonAgentMissing, messageNoAgent
	case protocol.AgentSilent:
		return v1alpha1.ReasonAgentSilent, messageAgentSilent
	case protocol.AgentUnknown:
	}
	return "", ""
}

// setAgent says whether the worker's agent answers. The condition stays while the worker is away: a new leader may know
// nothing else of it. The agent works with the fenceAfter of the condition's observedGeneration, or a shorter one.
func (r *Reconciler) setAgent(worker *v1alpha1.WorkerCluster, status *v1alpha1.WorkerClusterStatus) {
	if r.Agents == nil {
		return
	}
	if status.ClusterID != worker.Status.ClusterID {
		// The condition was about another cluster.
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.WorkerClusterAgentReady)
	}
	state, longest := r.Agents.Agent(v1alpha1.ClusterName(worker.Name), status.ClusterID)
	bounded := longest > 0 && longest <= worker.FenceAfter()
	reason, message := agentReadiness(state)
	if !status.Answers() || reason == "" {
		known := meta.FindStatusCondition(status.Conditions, v1alpha1.WorkerClusterAgentReady)
		if known != nil && known.Status == metav1.ConditionTrue && bounded {
			known.ObservedGeneration = worker.Generation
		}
		return
	}
	condition := metav1.Condition{
		Type: v1alpha1.WorkerClusterAgentReady, Status: metav1.ConditionFalse, ObservedGeneration: worker.Generation,
		LastTransitionTime: metav1.NewTime(r.Clock.Now()), Reason: reason, Message: message,
	}
	if state == protocol.AgentAlive {
		condition.Status = metav1.ConditionTrue
		if !bounded {
			condition.ObservedGeneration = 0
		}
	}
	meta.SetStatusCondition(&status.Conditions, condition)
}
