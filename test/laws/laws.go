// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package laws

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// laws hold for every write, whatever kind it is of.
var laws = []rule{
	oneWrite, oneJob, attemptNeverFalls, workerMovesAfterEnd, decisionStands, oneCopyAnAttempt, keepsGuard, givenUpHasNoCopy, endsAreFinal, historyGrows,
	phaseSaysEnd,
}

// oneWrite: spec and status need two requests, and each transition is one request. So it changes only one of the two.
func oneWrite(c change) string {
	if c.specChanged() && c.statusChanged() {
		return "spec and status have changed in one step"
	}
	return ""
}

// oneJob: a Dispatch belongs to one TrainJob.
func oneJob(c change) string {
	if c.specChanged() && c.before.Spec.TrainJob != c.after.Spec.TrainJob {
		return fmt.Sprintf("the TrainJob has changed from %+v to %+v", c.before.Spec.TrainJob, c.after.Spec.TrainJob)
	}
	return ""
}

// attemptNeverFalls: it is the fencing token. And nothing is reported of an attempt that has not been decided on.
func attemptNeverFalls(c change) string {
	switch {
	case c.after == nil:
	case c.before != nil && c.after.Spec.Attempt < c.before.Spec.Attempt:
		return fmt.Sprintf("spec.attempt has fallen from %d to %d", c.before.Spec.Attempt, c.after.Spec.Attempt)
	case c.before != nil && c.after.Status.Attempt < c.before.Status.Attempt:
		return fmt.Sprintf("status.attempt has fallen from %d to %d", c.before.Status.Attempt, c.after.Status.Attempt)
	case c.after.Status.Attempt > c.after.Spec.Attempt:
		return fmt.Sprintf("the status speaks of attempt %d, and the spec of %d", c.after.Status.Attempt, c.after.Spec.Attempt)
	}
	return ""
}

// workerMovesAfterEnd: a job leaves a worker only when its attempt has ended, and gets a worker only together with a
// higher attempt.
func workerMovesAfterEnd(c change) string {
	if !c.specChanged() || c.isAdoption() {
		return ""
	}
	before, after := c.before.Spec, c.after.Spec
	moved := before.Cluster != after.Cluster || before.ClusterID != after.ClusterID
	switch {
	case moved && before.Cluster != "" && c.from != record.Ended:
		return fmt.Sprintf("the job has left worker %q before the attempt there had ended", before.Cluster)
	case moved && after.Cluster != "" && after.Attempt <= before.Attempt:
		return fmt.Sprintf("worker %q was chosen without a higher attempt", after.Cluster)
	case after.Attempt != before.Attempt && c.from != record.Ended && c.from != record.Waiting:
		return fmt.Sprintf("attempt %d has begun before attempt %d had ended", after.Attempt, before.Attempt)
	}
	return ""
}

// decisionStands: for an attempt on a worker, only the eviction is decided later. It is decided once, and may be taken
// back.
func decisionStands(c change) string {
	if !c.specChanged() || c.before.Spec.Cluster == "" || c.before.Spec.Attempt != c.after.Spec.Attempt || c.after.Spec.Cluster == "" {
		return ""
	}
	before, after := c.before.Spec, c.after.Spec
	if before.Eviction != nil && after.Eviction != nil {
		return "an eviction was replaced by another"
	}
	before.Eviction, after.Eviction = nil, nil
	if !equality.Semantic.DeepEqual(before, after) {
		return "the decision was changed without a new attempt"
	}
	return ""
}

// oneCopyAnAttempt: no second copy is made in the name of an attempt.
func oneCopyAnAttempt(c change) string {
	if !c.statusChanged() || c.before.Status.Attempt != c.after.Status.Attempt {
		return ""
	}
	if before, after := c.before.Status.CopyUID, c.after.Status.CopyUID; before != "" && after != "" && before != after {
		return fmt.Sprintf("attempt %d has two copies, %s and %s", c.after.Status.Attempt, before, after)
	}
	return ""
}

// keepsGuard: a Dispatch that names a worker does not go before its copy.
func keepsGuard(c change) string {
	if c.after != nil && c.to != record.Leaving && c.after.Spec.Cluster != "" && !record.IsGuarded(c.after) {
		return "it names a worker and has no finalizer " + v1alpha1.FinalizerCopy
	}
	if c.to == record.None && c.from != record.Leaving && record.IsGuarded(c.before) {
		return "it has gone although it had the finalizer " + v1alpha1.FinalizerCopy
	}
	return ""
}

