// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Limits of the CRD.
const (
	historyLimit = 16
	refusalLimit = 1000
)

// Why says why a job is not placed.
type Why struct {
	// Reason is one of the condition Placed. Message is for the owner of the job.
	Reason, Message string
	// Explanation is what each worker lacks, empty if workers make no difference.
	Explanation []v1alpha1.ClusterExplanation
	// Pauses is true if the job is off the waiting list because no worker could take it. Then the time that it has waited counts
	// when it comes back.
	Pauses bool
}

// Wait says that the job waits, and why. The time of the condition Placed is when the job came onto the waiting list.
// So the time begins anew when a reason that keeps the job off the list is over.
func Wait(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, why Why, now time.Time) {
	status.Phase, status.Reason, status.Explanation = v1alpha1.PhaseWaiting, why.Reason, why.Explanation
	status.Cluster, status.CopyUID = "", ""
	off, wasOff := v1alpha1.ReasonKindOf(why.Reason).KeepsOffList(), isOffList(status)
	resets := wasOff && !WaitsFor(status, why.Reason) || off && !wasOff && why.Pauses
	switch {
	case off && !why.Pauses:
		status.WaitingSince = nil // The time off the list does not count.
	case resets:
		keepWaitingSince(status, now)
	}
	if resets {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchPlaced)
	}
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionFalse, Reason: why.Reason, Message: why.Message,
	}, now)
}

// GiveUp says that the job gets no worker any more: the TrainJob becomes Failed. words say why.
func GiveUp(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, why Why, now time.Time) {
	status.Phase, status.Reason, status.Explanation = v1alpha1.PhaseWaiting, v1alpha1.ReasonGivenUp, why.Explanation
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonGivenUp, Message: why.Message,
	}, now)
}

// FinishGivenUp says that the TrainJob of a job that was given up has ended. end is the condition of the TrainJob that
// says how. What the workers lacked stays.
func FinishGivenUp(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, end *metav1.Condition, now time.Time) {
	clearAttemptConditions(status)
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonGivenUp, Message: end.Message,
	}, now)
	status.Phase, status.Reason, status.WaitingSince = v1alpha1.PhaseFinished, v1alpha1.ReasonGivenUp, nil
}

// WasGivenUp is true for a job that got no worker in time, also when its TrainJob says so.
func WasGivenUp(dispatch *v1alpha1.Dispatch) bool {
	return dispatch != nil && WaitsFor(&dispatch.Status, v1alpha1.ReasonGivenUp)
}

// isOffList says whether a reason keeps the job off the waiting list.
func isOffList(status *v1alpha1.DispatchStatus) bool {
	placed := meta.FindStatusCondition(status.Conditions, v1alpha1.DispatchPlaced)
	return placed != nil && placed.Status == metav1.ConditionFalse && v1alpha1.ReasonKindOf(placed.Reason).KeepsOffList()
}

// WaitingSince is since when a job has waited for a worker on which it runs, without the time in which the waiting has paused. It
// is zero if the job does not wait, or if the Dispatch does not say.
func WaitingSince(status *v1alpha1.DispatchStatus, now time.Time) time.Time {
	placed := meta.FindStatusCondition(status.Conditions, v1alpha1.DispatchPlaced)
	if since := status.WaitingSince; since != nil {
		if isOffList(status) {
			return since.Add(now.Sub(placed.LastTransitionTime.Time))
		}
		return since.Time
	}
	if placed == nil || placed.Status != metav1.ConditionFalse || v1alpha1.ReasonKindOf(placed.Reason).KeepsOffList() {
		return time.Time{}
	}
	return placed.LastTransitionTime.Time
}

// keepWaitingSince puts since when the job has waited where a change of the condition Placed does not lose it.
func keepWaitingSince(status *v1alpha1.DispatchStatus, now time.Time) {
	if since := WaitingSince(status, now); !since.IsZero() {
		status.WaitingSince = &metav1.Time{Time: since}
	}
	if isOffList(status) { // The pause is over, and must not count twice.
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchPlaced)
	}
}

