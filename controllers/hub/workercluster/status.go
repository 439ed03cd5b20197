// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"fmt"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote"
)

// messageLimit is the maximum length of a condition's message.
const messageLimit = 32768

// status computes the WorkerCluster's status from the observation. It also returns how long until a later write of
// capacity is due. Fields that the worker does not report now stay as they were.
func (r *Reconciler) status(worker *v1alpha1.WorkerCluster, seen observation) (*v1alpha1.WorkerClusterStatus, time.Duration) {
	status := worker.Status.DeepCopy()
	reason, message := r.readiness(worker, seen)
	value := metav1.ConditionFalse
	if reason == v1alpha1.ReasonConnected {
		value = metav1.ConditionTrue
	}
	changed := meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type:               v1alpha1.WorkerClusterReady,
		Status:             value,
		ObservedGeneration: worker.Generation,
		LastTransitionTime: metav1.NewTime(seen.now),
		Reason:             reason,
		Message:            record.Cut(message, messageLimit),
	})
	setSeen(status, worker.Status.ReadyReason(), seen.connection)
	setIdentity(status, reason, seen)
	r.setAgent(worker, status)
	if status.Answers() {
		setVersions(status, seen.connection)
		r.setSkew(worker, status, seen.now)
		if r.Runtimes != nil {
			status.Runtimes = r.Runtimes.Status(seen.name, worker.Status.Runtimes, seen.now)
		}
	}
	if reason != v1alpha1.ReasonConnected {
		status.Jobs = seen.jobs
		return status, 0
	}
	if due := r.watches.capacityDue(seen.name, r.CapacityInterval, seen.now); due > 0 && !changed {
		return status, due
	}
	status.Jobs = seen.jobs
	snapshot := seen.cluster.Inventory().Snapshot()
	status.NodeGroups, status.GPUs = capacityOf(snapshot, r.Accelerators)
	status.Expandable = expandableOf(worker.Spec.Expandable, snapshot)
	r.watches.setCapacityWritten(seen.name, seen.now)
	return status, 0
}

// readiness returns reason and message of the Ready condition.
func (r *Reconciler) readiness(worker *v1alpha1.WorkerCluster, seen observation) (reason, message string) {
	switch {
	case seen.credentialsFault != nil:
		return kubeconfigs.ReasonOf(seen.credentialsFault), seen.credentialsFault.Error()
	case seen.connection.ClusterID != "" && seen.connection.ClusterID == r.HubID:
		return v1alpha1.ReasonDuplicate, "the kubeconfig leads to the hub itself, and a hub cannot be its own worker: a copy would have the name of its job. " +
			"Give the hub an API server of its own, and register this cluster there: see \"One big cluster\" in docs/install.md"
	case seen.duplicateOf != "":
		return v1alpha1.ReasonDuplicate, fmt.Sprintf("WorkerCluster %q already leads to this cluster (ID %s)", seen.duplicateOf, seen.connection.ClusterID)
	case seen.connection.State == remote.Connected && seen.connection.JobSetMissing != "":
		return v1alpha1.ReasonJobSetAPIMissing, seen.connection.JobSetMissing
	case seen.connection.State == remote.Connected:
		reason, message = capacityReadiness(seen.connection)
		if reason == v1alpha1.ReasonConnected {
			message += r.refusals(worker, seen)
		}
		return reason, message
	case seen.connection.State == remote.IdentityChanged:
		return v1alpha1.ReasonIdentityChanged, fmt.Sprintf(
			"%s; if this is intended, confirm it: kubectl annotate workercluster %s %s=%s",
			strings.TrimSuffix(seen.connection.Message, "."), worker.Name, v1alpha1.AnnotationAcceptIdentity, seen.connection.ClusterID)
	case seen.connection.State == remote.Unreachable:
		return v1alpha1.ReasonUnreachable, fmt.Sprintf("%s does not answer: %s", seen.credentials.Config.Host, seen.connection.Message)
	default:
		return seen.connection.State.String(), seen.connection.Message
	}
}

// capacityReadiness returns reason and message of the Ready condition of a worker that is connected.
func capacityReadiness(connection remote.Status) (reason, message string) {
	switch connection.Capacity {
	case capacity.Pending:
		return v1alpha1.ReasonConnecting, connection.CapacityMessage
	case capacity.ReportMissing:
		return v1alpha1.ReasonCapacityReportMissing, connection.CapacityMessage
	case capacity.ReportStale:
		return v1alpha1.ReasonCapacityReportStale, connection.CapacityMessage
	case capacity.QuotaMissing:
		return v1alpha1.ReasonQuotaMissing, connection.CapacityMessage
	case capacity.Unusable:
		return v1alpha1.ReasonCapacityUnusable, connection.CapacityMessage
	case capacity.Known:
	}
	message = v1alpha1.MessageConnected
	if connection.CapacityMessage != "" {
		message += "; " + connection.CapacityMessage
	}
	return v1alpha1.ReasonConnected, message
}

// refusals says which rights the worker refuses, what the hub does not do without them, and what grants them.
func (r *Reconciler) refusals(worker *v1alpha1.WorkerCluster, seen observation) (words string) {
	for _, right := range seen.connection.Forbidden {
		switch right {
		case remote.ReadLogs:
			words += fmt.Sprintf("; it does not let the hub read logs of pods, so the gateway shows none: run \"kubectl trainyard join %s\" again, "+
				"or apply config/worker-logs there", worker.Name)
		case remote.LookUp:
			if r.hasNoAgent(seen) { // The agent looks itself.
				words += fmt.Sprintf("; it does not let the hub look for what jobs name, so jobs that lack a Secret hang there: "+
					"run \"kubectl trainyard join %s --lookup\" again, or apply config/worker-lookup there", worker.Name)
			}
		}
	}
	return words
}

// hasNoAgent says whether it is known that no agent of the worker answers.
func (r *Reconciler) hasNoAgent(seen observation) bool {
	if r.Agents == nil {
		return false
	}
	state, _ := r.Agents.Agent(seen.name, seen.connection.ClusterID)
	reason, _ := agentReadiness(state)
	return reason == v1alpha1.ReasonAgentMissing
}

// setSeen keeps the time of the worker's last answer while it does not answer: the rest of the status is from that
// time. A worker that refuses us still answers. It begins to be away only when it no longer answers.
func setSeen(status *v1alpha1.WorkerClusterStatus, before string, connection remote.Status) {
	reason := status.ReadyReason()
	if reason == v1alpha1.ReasonUnreachable && before == v1alpha1.ReasonCredentialsInvalid {
		since := metav1.NewTime(connection.Since)
		status.LastSeenTime = &since
		return
	}
	switch {
	case reason == v1alpha1.ReasonUnreachable, reason == v1alpha1.ReasonCredentialsInvalid:
		if !connection.LastSeen.IsZero() && status.LastSeenTime == nil {
			seen := metav1.NewTime(connection.LastSeen)
			status.LastSeenTime = &seen
		}
	case status.Answers():
		status.LastSeenTime = nil
	}
}

// setIdentity pins the cluster ID at the first contact, or when an admin has accepted the ID that was found.
func setIdentity(status *v1alpha1.WorkerClusterStatus, reason string, seen observation) {
	found := seen.connection.ClusterID
	switch {
	case found == "" || reason == v1alpha1.ReasonDuplicate || reason == v1alpha1.ReasonIdentityChanged:
	case status.ClusterID == "", seen.accepted == found:
		status.ClusterID = found
	}
}

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
