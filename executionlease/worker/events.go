// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
)

// Reasons of Events.
const (
	// ReasonFenced: the agent has stopped a copy.
	ReasonFenced = "Fenced"
	// ReasonHubSilent and ReasonHubAnswers are about an ExecutionLease.
	ReasonHubSilent  = "HubSilent"
	ReasonHubAnswers = "HubAnswers"
)

// recordState records an Event on a lease that has expired or is valid again.
func (l *leases) recordState(lease *v1alpha1.ExecutionLease, before v1alpha1.LeaseState) {
	switch after := lease.Status.State; {
	case after == v1alpha1.LeaseExpired && before != v1alpha1.LeaseExpired:
		l.recorder.Eventf(lease, nil, corev1.EventTypeWarning, ReasonHubSilent, "Expire",
			"the hub has not answered in time; its copies with failover Fenced are stopped until it answers")
	case after == v1alpha1.LeaseValid && before == v1alpha1.LeaseExpired:
		l.recorder.Eventf(lease, nil, corev1.EventTypeNormal, ReasonHubAnswers, "Renew",
			"the hub answers again, and resumes its copies that are still to run here")
	}
}

// recordStop records what the agent did to a copy, why, and what happens next.
func (c *copies) recordStop(ctx context.Context, job *trainer.TrainJob, d decision) {
	done, then := "suspended", "the hub resumes it when the hub answers again and has not placed the job elsewhere"
	if d.Action == protocol.Delete {
		done, then = "deleted", "the hub places the job again"
	}
	note := fmt.Sprintf("%s, because %s; %s", done, d.why(hubOf(job)), then)
	c.recorder.Eventf(job, nil, corev1.EventTypeWarning, ReasonFenced, d.Action.String(), "%s", note)
	copiesFenced.WithLabelValues(c.tracker.name(hubOf(job)), d.Action.String(), d.Reason.String()).Inc()
	ctrl.LoggerFrom(ctx).Info("Stopped a copy", "hub", hubOf(job), "action", d.Action.String(), "reason", d.Reason.String(),
		"silence", d.silence, "heard", d.heard)
}

func (d decision) why(hub string) string {
	switch d.Reason {
	case protocol.LateCreation:
		return "the request that created it took too long, or was sent before this cluster's agent started"
	case protocol.OldAttempt:
		return "this cluster has had a later attempt of its hub TrainJob"
	case protocol.SecondCopy:
		return "this cluster has had another copy of the same attempt; its creation was sent twice, or somebody has " +
			"deleted the first copy"
	case protocol.ResumedByOthers:
		return "somebody other than its hub has resumed it after it was stopped"
	default:
	}
	if !d.heard {
		return fmt.Sprintf("its hub %s has not answered this cluster's agent", hub)
	}
	return fmt.Sprintf("its hub %s has not answered this cluster's agent for %s", hub, d.silence.Round(time.Second))
}
