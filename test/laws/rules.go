// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package laws

import (
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// allows returns what is wrong with a change if it is to be this transition. The laws hold before.
func allows(transition record.Transition, c change) string {
	switch transition.Changes {
	case record.NewAttempt:
		return placed(c)
	case record.Adoption:
		return adopted(c)
	case record.EvictionAsked:
		return evicted(c, transition.Writer)
	case record.AttemptOver:
		return over(c)
	case record.JobOver:
		return finished(c)
	default:
		return decidesNothing(c)
	}
}

// decidesNothing: neither another attempt nor an eviction comes with it. A copy that is said to exist has a UID.
func decidesNothing(c change) string {
	switch {
	case c.to == record.None, c.to == record.Leaving:
		return "" // The laws say what may still change.
	case c.before != nil && c.after.Spec.Attempt != c.before.Spec.Attempt:
		return "the attempt has changed"
	case c.after.Spec.Eviction != nil && (c.before == nil || c.before.Spec.Eviction == nil):
		return "an eviction was written"
	case c.to == record.Copied && c.after.Status.CopyUID == "":
		return "there is a copy without a UID"
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

// evicted: for a reason of this writer.
func evicted(c change, writer record.Writer) string {
	eviction := c.after.Spec.Eviction
	switch {
	case eviction == nil:
		return "there is no eviction"
	case record.EndingOf(eviction.Reason).Evictor != writer:
		return fmt.Sprintf("%s does not evict for %s", writer, eviction.Reason)
	}
	return ""
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
	case !mayEnd(c, outcome):
		return fmt.Sprintf("the attempt cannot end with %s", outcome)
	}
	return ""
}

// mayEnd is true if the attempt can end so without the end of the job: for its eviction, or without one.
func mayEnd(c change, outcome v1alpha1.Outcome) bool {
	eviction := c.before.Spec.Eviction
	asked := c.from == record.Evicting && eviction != nil && v1alpha1.Outcome(eviction.Reason) == outcome
	return asked || c.from <= record.EndingOf(outcome).Until
}

// finished: the status has the outcome once, and it is the job's.
func finished(c change) string {
	outcome, wrong := ending(c, v1alpha1.DispatchFinished)
	switch {
	case wrong != "":
		return wrong
	case !record.EndingOf(outcome).Finishes:
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

// Check returns nil if the API server may show the step from before to after: no change, or one transition of the
// table. Nil stands for no Dispatch. A Dispatch with another UID is another Dispatch: the first is gone, and the second
// was created.
func Check(before, after *v1alpha1.Dispatch) error {
	if before != nil && after != nil && before.UID != after.UID {
		return errors.Join(Check(before, nil), Check(nil, after))
	}
	c := change{before: before, after: after, from: record.StateOf(before), to: record.StateOf(after)}
	if c.saysNothing() {
		return nil
	}
	for _, law := range laws {
		if wrong := law(c); wrong != "" {
			return c.error(wrong)
		}
	}
	wrong := "there is no such transition"
	for _, transition := range record.Between(c.from, c.to) {
		if wrong = allows(transition, c); wrong == "" {
			return nil
		}
	}
	return c.error(wrong)
}

// change is one step of a Dispatch.
type change struct {
	before, after *v1alpha1.Dispatch
	from, to      record.State
}

// rule returns what is wrong with a change, empty if nothing is.
type rule func(change) string

func (c change) error(wrong string) error {
	d := c.after
	if d == nil {
		d = c.before
	}
	return fmt.Errorf("dispatch %s/%s, attempt %d, from %s to %s: %s", d.Namespace, d.Name, d.Spec.Attempt, c.from, c.to, wrong)
}

// saysNothing is true if spec, status, state and our finalizer are unchanged. Everybody may write labels and the like.
func (c change) saysNothing() bool {
	if c.before == nil || c.after == nil {
		return c.before == c.after
	}
	return !c.specChanged() && !c.statusChanged() && c.from == c.to && record.IsGuarded(c.before) == record.IsGuarded(c.after)
}

func (c change) specChanged() bool {
	return c.before != nil && c.after != nil && !equality.Semantic.DeepEqual(c.before.Spec, c.after.Spec)
}

func (c change) statusChanged() bool {
	return c.before != nil && c.after != nil && !equality.Semantic.DeepEqual(c.before.Status, c.after.Status)
}

// isAdoption is true if the spec has got a later attempt with which a copy was found.
func (c change) isAdoption() bool {
	return c.after != nil && record.IsAdopted(c.after) &&
		c.after.Spec.Cluster != "" && (c.before == nil || c.after.Spec.Attempt > c.before.Spec.Attempt)
}
