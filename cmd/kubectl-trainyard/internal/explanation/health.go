// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explanation

import (
	"cmp"
	"fmt"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/jobs"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/output"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/internal/health"
)

// nowhereAdvice is for a job that waits for no room.
const nowhereAdvice = "change the job, its policy or the workers as the table of workers says: as they are, neither the end of another job " +
	"nor more nodes like those that are there would let it run"

// fitsNowhere is true if no worker could take the job if nothing else ran there, nor with more nodes like its own.
func fitsNowhere(workers []v1alpha1.ClusterExplanation) bool {
	return len(workers) > 0 && !slices.ContainsFunc(workers, func(worker v1alpha1.ClusterExplanation) bool {
		return dispatch.RemedyOf(worker.Reason) == dispatch.Waiting
	})
}

// agentAdvice says what they can do about trouble that the worker's agent reports, from package
// controllers/worker/trainjob.
var agentAdvice = map[string]string{
	"RuntimeNotFound": "create the runtime on the worker, or let the policy propagate it (propagate.runtimes)",
	"BuildFailed":     "correct the job or its runtime as the message says",
	"ApplyFailed":     "correct what the worker's API server refuses, or raise the limit there",
	"JobSetConflict":  "delete the JobSet of that name on the worker, or give the job another name",
}

// healthy is the condition Healthy, nil if the job has had no trouble or its copy is not live.
func (f Observation) healthy() *metav1.Condition {
	switch f.State() {
	case Running, Lost, Evicting:
		return f.condition(v1alpha1.DispatchHealthy)
	default:
		return nil
	}
}

// health says how the copy is, if it has had trouble.
func (f Observation) health() string {
	healthy := f.healthy()
	if healthy == nil {
		return ""
	}
	since := output.Age(healthy.LastTransitionTime, f.Now)
	switch healthy.Status {
	case metav1.ConditionFalse:
		return fmt.Sprintf("%s for %s: %s", healthy.Reason, since, healthy.Message)
	case metav1.ConditionTrue:
		return fmt.Sprintf("no trouble for %s; there was some before", since)
	default:
		return "unknown: " + healthy.Message
	}
}

// advice says what to do about the copy's trouble, or about the reason for which the job waits.
func (f Observation) advice() string {
	if f.State() == Waiting {
		reason := v1alpha1.PlacedReasonOf(jobs.Reason(f.Dispatch))
		if reason.Kind == v1alpha1.ReasonKindNoRoom && fitsNowhere(f.Dispatch.Status.Explanation) {
			return nowhereAdvice
		}
		return reason.Advice
	}
	healthy := f.healthy()
	if healthy == nil || healthy.Status != metav1.ConditionFalse {
		return ""
	}
	return cmp.Or(health.Advice(healthy.Reason, f.Job.GetName()), agentAdvice[healthy.Reason])
}
