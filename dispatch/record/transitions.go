// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import "slices"

// Writer is who makes a write: a controller of the manager, or somebody with kubectl.
type Writer string

const (
	placement         Writer = "placement"
	mirror            Writer = "mirror"
	failover          Writer = "failover"
	moves             Writer = "moves"
	garbageCollection Writer = "garbagecollection"
	// anybody may delete a Dispatch, or take back an eviction.
	anybody Writer = "anybody"
)

// Change is what a write changes. Package test/laws has the rules for the exported ones. All others decide nothing:
// neither another attempt nor an eviction comes with them.
type Change string

// Changes that decide something.
const (
	NewAttempt    Change = "spec.cluster, clusterID, attempt+1, podSets, counted, priority, failover, localQueue; eviction goes; the finalizer"
	Adoption      Change = "spec.cluster, clusterID, attempt, failover and localQueue of the copy; eviction goes; the finalizer"
	EvictionAsked Change = "spec.eviction"
	AttemptOver   Change = "status: Mirrored=False with the outcome, history; copyUID, Evicting and WorkerLost go"
	JobOver       Change = "status: Finished=True, history; Evicting and WorkerLost go"

	firstRecord       Change = "the Dispatch without a worker"
	whyItWaits        Change = "spec.priority, podSets; status: Placed=False, explanation"
	copyShown         Change = "status: Placed=True, Mirrored=True, phase Running, copyUID, steps, restarts; Evicting=True goes"
	jobGivenUp        Change = "status: Placed=False/GivenUp with why the job waited, explanation"
	givenUpShown      Change = "status: Finished=True/GivenUp, phase Finished"
	stayShown         Change = "status: Evicting=False"
	heldBackShown     Change = "status: Mirrored=Unknown"
	stopping          Change = "status: Evicting=True, phase Evicting"
	evictionTakenBack Change = "spec.eviction goes"
	workerLost        Change = "status: WorkerLost=True with what is done about it, phase WorkerLost"
	foundAgain        Change = "status: WorkerLost goes, phase as before"
	backToWaiting     Change = "spec.cluster, clusterID, counted, failover, localQueue, eviction and the finalizer go"
	refusedWrite      Change = "status: WriteRefused=True"
	deletion          Change = "metadata.deletionTimestamp"
	deletionAwaited   Change = "status: WorkerLost=True/DeletionPending"
	guardRemoved      Change = "the finalizer goes"
	removal           Change = "deletes it"
)

// Transition is a row of the table of writes.
type Transition struct {
	// From are the states before the write, To the states after it. Without To the state stays.
	From, To []State
	// Event is why it is made.
	Event string
	// Writer makes it.
	Writer Writer
	// Changes is what it changes.
	Changes Change
	// Promise is what makes it safe.
	Promise string
}

// What several transitions have in common.
const (
	recordBeforeAct = "the decision is on the API server before a worker is touched"
	acceptedFirst   = recordBeforeAct + "; jobs are preempted when the worker has accepted the other copy by a dry run"
	nothingRuns     = "the worker was asked: there is no copy, none will be made, and no pod of one is alive"
	mustHaveStopped = "after the grace period: Fenced when the copy must have stopped, Immediate and forgotten workers at once"
	endIsFinal      = "the TrainJob says the end first, and an end is final"
	oneAttempt      = "that there is a later attempt says that all before it have ended"
	answers         = "before anything is done there, and not if the attempt was given up"
	runsOn          = "a copy that was not deleted runs on"
	copyGoesFirst   = "the finalizer holds the record until the copy and its pods are gone, or a Tombstone remembers them"
	nothingExists   = "no attempt is live, no Tombstone says that a worker may have a copy, and no unknown copy has the name"
	onlySaid        = "says what is known, decides nothing"
)

// Why a job is evicted, or moves without an end. The reasons of evictions are rows of Endings.
const (
	hasToLeave = "its worker is drained, or does not let it run"
	toMakeRoom = "it makes room for a job of higher priority, is suspended, or MultiKueue dispatches it now"
	unfitCopy  = "the copy cannot be changed back, or the worker's Kueue will not admit it"
	laterCopy  = "a copy of a later attempt was found, as after a restore"
)

type list []State

