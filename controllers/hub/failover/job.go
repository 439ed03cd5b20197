// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// jobState is what is to be done about a Dispatch of a worker that is away.
type jobState int

const (
	// leave: nothing.
	leave jobState = iota
	// hold: say that the job stays, and why.
	hold
	// answered: say that the job stays because something at its worker's address has answered since contact was lost.
	answered
	// pausing: say that nothing is moved while so many workers are lost.
	pausing
	// fencing: say that the job moves when the worker's agent must have stopped it.
	fencing
	// end: end the attempt, so that the job is placed anew.
	end
	// note: the attempt was ended, and no Tombstone says yet what the worker may still have of it.
	note
	// pending: say for whom the deletion waits.
	pending
	// discard: the job is gone, so delete the Dispatch.
	discard
	// release: let the deleted Dispatch go, against a Tombstone.
	release
)

// String names the state, for logs and tests.
func (s jobState) String() string {
	return [...]string{"leave", "hold", "answered", "pausing", "fencing", "end", "note", "pending", "discard", "release"}[s]
}

// reason of the condition WorkerLost that says so, empty if none does.
func (s jobState) reason() string {
	return [...]string{
		hold: v1alpha1.ReasonHold, answered: v1alpha1.ReasonAddressAnswers, pausing: v1alpha1.ReasonFailoverPaused,
		fencing: v1alpha1.ReasonFencing, pending: v1alpha1.ReasonDeletionPending, release: "",
	}[s]
}

// fence is what is known of the stop of the fenced copies on a worker.
type fence struct {
	// silent is true if no connection to the worker's address could be made during the whole outage. If anything answers there, its API
	// server may be down while its pods run on, and its agent can stop nothing.
	silent bool
	// untried is true while that is not known yet.
	untried bool
	// stoppedAt is when they must have stopped. Zero: no agent was alive when the worker was last seen.
	stoppedAt time.Time
}

// jobObservation is what the decision about a Dispatch depends on.
type jobObservation struct {
	dispatch *v1alpha1.Dispatch
	// job is nil if it is gone.
	job *unstructured.Unstructured
	// worker is how it is with the cluster on which the job was placed, since when it is away (zero if that is not known), and the
	// reason of its Ready condition.
	worker workerState
	since  time.Time
	reason string
	fence  fence
	// hasTombstone is true if a Tombstone says what the worker may have of the job.
	hasTombstone bool
	// deletionGrace is how long a deletion waits for a worker that is away.
	deletionGrace time.Duration
}

// decision about a Dispatch.
type decision struct {
	do jobState
	// words for the owner of the job.
	words string
	// again is when to look again if nothing happens. Zero: never.
	again time.Time
}

// decide says what is to be done about a Dispatch.
func (f *jobObservation) decide(now time.Time) decision {
	if f.worker <= withinGrace {
		return decision{do: leave}
	}
	if !f.jobStays() {
		return f.decideDeletion(now)
	}
	switch record.StateOf(f.dispatch) {
	case record.Leaving:
		return f.decideEviction(now)
	case record.Ended:
		if record.IsGivenUp(f.dispatch) && !f.hasTombstone {
			return decision{do: note}
		}
	case record.Placed, record.Copied, record.Evicting, record.Lost:
		if trainjobs.Terminal(f.job) == nil {
			return f.decideLoss(now)
		}
		// mirror says Finished when the worker is back.
	case record.None, record.Waiting, record.Finished:
	}
	return decision{do: leave}
}

// decideEviction is for a Dispatch that somebody has deleted, of a job that stays. The job is placed anew when its
// attempt has ended.
func (f *jobObservation) decideEviction(now time.Time) decision {
	attempt := record.AttemptOf(f.dispatch)
	switch {
	case trainjobs.Terminal(f.job) != nil, attempt == record.Ended:
		return f.decideDeletion(now)
	case attempt == record.Finished:
		return decision{do: leave}
	}
	decided := f.decideLoss(now)
	if decided.do == end {
		decided.do = release
	}
	return decided
}

