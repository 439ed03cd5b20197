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

// jobState is what to do about a Dispatch of a worker that is away.
type jobState int

const (
	// leave: do nothing.
	leave jobState = iota
	// hold: say that the job stays, and why.
	hold
	// answered: say that the job stays because something has answered at the worker's address since contact was lost.
	answered
	// pausing: say that no job moves while so many workers are lost.
	pausing
	// fencing: say that the job moves when the worker's agent must have stopped its copy.
	fencing
	// end: end the attempt, so that the job is placed again.
	end
	// note: the attempt has ended. Write the Tombstone that is missing.
	note
	// pending: say for what the deletion waits.
	pending
	// discard: delete the Dispatch, because its job is gone.
	discard
	// release: write a Tombstone, and let the deleted Dispatch go.
	release
)

// String names the state, for logs and tests.
func (s jobState) String() string {
	return [...]string{"leave", "hold", "answered", "pausing", "fencing", "end", "note", "pending", "discard", "release"}[s]
}

// reason is the reason of the condition WorkerLost for this state, empty if the state writes no condition.
func (s jobState) reason() string {
	return [...]string{
		hold: v1alpha1.ReasonHold, answered: v1alpha1.ReasonAddressAnswers, pausing: v1alpha1.ReasonFailoverPaused,
		fencing: v1alpha1.ReasonFencing, pending: v1alpha1.ReasonDeletionPending, release: "",
	}[s]
}

// agentStop is what is known about the stop of the fenced copies on a worker.
type agentStop struct {
	// silent: no connection to the worker's address was possible during the whole outage. If anything answers there, the
	// API server may be down while pods run on, and then the agent cannot stop them.
	silent bool
	// untried: it is not yet known whether silent is true.
	untried bool
	// at is when the copies must have stopped. Zero: no agent was alive when the worker was last seen.
	at time.Time
}

// jobObservation has everything that the decision about a Dispatch depends on.
type jobObservation struct {
	dispatch *v1alpha1.Dispatch
	// job is nil if the hub has no such TrainJob.
	job *unstructured.Unstructured
	// worker is the state of the cluster on which the job was placed. since is since when it is away, zero if that is not
	// known. reason is the reason of its Ready condition.
	worker workerState
	since  time.Time
	reason string
	stop   agentStop
	// hasTombstone: a Tombstone names the copy that the worker may have.
	hasTombstone bool
	// deletionGrace is how long a deletion waits for a lost worker.
	deletionGrace time.Duration
}

// showReports brings to the status of the Dispatch what the hub TrainJob shows of the run of the copy: the status of the
// TrainJob goes before the attempt ends.
func (f *jobObservation) showReports(status *v1alpha1.DispatchStatus, now time.Time) {
	if !record.JobStays(f.dispatch, f.job) || !record.AttemptOf(f.dispatch).Live() || f.dispatch.DeletionTimestamp != nil {
		return
	}
	if progress := trainjobs.ProgressOf(f.job); progress != nil {
		status.Progress = progress
	}
	if status.FirstRunningTime == nil && trainjobs.HasTrained(f.job) {
		status.FirstRunningTime = &metav1.Time{Time: now.Truncate(time.Second)}
	}
}

type decision struct {
	do jobState
	// words are the message for the owner of the job.
	words string
	// again is when to look again if nothing happens. Zero: never.
	again time.Time
}

func (f *jobObservation) decide(now time.Time) decision {
	if f.worker <= withinGrace {
		return decision{do: leave}
	}
	if !record.JobStays(f.dispatch, f.job) {
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
		// mirror writes Finished when the worker is back.
	case record.None, record.Waiting, record.GivenUp, record.Finished:
	}
	return decision{do: leave}
}

// decideEviction decides about a deleted Dispatch whose job stays. After its attempt ends the job is placed again.
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

