// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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
	// Ended says: the attempt is over, and the job is not. No copy of the attempt can run, now or later, unless failover
	// Immediate or a forgotten worker allows that. From here a job gets another worker.
	Ended
	// GivenUp says: no worker took the job in time. There is no copy of it, no placement follows, and the TrainJob becomes
	// Failed.
	GivenUp
	// Finished says: the copy is Complete or Failed and the TrainJob says so, or the TrainJob is Failed because the job was
	// given up. It is final.
	Finished
	// Leaving says: the Dispatch is being deleted, and goes when its copy is known to be gone.
	Leaving
)

// states has what follows from a state. Transitions has which states may follow.
var states = [...]struct {
	name string
	// live is true if there may be a copy that runs and counts.
	live bool
	// mayMove is true if a job that was evicted from a drained worker may still be on its way to another one.
	mayMove bool
}{
	None:     {name: "None"},
	Waiting:  {name: "Waiting", mayMove: true},
	Placed:   {name: "Placed", live: true, mayMove: true},
	Copied:   {name: "Copied", live: true, mayMove: true},
	Evicting: {name: "Evicting", live: true, mayMove: true},
	Lost:     {name: "Lost", live: true, mayMove: true},
	Ended:    {name: "Ended", mayMove: true},
	GivenUp:  {name: "GivenUp"},
	Finished: {name: "Finished"},
	Leaving:  {name: "Leaving"},
}

// States returns all states.
func States() []State {
	all := make([]State, len(states))
	for i := range all {
		all[i] = State(i)
	}
	return all
}

// String names the state.
func (s State) String() string { return states[s].name }

// Live is true for the states in which there may be a copy that runs and counts.
func (s State) Live() bool { return states[s].live }

// StateOf reads the state from the record. Nil has the state None.
func StateOf(d *v1alpha1.Dispatch) State {
	if d != nil && d.DeletionTimestamp != nil {
		return Leaving
	}
	return AttemptOf(d)
}

// AttemptOf is the state of the attempt, also while the Dispatch is being deleted. It never is Leaving.
func AttemptOf(d *v1alpha1.Dispatch) State {
	switch {
	case d == nil:
		return None
	case d.IsFinished():
		return Finished
	case d.Spec.Cluster == "" && WaitsFor(&d.Status, v1alpha1.ReasonGivenUp):
		return GivenUp
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

// LacksCopy is true for a live attempt whose copy has not been reported. There may be one, or be one soon.
func LacksCopy(d *v1alpha1.Dispatch) bool { return AttemptOf(d).Live() && !d.WasCopied() }

// IsGivenUp is true for an attempt that has ended because its worker was lost. The worker may still have its copy.
func IsGivenUp(d *v1alpha1.Dispatch) bool {
	if d == nil || !d.AttemptEnded() {
		return false
	}
	return meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored).Reason == v1alpha1.ReasonWorkerLost
}

// LostCondition is the condition WorkerLost, nil if it is not True.
func LostCondition(d *v1alpha1.Dispatch) *metav1.Condition {
	if !meta.IsStatusConditionTrue(d.Status.Conditions, v1alpha1.DispatchWorkerLost) {
		return nil
	}
	return meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchWorkerLost)
}
