// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "slices"

// Reasons of DispatchPlaced. placedReasons has a row for each.
const (
	// ReasonPlaced: spec.cluster names the chosen worker.
	ReasonPlaced = "Placed"
	// ReasonNoWorkers: no WorkerCluster is registered, or no WorkerCluster is Ready.
	ReasonNoWorkers = "NoWorkers"
	// ReasonNoPolicy: there are DispatchPolicies, and none of them matches the job.
	ReasonNoPolicy = "NoPolicy"
	// ReasonNoFit: there are Ready workers, but none takes the job. status.explanation has a line for each worker.
	ReasonNoFit = "NoFit"
	// ReasonNameConflict: every worker that could take the job has a foreign TrainJob of the same name.
	ReasonNameConflict = "NameConflict"
	// ReasonRejected: a worker refused the copy. The message has the worker's words.
	ReasonRejected = "Rejected"
	// ReasonRuntimeNotFound: the job's runtime does not exist on the hub.
	ReasonRuntimeNotFound = "RuntimeNotFound"
	// ReasonInvalidRuntime: the job's demand cannot be derived from its runtime. The message says why.
	ReasonInvalidRuntime = "InvalidRuntime"
	// ReasonTooLarge: the job's demand is too large to be counted. The message names what is too large, and the limit.
	ReasonTooLarge = "TooLarge"
	// ReasonPriorityClassNotFound: the hub has no PriorityClass of the name in annotation trainyard.dev/priority-class.
	ReasonPriorityClassNotFound = "PriorityClassNotFound"
	// ReasonPriorityClassNotAllowed: the job names a PriorityClass, by annotation or in its pods, that its policy forbids.
	ReasonPriorityClassNotAllowed = "PriorityClassNotAllowed"
	// ReasonQueued: an earlier job waits for room, and the policy (StrictFIFO), its demand or a reservation holds this job
	// back.
	ReasonQueued = "Queued"
	// ReasonReserved: a worker is reserved for the job, which waits until enough is free there.
	ReasonReserved = "Reserved"
	// ReasonPreempting: jobs of lower priority are being stopped to make room for the job on one worker.
	ReasonPreempting = "Preempting"
	// ReasonUnknownCopy: a worker has a copy with the job's name that is not on record and may be running. The message
	// says how to decide about the copy.
	ReasonUnknownCopy = "UnknownCopy"
	// ReasonWriteRefused: the manager cannot record the job's placement. The condition WriteRefused says why.
	ReasonWriteRefused = "WriteRefused"
	// ReasonProtectedNamespace: the manager does not dispatch jobs of this namespace: it is in --protected-namespaces, is
	// the manager's own, or a namespace of Kubernetes, Trainyard, Kubeflow Trainer, JobSet or Kueue.
	ReasonProtectedNamespace = "ProtectedNamespace"
	// ReasonAttemptsExhausted: the job has had the highest possible attempt number.
	ReasonAttemptsExhausted = "AttemptsExhausted"
	// ReasonSuspended: the TrainJob has spec.suspend: true, so it is not placed. If it was placed, its attempt ends.
	ReasonSuspended = "Suspended"
	// ReasonManagedByMultiKueue: MultiKueue of the hub's Kueue dispatches the job, so Trainyard does not. The message says
	// how to change that.
	ReasonManagedByMultiKueue = "ManagedByMultiKueue"
	// ReasonWaitingForWorkload: the job is in a queue of the hub's Kueue. Its Workload does not show an admission yet,
	// or the hub does not have a ResourceFlavor that Kueue has assigned, and that hubFlavors of the policy requires.
	ReasonWaitingForWorkload = "WaitingForWorkload"
	// ReasonGivenUp: the job has waited for longer than giveUpAfter of its policy. It gets no worker any more, and its
	// TrainJob becomes Failed with the message.
	ReasonGivenUp = "GivenUp"
	// ReasonInvalidPolicy: the job's DispatchPolicy has a fault. Until it is repaired, the job waits.
	ReasonInvalidPolicy = "InvalidPolicy"
	// ReasonInvalidPin: the job's annotation trainyard.dev/clusters is not a label selector.
	ReasonInvalidPin = "InvalidPin"
	// ReasonInvalidTopology: the job's annotation trainyard.dev/topology, or the annotations of its pods for Kueue, name no
	// domain that can be counted.
	ReasonInvalidTopology = "InvalidTopology"
	// ReasonInvalidCheckpoint: the job's annotation trainyard.dev/checkpoint names no place, and its policy has checkpoint.
	ReasonInvalidCheckpoint = "InvalidCheckpoint"
	// ReasonInvalidData: the job's annotation trainyard.dev/data names no data.
	ReasonInvalidData = "InvalidData"
	// ReasonDataNotFound: no WorkerCluster lists in its spec.data all data that the job requires by its annotation
	// trainyard.dev/data.
	ReasonDataNotFound = "DataNotFound"
)

