// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package lifecycle

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// State of a Dispatch, in the order of a job's life.
type State int

const (
	// None says: there is no Dispatch.
	None State = iota
	// Waiting says: no worker is chosen.
	Waiting
	// Placed says: a worker is chosen, and no copy has been reported. There may be one, or be one soon.
	Placed
	// Copied says: the copy has been reported to exist. It runs, or waits on the worker.
	Copied
	// Evicting says: the attempt is to end, for the reason of spec.eviction.
	Evicting
	// Lost says: the worker has not answered for longer than its grace period, whatever was being done there.
	Lost
	// Ended says: the attempt is over without the end of the job: there is no copy that can run and will be none, or that is allowed. From
	// here a job gets another worker.
	Ended
	// Finished says: the copy is Complete or Failed and the TrainJob says so. It is final.
	Finished
	// Leaving says: the Dispatch is being deleted, and goes when its copy is known to be gone.
	Leaving
)

// String names the state.
func (s State) String() string {
	return [...]string{"None", "Waiting", "Placed", "Copied", "Evicting", "Lost", "Ended", "Finished", "Leaving"}[s]
}

// StateOf reads the state from the record. Nil has the state None.
func StateOf(d *v1alpha1.Dispatch) State {
	switch {
	case d == nil:
		return None
	case d.DeletionTimestamp != nil:
		return Leaving
	case d.IsFinished():
		return Finished
	case d.Spec.Cluster == "":
		return Waiting
	case d.AttemptEnded():
		return Ended
	case meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.DispatchWorkerLost):
		return Lost
	case d.Spec.Eviction != nil:
		return Evicting
	case d.WasCopied():
		return Copied
	default:
		return Placed
	}
}

// Live is true for the states in which there may be a copy that runs and counts.
func (s State) Live() bool {
	switch s {
	case Placed, Copied, Evicting, Lost:
		return true
	case None, Waiting, Ended, Finished, Leaving:
	}
	return false
}

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
	From, To State
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
	held        = "the TrainJob is suspended"
)

// What several transitions write.
const (
	newAttempt  = "spec.cluster, clusterID, attempt+1, podSets, priority, failover; eviction goes; the finalizer"
	attemptOver = "status: Mirrored=False with the outcome, history; copyUID, Evicting and WorkerLost go"
	jobOver     = "status: Finished=True, history; Evicting and WorkerLost go"
	copyShown   = "status: Placed=True, Mirrored=True, phase Running, copyUID, steps, restarts; Evicting=True goes"
	workerLost  = "status: WorkerLost=True with what is done about it, phase WorkerLost"
	adoption    = "spec.cluster, clusterID, attempt and failover of the copy; eviction goes; the finalizer"
	foundAgain  = "status: WorkerLost goes, phase as before"
	stopping    = "status: Evicting=True, phase Evicting"
	back        = "spec.cluster, clusterID, eviction and the finalizer go"
	deletion    = "metadata.deletionTimestamp"
	whyItWaits  = "spec.priority, podSets; status: Placed=False, explanation"
)

