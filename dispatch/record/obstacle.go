// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import "github.com/trainyard/trainyard/api/v1alpha1"

// Obstacle is what keeps a job from getting a worker: the kind of a reason of the condition Placed. The obstacles of jobs
// that wait for room stand together, and the gates are last.
type Obstacle int

const (
	// NoObstacle says: the job has a worker.
	NoObstacle Obstacle = iota
	// NoWorker says: no worker answers, or the workers with room have refused the job.
	NoWorker
	// NoRoom says: the job fits on no worker. Jobs with the same demand wait behind it.
	NoRoom
	// OtherJobs says: other jobs come first, or have to end first. Jobs with the same demand wait behind it. Its Event
	// does not show the workers.
	OtherJobs
	// Missing says: the hub lacks something that may still be created, or refuses a write. Its Event is no warning:
	// objects may be created in any order, and a refused write has a condition of its own.
	Missing
	// Fault says: somebody has to repair or decide something. No change of the workers helps, so an Event warns of it.
	Fault
	// Admission says: the hub's Kueue has to admit the job first, or the hub lacks what Kueue has assigned.
	Admission
	// Suspension says: the job's owner has suspended it. The plugin does not list it as waiting.
	Suspension
	// MultiKueue says: MultiKueue dispatches the job. An Event warns of it. The plugin does not list it as waiting.
	MultiKueue
)

// obstacles has every reason of the condition Placed. A test checks that.
var obstacles = map[string]Obstacle{
	v1alpha1.ReasonPlaced: NoObstacle,

	v1alpha1.ReasonNoWorkers:    NoWorker,
	v1alpha1.ReasonNameConflict: NoWorker,
	v1alpha1.ReasonRejected:     NoWorker,
	v1alpha1.ReasonNoFit:        NoRoom,
	v1alpha1.ReasonQueued:       OtherJobs,
	v1alpha1.ReasonReserved:     OtherJobs,
	v1alpha1.ReasonPreempting:   OtherJobs,

	v1alpha1.ReasonNoPolicy:                Missing,
	v1alpha1.ReasonRuntimeNotFound:         Missing,
	v1alpha1.ReasonWriteRefused:            Missing,
	v1alpha1.ReasonInvalidRuntime:          Fault,
	v1alpha1.ReasonTooLarge:                Fault,
	v1alpha1.ReasonPriorityClassNotFound:   Fault,
	v1alpha1.ReasonPriorityClassNotAllowed: Fault,
	v1alpha1.ReasonInvalidPolicy:           Fault,
	v1alpha1.ReasonInvalidPin:              Fault,
	v1alpha1.ReasonUnknownCopy:             Fault,
	v1alpha1.ReasonProtectedNamespace:      Fault,
	v1alpha1.ReasonAttemptsExhausted:       Fault,

	v1alpha1.ReasonWaitingForWorkload:  Admission,
	v1alpha1.ReasonSuspended:           Suspension,
	v1alpha1.ReasonManagedByMultiKueue: MultiKueue,
}

// ObstacleOf returns the kind of a reason of the condition Placed. A job without a reason waits for a worker, and so
// does a job with a reason of a later manager.
func ObstacleOf(reason string) Obstacle {
	if obstacle, known := obstacles[reason]; known {
		return obstacle
	}
	return NoWorker
}

// String names the obstacle.
func (o Obstacle) String() string {
	return [...]string{
		NoObstacle: "NoObstacle", NoWorker: "NoWorker", NoRoom: "NoRoom", OtherJobs: "OtherJobs", Missing: "Missing",
		Fault: "Fault", Admission: "Admission", Suspension: "Suspension", MultiKueue: "MultiKueue",
	}[o]
}

// IsForRoom is true for a job that waits for room, and not until somebody creates, repairs or admits something.
func (o Obstacle) IsForRoom() bool { return NoWorker <= o && o <= OtherJobs }

// IsGate is true for an obstacle that keeps a job off the waiting list, even if workers have room. The time until it is
// gone does not count as waiting.
func (o Obstacle) IsGate() bool { return o >= Admission }