// Transitions returns the table: all writes that change what a Dispatch says. Lines between the same two states are
// alternatives.
func Transitions() []Transition {
	return []Transition{
		{list{None}, list{Waiting}, "the job fits nowhere", placement, firstRecord, recordBeforeAct},
		{list{Waiting}, nil, "what the job needs, or lacks, changes", placement, whyItWaits, onlySaid},
		{list{Ended}, nil, "the next decision is refused", placement, refusedWrite, onlySaid},
		{list{Ended}, list{Waiting}, "the job fits nowhere, or is suspended", placement, backToWaiting, nothingRuns},
		{list{None, Waiting, Ended}, list{Placed}, "the job fits", placement, NewAttempt, recordBeforeAct},
		{list{None, Waiting, Placed, Copied, Evicting, Ended}, list{Placed}, laterCopy, garbageCollection, Adoption, oneAttempt},
		{list{Lost, Leaving}, nil, laterCopy, garbageCollection, Adoption, oneAttempt},

		{list{Placed}, nil, "another worker has a copy that is not on record", garbageCollection, heldBackShown, onlySaid},
		{list{Placed}, list{Copied}, "the copy exists for 10 s", mirror, copyShown, onlySaid},
		{list{Copied}, nil, "steps or restarts change", mirror, copyShown, onlySaid},

		{list{Placed, Copied}, nil, "it stays on a worker that is drained, or need not go any more", moves, stayShown, onlySaid},
		{list{Placed, Copied}, list{Evicting}, toMakeRoom, placement, EvictionAsked, acceptedFirst},
		{list{Placed, Copied}, list{Evicting}, hasToLeave, moves, EvictionAsked, recordBeforeAct},
		{list{Placed, Copied}, list{Evicting}, unfitCopy, mirror, EvictionAsked, recordBeforeAct},
		{list{Lost}, nil, toMakeRoom, placement, EvictionAsked, acceptedFirst},
		{list{Lost}, nil, hasToLeave, moves, EvictionAsked, recordBeforeAct},
		{list{Evicting}, nil, "the copy is being stopped", mirror, stopping, onlySaid},
		{list{Evicting}, list{Placed, Copied}, "the eviction is taken back", anybody, evictionTakenBack, runsOn},
		{list{Lost}, nil, "the eviction is taken back", anybody, evictionTakenBack, runsOn},

		{list{Placed, Copied, Evicting}, list{Lost}, "the grace period is over", failover, workerLost, onlySaid},
		{list{Lost}, nil, "something else is done about it", failover, workerLost, onlySaid},
		{list{Lost}, list{Placed, Copied, Evicting}, "the worker is back", mirror, foundAgain, answers},

		{list{Placed}, list{Ended}, "refused, the job has changed, or the copy was deleted", mirror, AttemptOver, nothingRuns},
		{list{Copied, Evicting}, list{Ended}, "the copy and its pods are gone", mirror, AttemptOver, nothingRuns},
		{list{Placed, Copied, Evicting, Lost}, list{Ended}, "the worker is lost", failover, AttemptOver, mustHaveStopped},
		{list{Placed, Copied, Evicting}, list{Finished}, "the copy has ended", mirror, JobOver, endIsFinal},
		{list{Ended}, list{Finished}, "the copy ended when it was given up", placement, JobOver, endIsFinal},

		{list{Waiting}, list{GivenUp}, "the job has waited for longer than giveUpAfter", placement, jobGivenUp, nothingExists},
		{list{GivenUp}, list{Finished}, "the TrainJob is Failed", placement, givenUpShown, endIsFinal},

		{list{Waiting}, list{None}, "the job is gone or has ended", placement, removal, "it guards nothing"},
		{list{GivenUp}, list{None}, "the job is gone", placement, removal, "it guards nothing"},
		{list{Finished}, list{None}, "the TrainJob or the Dispatch of a job that was given up is deleted", anybody, removal, "it guards nothing"},
		{list{Waiting, GivenUp}, list{Leaving}, "deleted with finalizers of others", anybody, deletion, "it guards nothing"},
		{
			list{Placed, Copied, Evicting, Lost, Ended, Finished}, list{Leaving},
			"the TrainJob or the Dispatch is deleted", anybody, deletion, copyGoesFirst,
		},
		{list{Leaving}, nil, "the copy waits for its worker", failover, deletionAwaited, onlySaid},
		{list{Leaving}, nil, "the copy is gone, other finalizers are not", mirror, guardRemoved, copyGoesFirst},
		{list{Leaving}, list{None}, "the copy is gone", mirror, guardRemoved, copyGoesFirst},
		{list{Leaving}, list{None}, "a Tombstone remembers the copy", failover, guardRemoved, copyGoesFirst},
	}
}

// Between returns the transitions that can lead from one state to the other.
func Between(from, to State) []Transition {
	return slices.DeleteFunc(Transitions(), func(t Transition) bool {
		leads := slices.Contains(t.To, to) || len(t.To) == 0 && from == to
		return !leads || !slices.Contains(t.From, from)
	})
}

// Next returns the states that one write can lead to, in order. A write that changes no state is not among them.
func (s State) Next() []State {
	return slices.DeleteFunc(States(), func(to State) bool { return to == s || len(Between(s, to)) == 0 })
}