// Transitions returns the table: all writes that change what a Dispatch says. Lines between the same two states are alternatives.
func Transitions() []Transition {
	byPlacement, byMirror := evictedFor(v1alpha1.EvictionPreempted, v1alpha1.EvictionSuspended), evictedFor(v1alpha1.EvictionCopyChanged)
	forKueue := evictedFor(v1alpha1.EvictionManagedByMultiKueue)
	byMoves := evictedFor(v1alpha1.EvictionDrained, v1alpha1.EvictionAdmissionTimeout)
	return []Transition{
		{None, Waiting, "a job fits nowhere", Placement, "the Dispatch without a worker", recordBeforeAct, decidesNothing},
		{None, Placed, "a job fits", Placement, "the Dispatch: " + newAttempt, recordBeforeAct, placed},
		{None, Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},

		{Waiting, Waiting, "what the job needs, or lacks, changes", Placement, whyItWaits, onlySaid, decidesNothing},
		{Waiting, Placed, "the job fits", Placement, newAttempt, recordBeforeAct, placed},
		{Waiting, Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{Waiting, None, "the job is gone or has ended", Placement, "deletes it", "it guards nothing", anything},
		{Waiting, Leaving, "deleted with finalizers of others", Anybody, deletion, "it guards nothing", anything},

		{Placed, Placed, staying, Moves, "status: Evicting=False", onlySaid, decidesNothing},
		{Placed, Placed, heldBack, GarbageCollection, "status: Mirrored=Unknown", onlySaid, decidesNothing},
		{Placed, Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{Placed, Copied, "the copy exists for 10 s", Mirror, copyShown, onlySaid, shown},
		{Placed, Evicting, makesRoom, Placement, "spec.eviction", recordBeforeAct, byPlacement},
		{Placed, Evicting, held, Placement, "spec.eviction", recordBeforeAct, byPlacement},
		{Placed, Evicting, multiKueue, Placement, "spec.eviction", recordBeforeAct, forKueue},
		{Placed, Evicting, hasToLeave, Moves, "spec.eviction", recordBeforeAct, byMoves},
		{Placed, Evicting, changedCopy, Mirror, "spec.eviction", recordBeforeAct, byMirror},
		{Placed, Lost, "the grace period is over", Failover, workerLost, onlySaid, decidesNothing},
		{Placed, Ended, "refused, or the copy was deleted", Mirror, attemptOver, nothingRuns, over},
		{Placed, Ended, "the worker is lost", Failover, attemptOver, mustHaveStopped, over},
		{Placed, Finished, "the copy has ended", Mirror, jobOver, endIsFinal, finished},
		{Placed, Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{Copied, Copied, "steps or restarts change", Mirror, copyShown, onlySaid, shown},
		{Copied, Copied, staying, Moves, "status: Evicting=False", onlySaid, shown},
		{Copied, Evicting, makesRoom, Placement, "spec.eviction", recordBeforeAct, byPlacement},
		{Copied, Evicting, held, Placement, "spec.eviction", recordBeforeAct, byPlacement},
		{Copied, Evicting, multiKueue, Placement, "spec.eviction", recordBeforeAct, forKueue},
		{Copied, Evicting, hasToLeave, Moves, "spec.eviction", recordBeforeAct, byMoves},
		{Copied, Evicting, changedCopy, Mirror, "spec.eviction", recordBeforeAct, byMirror},
		{Copied, Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{Copied, Lost, "the grace period is over", Failover, workerLost, onlySaid, decidesNothing},
		{Copied, Ended, "the copy was deleted", Mirror, attemptOver, nothingRuns, over},
		{Copied, Ended, "the worker is lost", Failover, attemptOver, mustHaveStopped, over},
		{Copied, Finished, "the copy has ended", Mirror, jobOver, endIsFinal, finished},
		{Copied, Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{Evicting, Evicting, "the copy is being stopped", Mirror, stopping, onlySaid, shown},
		{Evicting, Placed, "the eviction is taken back", Anybody, "spec.eviction goes", runsOn, decidesNothing},
		{Evicting, Copied, "the eviction is taken back", Anybody, "spec.eviction goes", runsOn, shown},
		{Evicting, Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{Evicting, Lost, "the grace period is over", Failover, workerLost, onlySaid, decidesNothing},
		{Evicting, Ended, "the copy and its pods are gone", Mirror, attemptOver, nothingRuns, over},
		{Evicting, Ended, "the worker is lost", Failover, attemptOver, mustHaveStopped, over},
		{Evicting, Finished, "the copy ended before it was stopped", Mirror, jobOver, endIsFinal, finished},
		{Evicting, Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{Lost, Lost, "something else is done about it", Failover, workerLost, onlySaid, decidesNothing},
		{Lost, Lost, makesRoom, Placement, "spec.eviction", recordBeforeAct, byPlacement},
		{Lost, Lost, held, Placement, "spec.eviction", recordBeforeAct, byPlacement},
		{Lost, Lost, multiKueue, Placement, "spec.eviction", recordBeforeAct, forKueue},
		{Lost, Lost, "the eviction is taken back", Anybody, "spec.eviction goes", runsOn, decidesNothing},
		{Lost, Lost, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{Lost, Placed, "the worker is back", Mirror, foundAgain, answers, decidesNothing},
		{Lost, Copied, "the worker is back", Mirror, foundAgain, answers, shown},
		{Lost, Evicting, "the worker is back", Mirror, foundAgain, answers, shown},
		{Lost, Ended, "the copy must have stopped, or may run on", Failover, attemptOver, mustHaveStopped, over},
		{Lost, Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{Ended, Ended, "the next decision is refused", Placement, "status: WriteRefused=True", onlySaid, decidesNothing},
		{Ended, Waiting, "the job fits nowhere, or is suspended", Placement, back, nothingRuns, decidesNothing},
		{Ended, Placed, "the job fits", Placement, newAttempt, recordBeforeAct, placed},
		{Ended, Placed, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{Ended, Finished, "the copy ended when it was given up", Placement, jobOver, endIsFinal, finished},
		{Ended, Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{Finished, Leaving, "the TrainJob or the Dispatch is deleted", Anybody, deletion, copyGoesFirst, anything},

		{Leaving, Leaving, "the copy waits for its worker", Failover, "status: WorkerLost=True/DeletionPending", onlySaid, anything},
		{Leaving, Leaving, "the copy is gone, other finalizers are not", Mirror, "the finalizer goes", copyGoesFirst, anything},
		{Leaving, Leaving, laterCopy, GarbageCollection, adoption, oneAttempt, adopted},
		{Leaving, None, "the copy is gone", Mirror, "the finalizer goes", copyGoesFirst, anything},
		{Leaving, None, "a Tombstone remembers the copy", Failover, "the finalizer goes", copyGoesFirst, anything},
	}
}
