// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package laws

import (
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// Writer is who makes a write: a controller of the manager, or somebody with kubectl.
type Writer string

// Writers.
const (
	Placement         Writer = "placement"
	Mirror            Writer = "mirror"
	Failover          Writer = "failover"
	Moves             Writer = "moves"
	GarbageCollection Writer = "garbagecollection"
	// Anybody may delete a Dispatch, or take back an eviction.
	Anybody Writer = "anybody"
)

// Transition is a kind of write.
type Transition struct {
	From, To record.State
	// Event is why it is made.
	Event string
	// Writer makes it.
	Writer Writer
	// Writes is what it changes.
	Writes string
	// Promise is what makes it safe.
	Promise string
	// allows returns what is wrong with a write from From to To, empty if it is of this kind.
	allows rule
}

// What several transitions have in common.
const (
	recordBeforeAct = "the decision is on the API server before a worker is touched"
	acceptedFirst   = "the worker has accepted the copy of the other job by a dry run, and " + recordBeforeAct
	nothingRuns     = "the worker was asked: there is no copy, none will be made, and no pod of one is alive"
	mustHaveStopped = "after the grace period: Fenced when the copy must have stopped, Immediate and forgotten workers at once"
	endIsFinal      = "the TrainJob says the end first, and an end is final"
	oneAttempt      = "that there is a later attempt says that all before it have ended"
	answers         = "before anything is done there, and not if the attempt was given up"
	runsOn          = "a copy that was not deleted runs on"
	copyGoesFirst   = "the finalizer holds the record until the copy and its pods are gone, or a Tombstone remembers them"
	onlySaid        = "says what is known, decides nothing"
)

// Why a job is evicted, or moves without an end.
const (
	hasToLeave  = "its worker is drained, or does not let it run"
	makesRoom   = "it makes room for a job of higher priority"
	multiKueue  = "MultiKueue dispatches it now"
	laterCopy   = "a copy of a later attempt was found, as after a restore"
	heldBack    = "another worker has a copy that is not on record"
	staying     = "it stays on a worker that is drained, or need not go any more"
	changedCopy = "the copy was changed on the worker, and cannot be changed back"
	notAdmitted = "the worker's Kueue will not admit the copy"
	held        = "the TrainJob is suspended"
)

// What several transitions write.
const (
	newAttempt  = "spec.cluster, clusterID, attempt+1, podSets, counted, priority, failover, localQueue; eviction goes; the finalizer"
	attemptOver = "status: Mirrored=False with the outcome, history; copyUID, Evicting and WorkerLost go"
	jobOver     = "status: Finished=True, history; Evicting and WorkerLost go"
	copyShown   = "status: Placed=True, Mirrored=True, phase Running, copyUID, steps, restarts; Evicting=True goes"
	workerLost  = "status: WorkerLost=True with what is done about it, phase WorkerLost"
	adoption    = "spec.cluster, clusterID, attempt, failover and localQueue of the copy; eviction goes; the finalizer"
	foundAgain  = "status: WorkerLost goes, phase as before"
	stopping    = "status: Evicting=True, phase Evicting"
	back        = "spec.cluster, clusterID, counted, failover, localQueue, eviction and the finalizer go"
	deletion    = "metadata.deletionTimestamp"
	whyItWaits  = "spec.priority, podSets; status: Placed=False, explanation"
)

// Transitions returns the table: all writes that change what a Dispatch says. Lines between the same two states are
// alternatives.
func Transitions() []Transition {
	byPlacement, byMirror := evictedFor(v1alpha1.EvictionPreempted, v1alpha1.EvictionSuspended), evictedFor(v1alpha1.EvictionCopyChanged, v1alpha1.EvictionRejected)
	forKueue := evictedFor(v1alpha1.EvictionManagedByMultiKueue)
	byMoves := evictedFor(v1alpha1.EvictionDrained, v1alpha1.EvictionAdmissionTimeout)
	return []Transition{
		{record.None, record.Waiting, "a job fits nowhere", Placement, "the Dispatch without a worker", recordBeforeAct, decidesNothing},
		{record.None, record.Placed, "a job fits", Placement, "the Dispatch: " + newAttempt, recordBeforeAct, placed},
		{record.None, record.Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},

		{record.Waiting, record.Waiting, "what the job needs, or lacks, changes", Placement, whyItWaits, onlySaid, decidesNothing},
		{record.Waiting, record.Placed, "the job fits", Placement, newAttempt, recordBeforeAct, placed},
		{record.Waiting, record.Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{record.Waiting, record.None, "the job is gone or has ended", Placement, "deletes it", "it guards nothing", anything},
		{record.Waiting, record.Leaving, "deleted with finalizers of others", Anybody, deletion, "it guards nothing", anything},

		{record.Placed, record.Placed, staying, Moves, "status: Evicting=False", onlySaid, decidesNothing},
		{record.Placed, record.Placed, heldBack, GarbageCollection, "status: Mirrored=Unknown", onlySaid, decidesNothing},
		{record.Placed, record.Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{record.Placed, record.Copied, "the copy exists for 10 s", Mirror, copyShown, onlySaid, shown},
		{record.Placed, record.Evicting, makesRoom, Placement, "spec.eviction", acceptedFirst, byPlacement},
		{record.Placed, record.Evicting, held, Placement, "spec.eviction", recordBeforeAct, byPlacement},
		{record.Placed, record.Evicting, multiKueue, Placement, "spec.eviction", recordBeforeAct, forKueue},
		{record.Placed, record.Evicting, hasToLeave, Moves, "spec.eviction", recordBeforeAct, byMoves},
		{record.Placed, record.Evicting, changedCopy, Mirror, "spec.eviction", recordBeforeAct, byMirror},
		{record.Placed, record.Evicting, notAdmitted, Mirror, "spec.eviction", recordBeforeAct, byMirror},
		{record.Placed, record.Lost, "the grace period is over", Failover, workerLost, onlySaid, decidesNothing},
		{record.Placed, record.Ended, "refused, the job has changed, or the copy was deleted", Mirror, attemptOver, nothingRuns, over},
		{record.Placed, record.Ended, "the worker is lost", Failover, attemptOver, mustHaveStopped, over},
		{record.Placed, record.Finished, "the copy has ended", Mirror, jobOver, endIsFinal, finished},
		{record.Placed, record.Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{record.Copied, record.Copied, "steps or restarts change", Mirror, copyShown, onlySaid, shown},
		{record.Copied, record.Copied, staying, Moves, "status: Evicting=False", onlySaid, shown},
		{record.Copied, record.Evicting, makesRoom, Placement, "spec.eviction", acceptedFirst, byPlacement},
		{record.Copied, record.Evicting, held, Placement, "spec.eviction", recordBeforeAct, byPlacement},
		{record.Copied, record.Evicting, multiKueue, Placement, "spec.eviction", recordBeforeAct, forKueue},
		{record.Copied, record.Evicting, hasToLeave, Moves, "spec.eviction", recordBeforeAct, byMoves},
		{record.Copied, record.Evicting, changedCopy, Mirror, "spec.eviction", recordBeforeAct, byMirror},
		{record.Copied, record.Evicting, notAdmitted, Mirror, "spec.eviction", recordBeforeAct, byMirror},
		{record.Copied, record.Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{record.Copied, record.Lost, "the grace period is over", Failover, workerLost, onlySaid, decidesNothing},
		{record.Copied, record.Ended, "the copy was deleted", Mirror, attemptOver, nothingRuns, over},
		{record.Copied, record.Ended, "the worker is lost", Failover, attemptOver, mustHaveStopped, over},
		{record.Copied, record.Finished, "the copy has ended", Mirror, jobOver, endIsFinal, finished},
		{record.Copied, record.Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{record.Evicting, record.Evicting, "the copy is being stopped", Mirror, stopping, onlySaid, shown},
		{record.Evicting, record.Placed, "the eviction is taken back", Anybody, "spec.eviction goes", runsOn, decidesNothing},
		{record.Evicting, record.Copied, "the eviction is taken back", Anybody, "spec.eviction goes", runsOn, shown},
		{record.Evicting, record.Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{record.Evicting, record.Lost, "the grace period is over", Failover, workerLost, onlySaid, decidesNothing},
		{record.Evicting, record.Ended, "the copy and its pods are gone", Mirror, attemptOver, nothingRuns, over},
		{record.Evicting, record.Ended, "the worker is lost", Failover, attemptOver, mustHaveStopped, over},
		{record.Evicting, record.Finished, "the copy ended before it was stopped", Mirror, jobOver, endIsFinal, finished},
		{record.Evicting, record.Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{record.Lost, record.Lost, "something else is done about it", Failover, workerLost, onlySaid, decidesNothing},
		{record.Lost, record.Lost, makesRoom, Placement, "spec.eviction", acceptedFirst, byPlacement},
		{record.Lost, record.Lost, held, Placement, "spec.eviction", recordBeforeAct, byPlacement},
		{record.Lost, record.Lost, hasToLeave, Moves, "spec.eviction", recordBeforeAct, byMoves},
		{record.Lost, record.Lost, multiKueue, Placement, "spec.eviction", recordBeforeAct, forKueue},
		{record.Lost, record.Lost, "the eviction is taken back", Anybody, "spec.eviction goes", runsOn, decidesNothing},
		{record.Lost, record.Lost, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{record.Lost, record.Placed, "the worker is back", Mirror, foundAgain, answers, decidesNothing},
		{record.Lost, record.Copied, "the worker is back", Mirror, foundAgain, answers, shown},
		{record.Lost, record.Evicting, "the worker is back", Mirror, foundAgain, answers, shown},
		{record.Lost, record.Ended, "the copy must have stopped, or may run on", Failover, attemptOver, mustHaveStopped, over},
		{record.Lost, record.Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{record.Ended, record.Ended, "the next decision is refused", Placement, "status: WriteRefused=True", onlySaid, decidesNothing},
		{record.Ended, record.Waiting, "the job fits nowhere, or is suspended", Placement, back, nothingRuns, decidesNothing},
		{record.Ended, record.Placed, "the job fits", Placement, newAttempt, recordBeforeAct, placed},
		{record.Ended, record.Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{record.Ended, record.Finished, "the copy ended when it was given up", Placement, jobOver, endIsFinal, finished},
		{record.Ended, record.Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{record.Finished, record.Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{record.Leaving, record.Leaving, "the copy waits for its worker", Failover, "status: WorkerLost=True/DeletionPending", onlySaid, anything},
		{record.Leaving, record.Leaving, "the copy is gone, other finalizers are not", Mirror, "the finalizer goes", copyGoesFirst, anything},
		{record.Leaving, record.Leaving, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{record.Leaving, record.None, "the copy is gone", Mirror, "the finalizer goes", copyGoesFirst, anything},
		{record.Leaving, record.None, "a Tombstone remembers the copy", Failover, "the finalizer goes", copyGoesFirst, anything},
	}
}