// decideLoss decides about a job that has not ended: it stays on this worker, or moves to another worker. Once the
// condition WorkerLost says that something has answered at the worker's address, the condition keeps that reason until
// the worker itself answers: a later process cannot know it otherwise.
func (f *jobObservation) decideLoss(now time.Time) decision {
	decided := f.decideByWorker(now)
	if f.isAnswerOnRecord() && (decided.do == hold || decided.do == pausing) {
		decided.do = answered
	}
	return decided
}

func (f *jobObservation) decideByWorker(now time.Time) decision {
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
		if f.reason == v1alpha1.ReasonTrainJobAPIMissing {
			return decision{do: hold, words: noTrainJobsWords(worker)} // The Dispatch would go on saying that the job runs.
		}
		// The worker is not lost. The condition of an earlier loss is corrected, but not in the short time of connecting.
		if record.LostCondition(d) == nil || f.reason == v1alpha1.ReasonConnecting || f.reason == v1alpha1.ReasonUnreachable {
			return decision{do: leave}
		}
		return decision{do: hold, words: unusableWords(worker, f.reason)}
	case paused:
		if d.Spec.Failover == v1alpha1.FailoverFenced && f.hasAnswered() {
			return decision{do: answered, words: answeredWords(worker)} // The job does not move after the pause either.
		}
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
	return decision{do: hold, words: holdWords(d)}
}

// decideFenced ends an attempt only if this process has read WorkerLost in the Dispatch. If the worker returns, mirror
// first removes WorkerLost with a write of the Dispatch. So if both write, one of the writes fails with Conflict.
func (f *jobObservation) decideFenced(now time.Time) decision {
	worker := f.dispatch.Spec.Cluster
	said := record.LostCondition(f.dispatch)
	switch {
	case f.hasAnswered():
		return decision{do: answered, words: answeredWords(worker)}
	case f.stop.untried:
		// The first try to connect wakes us. Nobody has seen an answer yet, so none may be written.
		return decision{do: leave}
	case f.stop.at.IsZero():
		return decision{do: hold, words: noAgentWords(worker)}
	case said == nil, now.Before(f.stop.at):
		return decision{do: fencing, words: fencingWords(worker), again: f.stop.at}
	default:
		return decision{do: end, words: fencedWords(worker)}
	}
}

// hasAnswered is true if something has answered at the worker's address during this outage, so that the outage was not
// silent. It is for Fenced jobs: observeStop finds out nothing for other jobs.
func (f *jobObservation) hasAnswered() bool {
	return f.isAnswerOnRecord() || !f.stop.untried && !f.stop.silent
}

// isAnswerOnRecord is true if the condition WorkerLost says that something has answered. An earlier process may have
// seen that answer.
func (f *jobObservation) isAnswerOnRecord() bool {
	said := record.LostCondition(f.dispatch)
	return said != nil && said.Reason == v1alpha1.ReasonAddressAnswers
}

// decideDeletion decides about a Dispatch whose job will not run again. It waits for the worker, but not for ever.
func (f *jobObservation) decideDeletion(now time.Time) decision {
	d := f.dispatch
	switch {
	case d.DeletionTimestamp == nil:
		return decision{do: discard}
	case !record.IsGuarded(d):
		return decision{do: leave}
	case f.worker == forgotten, record.AttemptOf(d) == record.Ended:
		return decision{do: release}
	case f.worker == gone && record.AttemptOf(d) == record.Finished:
		return decision{do: release} // Nothing runs there, and nobody is known who could delete the copy sooner.
	}
	due := d.DeletionTimestamp.Time
	if f.since.After(due) {
		due = f.since
	}
	due = due.Add(f.deletionGrace)
	if now.Before(due) {
		return decision{do: pending, words: f.pendingWords(), again: due}
	}
	return decision{do: release}
}

// isReported is true if the Dispatch already says what was decided.
func (f *jobObservation) isReported(decided decision) bool {
	said := record.LostCondition(f.dispatch)
	return said != nil && said.Reason == decided.do.reason() && said.Message == decided.words &&
		(f.dispatch.Status.Phase == v1alpha1.PhaseWorkerLost || f.dispatch.IsFinished())
}