// ReasonKind is the kind of a reason of DispatchPlaced. It says what follows from the reason. A row of PlacedReasons
// has what differs between the reasons of a kind.
type ReasonKind string

// Kinds of reasons.
const (
	// ReasonKindNone says: the job has a worker.
	ReasonKindNone ReasonKind = "None"
	// ReasonKindNoWorker says: no worker answers, or the workers with room have refused the job.
	ReasonKindNoWorker ReasonKind = "NoWorker"
	// ReasonKindNoRoom says: the job fits on no worker. Jobs with the same demand wait behind it.
	ReasonKindNoRoom ReasonKind = "NoRoom"
	// ReasonKindOtherJobs says: other jobs come first, or have to end first. Jobs with the same demand wait behind it.
	ReasonKindOtherJobs ReasonKind = "OtherJobs"
	// ReasonKindMissing says: the hub lacks something that may still be created, or refuses a write.
	ReasonKindMissing ReasonKind = "Missing"
	// ReasonKindFault says: somebody has to repair or decide something. No change of the workers helps.
	ReasonKindFault ReasonKind = "Fault"
	// ReasonKindAdmission says: the hub's Kueue has to admit the job first, or the hub lacks what Kueue has assigned.
	ReasonKindAdmission ReasonKind = "Admission"
	// ReasonKindSuspension says: the job's owner has suspended it.
	ReasonKindSuspension ReasonKind = "Suspension"
	// ReasonKindEnd says: the job does not wait any more.
	ReasonKindEnd ReasonKind = "End"
	// ReasonKindMultiKueue says: MultiKueue dispatches the job.
	ReasonKindMultiKueue ReasonKind = "MultiKueue"
)

// IsForRoom is true for a job that waits for room, and not until somebody creates, repairs or admits something.
func (k ReasonKind) IsForRoom() bool {
	return k == ReasonKindNoWorker || k == ReasonKindNoRoom || k == ReasonKindOtherJobs
}

// KeepsOffList is true for a kind that keeps a job off the waiting list, even if workers have room. The time off the
// list does not count as waiting.
func (k ReasonKind) KeepsOffList() bool {
	return k == ReasonKindAdmission || k == ReasonKindSuspension || k == ReasonKindMultiKueue
}

// IsListed is true for a job that people see in the waiting list: its owner or an admin expects Trainyard to place it.
func (k ReasonKind) IsListed() bool {
	return k != ReasonKindSuspension && k != ReasonKindMultiKueue && k != ReasonKindEnd
}

// HoldsBack is true if jobs with the same demand wait behind the job.
func (k ReasonKind) HoldsBack() bool { return k == ReasonKindNoRoom || k == ReasonKindOtherJobs }

// ShowsWorkers is true if the Event of the job says what each worker lacks, where workers have been asked.
func (k ReasonKind) ShowsWorkers() bool { return k != ReasonKindOtherJobs }

// NeedsRepair is true if the Event is a warning, because no change of the workers helps. What is missing is no reason
// to warn: objects may be created in any order, and a refused write has a condition of its own.
func (k ReasonKind) NeedsRepair() bool {
	return k == ReasonKindFault || k == ReasonKindMultiKueue || k == ReasonKindEnd
}

// Review is what the hub's webhook does with a new job that would wait.
type Review int

const (
	// ReviewWarns says: the user gets a warning with the message.
	ReviewWarns Review = iota
	// ReviewRefuses says: the job is refused, because it can never be placed.
	ReviewRefuses
	// ReviewSilent says: nothing. The check of the job's form has said it.
	ReviewSilent
)