// historyGrows: the history grows by one entry when an attempt ends, and never otherwise. The oldest entries are
// dropped first, but not the last attempt that ran. Metrics that past attempts reported may go.
func historyGrows(c change) string {
	if !c.statusChanged() {
		return ""
	}
	before, after := c.before.Status.History, c.after.Status.History
	ends := (c.to == record.Ended || c.to == record.Finished && c.from != record.GivenUp) && c.from != c.to
	switch {
	case !ends && !equality.Semantic.DeepEqual(before, after):
		return "the history has changed although no attempt has ended"
	case ends && len(after) == 0:
		return "the history does not have the end of the attempt"
	case ends && slices.ContainsFunc(before, ran) && !slices.ContainsFunc(after, ran):
		return "the history has forgotten the last attempt that ran"
	case ends && !isRest(withoutReports(before), withoutReports(after[:len(after)-1])):
		return "the history has forgotten, or made up, past attempts"
	}
	return ""
}

// isRest is true if rest is history without its oldest entries. If the first of rest ran, and no other one of rest did, it
// may stay although later entries are dropped.
func isRest(history, rest []v1alpha1.Attempt) bool {
	if isTail(history, rest) {
		return true
	}
	return len(rest) > 0 && ran(rest[0]) && !slices.ContainsFunc(rest[1:], ran) && isTail(history, rest[1:]) &&
		slices.ContainsFunc(history, func(a v1alpha1.Attempt) bool { return equality.Semantic.DeepEqual(a, rest[0]) })
}

func ran(a v1alpha1.Attempt) bool { return a.FirstRunningTime != nil }

// isTail is true if tail is history without its oldest entries.
func isTail(history, tail []v1alpha1.Attempt) bool {
	return len(tail) <= len(history) && equality.Semantic.DeepEqual(history[len(history)-len(tail):], tail)
}

// withoutReports is a history without the metrics of attempts.
func withoutReports(history []v1alpha1.Attempt) []v1alpha1.Attempt {
	bare := slices.Clone(history)
	for i := range bare {
		if bare[i].Progress != nil {
			bare[i].Progress = bare[i].Progress.DeepCopy()
			bare[i].Progress.Metrics = nil
		}
	}
	return bare
}

// givenUpHasNoCopy: a job is given up only where no attempt is live, and gets no worker after that.
func givenUpHasNoCopy(c change) string {
	switch {
	case c.to == record.GivenUp && c.from != record.Waiting && c.from != record.GivenUp:
		return "a job is given up that does not wait"
	case c.from == record.GivenUp && c.after != nil && c.specChanged():
		return "the spec has changed after the job was given up"
	}
	return ""
}

// phaseSaysEnd: a manager that starts reads Dispatches of the phase Finished last, so no other may have it, and those that
// have finished have it from the same write on.
func phaseSaysEnd(c change) string {
	if c.after == nil {
		return ""
	}
	switch inPhase := c.after.Status.Phase == v1alpha1.PhaseFinished; {
	case inPhase && !c.after.IsFinished():
		return "the phase is Finished, and the Dispatch has not finished"
	case !inPhase && c.to == record.Finished:
		return fmt.Sprintf("the Dispatch has finished, and the phase is %q", c.after.Status.Phase)
	}
	return ""
}

// endsAreFinal: nothing is decided or reported about a Dispatch that has finished or is being deleted, except what its
// deletion waits for.
func endsAreFinal(c change) string {
	if c.after == nil || c.from != record.Finished && c.from != record.Leaving {
		return ""
	}
	if c.specChanged() && (c.from == record.Finished || !c.isAdoption()) {
		return "the spec has changed after the end"
	}
	before, after := *c.before.Status.DeepCopy(), *c.after.Status.DeepCopy()
	if c.from == record.Leaving {
		for _, status := range []*v1alpha1.DispatchStatus{&before, &after} {
			status.Phase, status.Reason = "", ""
			meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchWorkerLost)
			meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchWriteRefused)
		}
	}
	if !equality.Semantic.DeepEqual(before, after) {
		return "the status has changed after the end"
	}
	return ""
}