// WaitsFor is true if the status says that the job waits for this reason.
func WaitsFor(status *v1alpha1.DispatchStatus, reason string) bool {
	said := meta.FindStatusCondition(status.Conditions, v1alpha1.DispatchPlaced)
	return said != nil && said.Status == metav1.ConditionFalse && said.Reason == reason
}

// End ends the attempt without the end of its job. message says why, in the worker's words.
func End(
	status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, outcome v1alpha1.Outcome, message string, now time.Time,
) {
	status.Cluster, status.Attempt, status.CopyUID = dispatch.Spec.Cluster, dispatch.Spec.Attempt, ""
	ClearProgress(status)
	clearAttemptConditions(status)
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionFalse, Reason: string(outcome), Message: message,
	}, now)
	if EndingOf(outcome).Refusal {
		addRefusal(status, dispatch.Spec.Cluster, outcome, message, now).Domain = refusingDomain(dispatch, outcome)
	}
	if keepWaitingSince(status, now); status.WaitingSince == nil || !EndingOf(outcome).NeverRan {
		status.WaitingSince = &metav1.Time{Time: now}
	}
	// The next attempt begins with these. The history, and Mirrored until there is a copy, say why the last attempt ended.
	status.Phase, status.Reason = v1alpha1.PhasePending, ""
	AddHistory(status, dispatch, outcome, message, now)
}

// Finish ends the attempt together with its job. end is the condition of the TrainJob that says how.
func Finish(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, end *metav1.Condition, now time.Time) {
	SetCopied(status, dispatch, now)
	clearAttemptConditions(status)
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue, Reason: end.Type, Message: end.Message,
	}, now)
	status.Phase, status.Reason, status.WaitingSince = v1alpha1.PhaseFinished, end.Type, nil
	AddHistory(status, dispatch, v1alpha1.Outcome(end.Type), end.Message, now) // Complete or Failed, as the outcomes are.
}

// SetWorkerLost says that the worker does not answer. reason, one of the condition WorkerLost, says what is done about
// it.
func SetWorkerLost(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, reason, message string, now time.Time) {
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchWorkerLost, Status: metav1.ConditionTrue, Reason: reason, Message: message,
	}, now)
	if !dispatch.IsFinished() {
		status.Phase, status.Reason = v1alpha1.PhaseWorkerLost, reason
		setHealthUnknown(status, dispatch, now)
	}
}

// ClearWorkerLost removes the condition WorkerLost, because the worker answers again, and restores the phase.
func ClearWorkerLost(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch) {
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchWorkerLost)
	switch {
	case dispatch.Spec.Eviction != nil:
		status.Phase, status.Reason = v1alpha1.PhaseEvicting, string(dispatch.Spec.Eviction.Reason)
	case dispatch.WasCopied():
		status.Phase, status.Reason = CopiedPhase(status, status), v1alpha1.ReasonCopied
	default:
		status.Phase, status.Reason = v1alpha1.PhasePending, ""
	}
}

// SetHeldBack says that no copy is created because another worker has one that the hub has no record of.
func SetHeldBack(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, message string, now time.Time) {
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionUnknown, Reason: v1alpha1.ReasonUnknownCopy,
		Message: message,
	}, now)
	status.Phase, status.Reason = v1alpha1.PhasePending, v1alpha1.ReasonUnknownCopy
}

// SetEvicting says that the attempt is being ended, for the reason of spec.eviction.
func SetEvicting(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, message string, now time.Time) {
	reason := string(dispatch.Spec.Eviction.Reason)
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchEvicting, Status: metav1.ConditionTrue, Reason: reason, Message: message,
	}, now)
	status.Phase, status.Reason = v1alpha1.PhaseEvicting, reason
}

// ClearEvicting removes Evicting=True, because the eviction was taken back in time. It leaves Evicting=False, which
// says that no other worker has room.
func ClearEvicting(status *v1alpha1.DispatchStatus) {
	if meta.IsStatusConditionTrue(status.Conditions, v1alpha1.DispatchEvicting) {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchEvicting)
	}
}

