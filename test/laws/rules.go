// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package laws

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// These are the rules of single transitions; the laws hold before.

func anything(change) string { return "" }

// decidesNothing: neither another attempt nor an eviction comes with it.
func decidesNothing(c change) string {
	if c.before != nil && c.after.Spec.Attempt != c.before.Spec.Attempt {
		return "the attempt has changed"
	}
	if c.after.Spec.Eviction != nil && (c.before == nil || c.before.Spec.Eviction == nil) {
		return "an eviction was written"
	}
	return ""
}

// placed: with the next attempt, and nothing of the attempt before it.
func placed(c change) string {
	switch {
	case c.after.Spec.Eviction != nil:
		return "the job is placed and evicted in one step"
	case c.before == nil && c.after.Spec.Attempt < 1, c.before != nil && c.after.Spec.Attempt <= c.before.Spec.Attempt:
		return fmt.Sprintf("the job is placed with attempt %d, which is not a new one", c.after.Spec.Attempt)
	}
	return ""
}

// shown: a copy that is said to exist has a UID.
func shown(c change) string {
	if c.to == record.Copied && c.after.Status.CopyUID == "" {
		return "there is a copy without a UID"
	}
	return decidesNothing(c)
}

// evictedFor: one of the reasons.
func evictedFor(reasons ...v1alpha1.EvictionReason) rule {
	return func(c change) string {
		if c.after.Spec.Eviction == nil {
			return "there is no eviction"
		}
		if !slices.Contains(reasons, c.after.Spec.Eviction.Reason) {
			return fmt.Sprintf("an eviction for %s is not of this writer", c.after.Spec.Eviction.Reason)
		}
		return ""
	}
}

// adopted: with the attempt of the copy that was found.
func adopted(c change) string {
	if !c.isAdoption() {
		return "the attempt is not that of a copy that was found"
	}
	if c.after.Spec.Eviction != nil {
		return "the copy is adopted and evicted in one step"
	}
	return ""
}

// over: the status has the outcome once, and nothing of the copy.
func over(c change) string {
	outcome, wrong := ending(c, v1alpha1.DispatchMirrored)
	switch {
	case wrong != "":
		return wrong
	case c.after.Status.CopyUID != "":
		return "the attempt is over, and the status has a copy"
	case !slices.Contains(outcomes(c.before), outcome):
		return fmt.Sprintf("the attempt cannot end with %s, only with one of %v", outcome, outcomes(c.before))
	}
	return ""
}

// outcomes are those with which the attempt of d can end without the end of the job.
func outcomes(d *v1alpha1.Dispatch) []v1alpha1.Outcome {
	always := []v1alpha1.Outcome{v1alpha1.OutcomeNameConflict, v1alpha1.OutcomeWorkerLost}
	switch {
	case record.StateOf(d) == record.Lost:
		return []v1alpha1.Outcome{v1alpha1.OutcomeWorkerLost} // Nobody can have asked the worker.
	case d.Spec.Eviction != nil:
		return append(always, v1alpha1.Outcome(d.Spec.Eviction.Reason))
	case d.WasCopied():
		return append(always, v1alpha1.OutcomeCopyDeleted)
	default:
		return append(always, v1alpha1.OutcomeRejected, v1alpha1.OutcomeJobChanged, v1alpha1.OutcomeCopyDeleted) // The copy was never reported.
	}
}

// finished: the status has the outcome once, and it is the job's.
func finished(c change) string {
	outcome, wrong := ending(c, v1alpha1.DispatchFinished)
	switch {
	case wrong != "":
		return wrong
	case outcome != v1alpha1.OutcomeComplete && outcome != v1alpha1.OutcomeFailed:
		return fmt.Sprintf("a job does not finish with %s", outcome)
	case !c.after.WasCopied():
		return "a job has finished without a copy"
	}
	return ""
}

// ending is how the attempt ended by the condition of this type, with which the history has to agree.
func ending(c change, condition string) (outcome v1alpha1.Outcome, wrong string) {
	status := c.after.Status
	for _, trouble := range []string{v1alpha1.DispatchEvicting, v1alpha1.DispatchWorkerLost} {
		if meta.FindStatusCondition(status.Conditions, trouble) != nil {
			return "", "the attempt is over, and the status still has the condition " + trouble
		}
	}
	outcome = v1alpha1.Outcome(meta.FindStatusCondition(status.Conditions, condition).Reason)
	last := status.History[len(status.History)-1]
	if last.Attempt != c.after.Spec.Attempt || last.Cluster != c.after.Spec.Cluster || last.Outcome != outcome {
		return "", fmt.Sprintf("the history says that attempt %d on %q ended with %s, and the conditions say attempt %d on %q with %s",
			last.Attempt, last.Cluster, last.Outcome, c.after.Spec.Attempt, c.after.Spec.Cluster, outcome)
	}
	return outcome, ""
}