// decideLoss is for a job that goes on, here or elsewhere.
func (f *jobObservation) decideLoss(now time.Time) decision {
	d := f.dispatch
	worker := d.Spec.Cluster
	switch f.worker {
	case forgotten:
		return decision{do: end, words: forgottenWords(worker)}
	case gone:
		return decision{do: hold, words: goneWords(d)}
	case elsewhere:
		return decision{do: hold, words: elsewhereWords(d)}
	case unclear:
		// It is not lost. What was said before, when it was, has to be put right, but not for the moment of connecting.
		if record.LostCondition(d) == nil || f.reason == v1alpha1.ReasonConnecting || f.reason == v1alpha1.ReasonUnreachable {
			return decision{do: leave}
		}
		return decision{do: hold, words: unusableWords(worker, f.reason)}
	case paused:
		return decision{do: pausing, words: pausingWords(worker)}
	case notLost, withinGrace, lost:
	}
	switch d.Spec.Failover {
	case v1alpha1.FailoverImmediate:
		return decision{do: end, words: immediateWords(worker)}
	case v1alpha1.FailoverFenced:
		return f.decideFenced(now)
	case v1alpha1.FailoverHold:
	}
	return decision{do: hold, words: holdWords(worker)}
}

// decideFenced ends an attempt only if it has been said before, and seen, that the worker is lost: mirror takes that back, with a write
// of its own, before it does anything for a job whose worker has returned, and of the two writes only one succeeds.
func (f *jobObservation) decideFenced(now time.Time) decision {
	worker := f.dispatch.Spec.Cluster
	said := record.LostCondition(f.dispatch)
	// The whole outage must have been silent. The condition remembers what an earlier process saw.
	hasAnswered := isAnswer(said, worker)
	switch {
	case f.fence.untried && !hasAnswered:
		return decision{do: leave} // The first attempt to connect wakes us. An answer that nobody has seen must not be written.
	case hasAnswered, !f.fence.silent:
		return decision{do: answered, words: answeredWords(worker)}
	case f.fence.stoppedAt.IsZero():
		return decision{do: hold, words: noAgentWords(worker)}
	case said == nil, now.Before(f.fence.stoppedAt):
		return decision{do: fencing, words: fencingWords(worker), again: f.fence.stoppedAt}
	default:
		return decision{do: end, words: fencedWords(worker)}
	}
}

// isAnswer is true if the condition WorkerLost says that something at the worker's address has answered during this outage.
func isAnswer(said *metav1.Condition, worker v1alpha1.ClusterName) bool {
	return said != nil && (said.Reason == v1alpha1.ReasonAddressAnswers || isFormerAnswer(said, worker))
}

// decideDeletion is for a Dispatch whose job will not run again. Its copy waits for the worker, but not for ever.
func (f *jobObservation) decideDeletion(now time.Time) decision {
	d := f.dispatch
	switch {
	case d.DeletionTimestamp == nil:
		return decision{do: discard}
	case !record.IsGuarded(d):
		return decision{do: leave}
	case f.worker == forgotten, record.AttemptOf(d) == record.Ended:
		return decision{do: release}
	}
	due := d.DeletionTimestamp.Time
	if f.since.After(due) {
		due = f.since
	}
	due = due.Add(f.deletionGrace)
	if now.Before(due) {
		return decision{do: pending, words: pendingWords(d), again: due}
	}
	return decision{do: release}
}

// jobStays is true if the hub TrainJob is there and is not going.
func (f *jobObservation) jobStays() bool {
	return f.job != nil && f.job.GetDeletionTimestamp() == nil && f.job.GetUID() == f.dispatch.Spec.TrainJob.UID
}

// isSaid is true if the Dispatch says already what has been decided.
func (f *jobObservation) isSaid(decided decision) bool {
	said := record.LostCondition(f.dispatch)
	return said != nil && said.Reason == decided.do.reason() && said.Message == decided.words &&
		(f.dispatch.Status.Phase == v1alpha1.PhaseWorkerLost || f.dispatch.IsFinished())
}