// SetNoRoomElsewhere says that the worker is being drained, and that the job fits on no other worker: Evicting=False.
func SetNoRoomElsewhere(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, message string, now time.Time) {
	meta.SetStatusCondition(&status.Conditions, metav1.Condition{
		Type: v1alpha1.DispatchEvicting, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoRoomElsewhere,
		ObservedGeneration: dispatch.Generation, LastTransitionTime: metav1.NewTime(now), Message: Cut(message, messageLimit),
	})
}

// HasNoRoomElsewhere is true if the Dispatch says that the job stays on a worker that is being drained, because it fits
// on no other worker.
func HasNoRoomElsewhere(dispatch *v1alpha1.Dispatch) bool {
	said := stays(dispatch)
	return said != nil && said.Reason != v1alpha1.ReasonAwaitingCheckpoint
}

// SetAwaitingCheckpoint says that the job leaves its worker when its process has saved another checkpoint. The time of
// the condition is when the wait began.
func SetAwaitingCheckpoint(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, message string, now time.Time) {
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchEvicting) // The time of another reason is not ours.
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchEvicting, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAwaitingCheckpoint, Message: message,
	}, now)
}

// AwaitsCheckpointSince is since when the job waits for another checkpoint before it leaves its worker, zero if it does
// not.
func AwaitsCheckpointSince(dispatch *v1alpha1.Dispatch) time.Time {
	if said := stays(dispatch); said != nil && said.Reason == v1alpha1.ReasonAwaitingCheckpoint {
		return said.LastTransitionTime.Time
	}
	return time.Time{}
}

// Stays is true if the Dispatch says why the job is still on a worker that is being drained.
func Stays(dispatch *v1alpha1.Dispatch) bool { return stays(dispatch) != nil }

// stays is the condition that says why a job is still on a worker that is being drained, nil if there is none.
func stays(dispatch *v1alpha1.Dispatch) *metav1.Condition {
	said := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchEvicting)
	if said == nil || said.Status != metav1.ConditionFalse {
		return nil
	}
	return said
}

// ClearNoRoomElsewhere removes the condition Evicting, because the job need not leave its worker any more.
func ClearNoRoomElsewhere(status *v1alpha1.DispatchStatus) {
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchEvicting)
}

// SetCopied says that the current attempt has a copy, or had one until it ended.
func SetCopied(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, now time.Time) {
	worker := dispatch.Spec.Cluster
	keepWaitingSince(status, now)
	status.Cluster, status.Attempt, status.Explanation = worker, dispatch.Spec.Attempt, nil
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonPlaced,
		Message: fmt.Sprintf("placed on worker %q", worker),
	}, now)
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonCopied,
		Message: fmt.Sprintf("the copy exists on worker %q", worker),
	}, now)
}

// SetQueued is SetCopied for a copy that a queue of the worker keeps suspended, for one of the reasons of PhaseQueued.
func SetQueued(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, reason, message string, now time.Time) {
	SetCopied(status, dispatch, now)
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue, Reason: reason, Message: message,
	}, now)
}

// SetDeletionRefused is SetCopied for a copy that the worker refuses to delete. words are the worker's.
func SetDeletionRefused(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, words string, now time.Time) {
	SetCopied(status, dispatch, now)
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDeletionRefused,
		Message: fmt.Sprintf("worker %q refuses to delete the copy: %s", dispatch.Spec.Cluster, words),
	}, now)
}

// SetAwaitingEnd is SetCopied for a copy that takes long to end after its deletion, or has left something. words say
// what keeps it.
func SetAwaitingEnd(status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, words string, now time.Time) {
	SetCopied(status, dispatch, now)
	SetCondition(status, dispatch, metav1.Condition{
		Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonAwaitingEnd,
		Message: fmt.Sprintf("the copy on worker %q has not ended yet: %s", dispatch.Spec.Cluster, words),
	}, now)
}