// PlacedReason is a row of the table of reasons of DispatchPlaced.
// +kubebuilder:object:generate=false
type PlacedReason struct {
	Reason string
	Kind   ReasonKind
	// Review is what the hub's webhook does if it finds the reason before it asks workers.
	Review Review
	// SumsUp is true if the message sums up status.explanation, and has nothing to add where there is one.
	SumsUp bool
	// Advice is what the owner of the job, or the admin of a worker, can do. Empty: the message says it.
	Advice string
}

var placedReasons = []PlacedReason{
	{Reason: ReasonPlaced, Kind: ReasonKindNone},

	{Reason: ReasonNoWorkers, Kind: ReasonKindNoWorker, SumsUp: true},
	{Reason: ReasonNameConflict, Kind: ReasonKindNoWorker},
	{
		Reason: ReasonRejected, Kind: ReasonKindNoWorker,
		Advice: "change what the table of workers names, in the job or on the worker; a worker that has refused the job is asked " +
			"again after a back-off, when the job changes, and at once with kubectl trainyard retry",
	},
	{
		Reason: ReasonNoFit, Kind: ReasonKindNoRoom, SumsUp: true,
		Advice: "wait until jobs end or nodes are added, or let the job ask for less: the table of workers says what each lacks",
	},
	{Reason: ReasonQueued, Kind: ReasonKindOtherJobs},
	{Reason: ReasonReserved, Kind: ReasonKindOtherJobs},
	{Reason: ReasonPreempting, Kind: ReasonKindOtherJobs},

	{Reason: ReasonNoPolicy, Kind: ReasonKindMissing},
	{
		Reason: ReasonRuntimeNotFound, Kind: ReasonKindMissing, Review: ReviewSilent,
		Advice: "create the runtime on the hub, or create the job again with another spec.runtimeRef",
	},
	{
		Reason: ReasonDataNotFound, Kind: ReasonKindMissing,
		Advice: "ask an admin to list the data in spec.data of the WorkerClusters that are near it, or write preferred= in place of " +
			"required= into the annotation",
	},
	{Reason: ReasonWriteRefused, Kind: ReasonKindMissing},
	{Reason: ReasonInvalidRuntime, Kind: ReasonKindFault},
	{Reason: ReasonTooLarge, Kind: ReasonKindFault, Review: ReviewRefuses},
	{Reason: ReasonPriorityClassNotFound, Kind: ReasonKindFault},
	{Reason: ReasonPriorityClassNotAllowed, Kind: ReasonKindFault},
	{Reason: ReasonInvalidPolicy, Kind: ReasonKindFault},
	{Reason: ReasonInvalidPin, Kind: ReasonKindFault},
	{Reason: ReasonInvalidTopology, Kind: ReasonKindFault},
	{Reason: ReasonInvalidCheckpoint, Kind: ReasonKindFault},
	{Reason: ReasonInvalidData, Kind: ReasonKindFault},
	{Reason: ReasonUnknownCopy, Kind: ReasonKindFault},
	{Reason: ReasonProtectedNamespace, Kind: ReasonKindFault},
	{Reason: ReasonAttemptsExhausted, Kind: ReasonKindFault},

	{Reason: ReasonWaitingForWorkload, Kind: ReasonKindAdmission},
	{Reason: ReasonSuspended, Kind: ReasonKindSuspension},
	{Reason: ReasonManagedByMultiKueue, Kind: ReasonKindMultiKueue},

	{Reason: ReasonGivenUp, Kind: ReasonKindEnd, Advice: "change what the message names, and create the job again"},
}

// PlacedReasons returns the table of reasons of DispatchPlaced.
func PlacedReasons() []PlacedReason { return slices.Clone(placedReasons) }

// PlacedReasonOf returns the row of a reason of DispatchPlaced. A job without a reason waits for a worker, and so does
// a job with a reason of a later manager.
func PlacedReasonOf(reason string) PlacedReason {
	for i := range placedReasons {
		if placedReasons[i].Reason == reason {
			return placedReasons[i]
		}
	}
	return PlacedReason{Reason: reason, Kind: ReasonKindNoWorker}
}

// ReasonKindOf returns the kind of a reason of DispatchPlaced.
func ReasonKindOf(reason string) ReasonKind { return PlacedReasonOf(reason).Kind }
