// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// deadline is when a job is given up. It is zero if the job waits for ever, or must not be given up as it is.
type deadline struct {
	at time.Time
	// policy is the name of the DispatchPolicy that says so, and after its giveUpAfter.
	policy string
	after  time.Duration
}

// deadline says when a job is given up that has no worker, for what it waits for. A job that may have a copy is not given
// up: the deletion of its Tombstone wakes it, or the decision about an unknown copy. A policy with a fault gives up
// nothing.
func (seen *observation) deadline(why dispatch.Decision) deadline {
	if seen.mayHaveCopy || seen.copyAt != "" || v1alpha1.ReasonKindOf(why.Reason).KeepsOffList() {
		return deadline{}
	}
	policy, _, err := dispatch.SelectPolicy(seen.needs.job.Policies, seen.needs.job.Job)
	if err != nil || policy == nil {
		return deadline{}
	}
	after := policy.Rules().GiveUpAfter.Duration
	if after <= 0 || len(policy.Faults()) > 0 {
		return deadline{}
	}
	since := seen.at // What is written now says that the job waits from now on.
	if d := seen.dispatch; d != nil {
		if recorded := record.WaitingSince(&d.Status, seen.at); !recorded.IsZero() {
			since = recorded
		}
	}
	return deadline{at: since.Add(after), policy: policy.Name, after: after}
}

// left is for how long the job is not given up yet, and zero if it has no deadline. due is true if it is given up now.
func (d deadline) left(now time.Time) (left time.Duration, due bool) {
	if d.at.IsZero() {
		return 0, false
	}
	left = d.at.Sub(now)
	return max(left, 0), left <= 0
}

// giveUp puts on record that a job gets no worker any more, before its TrainJob becomes Failed.
func (r *Reconciler) giveUp(ctx context.Context, seen *observation, why dispatch.Decision, end deadline) error {
	job := seen.needs.job
	d, err := r.writer.withoutWorker(ctx, seen, job)
	if err != nil {
		return err
	}
	var explanation []v1alpha1.ClusterExplanation
	if seen.obstacle() == nil {
		explanation = record.BoundExplanation(r.decider.Explain(job))
	}
	words := fmt.Sprintf("no worker took the job within %s (giveUpAfter of DispatchPolicy %q): %s",
		end.after, end.policy, wordsOf(why, explanation))
	err = r.writer.records().UpdateStatus(ctx, d, func(status *v1alpha1.DispatchStatus) {
		record.GiveUp(status, d, record.Why{Message: words, Explanation: explanation}, r.options.Clock.Now())
	})
	if err != nil {
		return err
	}
	r.decider.Leave(seen.key())
	r.writer.announcer.givenUp(seen.job, d, words)
	return nil
}

// wordsOf says in one line why a job waits: for each worker, if workers make the difference.
func wordsOf(why dispatch.Decision, explanation []v1alpha1.ClusterExplanation) string {
	if len(explanation) == 0 || !v1alpha1.ReasonKindOf(why.Reason).ShowsWorkers() {
		return why.Reason + ": " + why.Message
	}
	lines := make([]string, len(explanation))
	for i, line := range explanation {
		lines[i] = fmt.Sprintf("%s: %s: %s", line.Cluster, line.Reason, line.Message)
	}
	return why.Reason + ": " + strings.Join(lines, "; ")
}

// fail makes the TrainJob of a job that was given up Failed, with the words that are on record. Nobody else reports an
// end of the job, because it has no copy.
func (w *writer) fail(ctx context.Context, seen *observation) error {
	said := placedCondition(seen.dispatch)
	before, _ := seen.job.Object["status"].(map[string]any)
	status := trainjobs.WithoutCondition(before, trainer.TrainJobSuspended, metav1.ConditionTrue, metav1.ConditionFalse)
	updated := seen.job.DeepCopy()
	updated.Object["status"] = withCondition(status, metav1.Condition{
		Type: trainer.TrainJobFailed, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGivenUp, Message: said.Message,
		LastTransitionTime: metav1.NewTime(w.clock.Now()),
	})
	patch := client.MergeFromWithOptions(seen.job, client.MergeFromWithOptimisticLock{})
	err := w.hub.Status().Patch(ctx, updated, patch, records.FieldOwner)
	if err != nil {
		err = fmt.Errorf("patch status of TrainJob %s/%s: %w", seen.job.GetNamespace(), seen.job.GetName(), err)
	}
	return w.records().Refused(ctx, seen.dispatch, v1alpha1.ReasonTrainJobStatusRefused, err)
}

// withCondition returns a status of a TrainJob with one condition more. It does not change its argument.
func withCondition(status map[string]any, condition metav1.Condition) map[string]any {
	status = runtime.DeepCopyJSON(status)
	if status == nil {
		status = map[string]any{}
	}
	conditions, _ := status["conditions"].([]any)
	status["conditions"] = append(conditions, map[string]any{
		"type": condition.Type, "status": string(condition.Status), "reason": condition.Reason,
		"message": condition.Message, "lastTransitionTime": condition.LastTransitionTime.UTC().Format(time.RFC3339),
	})
	return status
}