// EndHolder says in words what keeps the copy of a job that leaves its worker. It is empty if nothing is known.
func EndHolder(dispatch *v1alpha1.Dispatch) string {
	mirrored := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchMirrored)
	if mirrored == nil || mirrored.Reason != v1alpha1.ReasonAwaitingEnd && mirrored.Reason != v1alpha1.ReasonDeletionRefused {
		return ""
	}
	return mirrored.Message
}

// clearAttemptConditions removes the conditions that describe the attempt that is over: Evicting, Healthy, WorkerLost
// and WriteRefused.
func clearAttemptConditions(status *v1alpha1.DispatchStatus) {
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchHealthy)
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchEvicting)
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchWorkerLost)
	meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchWriteRefused)
}

// SetCondition sets a condition with type, status, reason and message. Its observedGeneration is the generation of the
// Dispatch.
func SetCondition(
	status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, condition metav1.Condition, now time.Time,
) {
	condition.ObservedGeneration = dispatch.Generation
	condition.LastTransitionTime = metav1.NewTime(now)
	condition.Message = Message(condition.Message)
	meta.SetStatusCondition(&status.Conditions, condition)
}

// AddHistory adds the end of the current attempt. If there are too many entries, it removes the oldest, but not the last
// attempt that ran.
func AddHistory(
	status *v1alpha1.DispatchStatus, dispatch *v1alpha1.Dispatch, outcome v1alpha1.Outcome, message string, now time.Time,
) {
	status.History = append(status.History, v1alpha1.Attempt{
		Attempt: dispatch.Spec.Attempt,
		Cluster: dispatch.Spec.Cluster,
		To:      metav1.NewTime(now),
		Outcome: outcome,
		Message: Shorten(message, messageLimit),
	})
	status.History = trimHistory(status.History)
}

// addRefusal counts a worker that ended an attempt without having run it.
func addRefusal(
	status *v1alpha1.DispatchStatus, worker v1alpha1.ClusterName, outcome v1alpha1.Outcome, message string, now time.Time,
) *v1alpha1.Refusal {
	at := slices.IndexFunc(status.Refusals, func(refusal v1alpha1.Refusal) bool { return refusal.Cluster == worker })
	if at < 0 {
		if len(status.Refusals) == refusalLimit {
			status.Refusals = status.Refusals[1:]
		}
		status.Refusals = append(status.Refusals, v1alpha1.Refusal{Cluster: worker})
		at = len(status.Refusals) - 1
	}
	refusal := &status.Refusals[at]
	refusal.Count++
	refusal.Outcome, refusal.Message, refusal.Last = outcome, Shorten(message, messageLimit), metav1.NewTime(now)
	return refusal
}

// refusingDomain is the domain that ended an attempt without having run it, nil if the worker did: only that a copy did
// not run in time says nothing of the other domains.
func refusingDomain(dispatch *v1alpha1.Dispatch, outcome v1alpha1.Outcome) *v1alpha1.Domain {
	if outcome != v1alpha1.OutcomeAdmissionTimeout {
		return nil
	}
	return dispatch.Spec.Domain.DeepCopy()
}

// messageLimit is the largest size of a message in a condition, an explanation or the history, in bytes.
const messageLimit = 1024

// NoteLimit is the largest size of an Event's note, in bytes.
const NoteLimit = 1024

// Message shortens a message to what a condition takes. So all controllers cut a message in the same way.
func Message(words string) string { return Shorten(words, messageLimit) }

// Shorten removes the white space around a text that comes from elsewhere, and cuts the text to a number of bytes.
func Shorten(words string, limit int) string { return Cut(strings.TrimSpace(words), limit) }

// Cut cuts a text to a number of bytes. Three of these are dots that show the cut. It cuts no letter in half.
func Cut(text string, limit int) string {
	if len(text) <= limit {
		return text
	}
	return strings.ToValidUTF8(text[:limit-3], "") + "..."
}
