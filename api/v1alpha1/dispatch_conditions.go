// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a Dispatch.
const (
	// DispatchPlaced is True when a worker is chosen, and False while the job waits; the reason says what for.
	DispatchPlaced = "Placed"
	// DispatchMirrored is True when the copy exists on the worker, False when the attempt is over, and Unknown, with reason UnknownCopy, while
	// none is created because another worker has one that is not on record.
	DispatchMirrored = "Mirrored"
	// DispatchFinished is True when the copy is Complete or Failed and the hub TrainJob says so.
	DispatchFinished = "Finished"
	// DispatchEvicting is True while spec.eviction is being carried out; the reason is that of the eviction. It is False, with reason
	// NoRoomElsewhere, while the worker is being drained and the job fits on no other.
	DispatchEvicting = "Evicting"
	// DispatchWorkerLost is True while the job's worker has not answered for longer than its grace period; the reason says what is
	// done about it.
	DispatchWorkerLost = "WorkerLost"
	// DispatchWriteRefused is True while the hub's API server refuses, for what it says, something that the manager has
	// to write about the job. The reason says what of, and the message why, in the API server's words. It is tried
	// again, with a back-off and when the job changes.
	DispatchWriteRefused = "WriteRefused"
)

// Reasons of DispatchWriteRefused.
const (
	// ReasonDispatchRefused: the Dispatch with the decision about the job is refused.
	ReasonDispatchRefused = "DispatchRefused"
	// ReasonDispatchStatusRefused: the status of the Dispatch is refused.
	ReasonDispatchStatusRefused = "DispatchStatusRefused"
	// ReasonTrainJobStatusRefused: the TrainJob's status, as the worker says it, is refused.
	ReasonTrainJobStatusRefused = "TrainJobStatusRefused"
)

// Reasons of DispatchWorkerLost.
const (
	// ReasonHold: the job stays where it is until its worker answers again, because it may be running there.
	ReasonHold = "Hold"
	// ReasonAddressAnswers: the job's failover is Fenced, and something at the worker's address has answered since contact
	// with the worker was lost. The worker's API server may be down, and then the agent cannot stop the job. The job stays
	// until the worker answers again, also if nothing answers later. Failover decides from this reason, and not from the
	// message.
	ReasonAddressAnswers = "AddressAnswers"
	// ReasonFencing: the job is placed anew as soon as the worker's agent must have stopped it.
	ReasonFencing = "Fencing"
	// ReasonFailoverPaused: so many workers were lost at once that it is rather the hub that is cut off; nothing is moved.
	ReasonFailoverPaused = "FailoverPaused"
	// ReasonDeletionPending: the job was deleted on the hub, and its copy is deleted when the worker answers again.
	ReasonDeletionPending = "DeletionPending"
)

// ReasonNoRoomElsewhere of a False DispatchEvicting: the worker is being drained, and the job fits on no other.
const ReasonNoRoomElsewhere = "NoRoomElsewhere"

// Reasons of DispatchPlaced.
const (
	// ReasonPlaced: spec.cluster names the chosen worker.
	ReasonPlaced = "Placed"
	// ReasonNoWorkers: no WorkerCluster is registered, or none is Ready.
	ReasonNoWorkers = "NoWorkers"
	// ReasonNoPolicy: DispatchPolicies exist, and none of them matches the job.
	ReasonNoPolicy = "NoPolicy"
	// ReasonNoFit: there are Ready workers, and none takes the job; status.explanation has a line for each.
	ReasonNoFit = "NoFit"
	// ReasonNameConflict: every worker that could take the job has a foreign TrainJob of the same name.
	ReasonNameConflict = "NameConflict"
	// ReasonRejected: a worker refused the copy; the message has the worker's words.
	ReasonRejected = "Rejected"
	// ReasonRuntimeNotFound: the job's runtime is not on the hub.
	ReasonRuntimeNotFound = "RuntimeNotFound"
	// ReasonInvalidRuntime: the job's demand cannot be derived from its runtime; the message says why.
	ReasonInvalidRuntime = "InvalidRuntime"
	// ReasonTooLarge: the job's demand is beyond what is counted; the message names what is too large, and the limit.
	ReasonTooLarge = "TooLarge"
	// ReasonPriorityClassNotFound: the job's annotation trainyard.dev/priority-class names none of the hub's PriorityClasses.
	ReasonPriorityClassNotFound = "PriorityClassNotFound"
	// ReasonPriorityClassNotAllowed: the job names a PriorityClass, by its annotation or in its pods, that its policy
	// does not let it name.
	ReasonPriorityClassNotAllowed = "PriorityClassNotAllowed"
	// ReasonQueued: a job before this one waits for room, and the policy (StrictFIFO), its demand or a reservation holds this one back.
	ReasonQueued = "Queued"
	// ReasonReserved: a worker is held for the job, which waits until there is enough free.
	ReasonReserved = "Reserved"
	// ReasonPreempting: jobs of lower priority are being stopped to make room for the job on one worker.
	ReasonPreempting = "Preempting"
	// ReasonUnknownCopy: a worker has a copy of the job's name that the hub has no record of, and that may be running; the message says
	// how to decide about it.
	ReasonUnknownCopy = "UnknownCopy"
	// ReasonWriteRefused: the job's placement cannot be recorded; the condition WriteRefused says why.
	ReasonWriteRefused = "WriteRefused"
	// ReasonProtectedNamespace: jobs of this namespace are not dispatched: the manager's --protected-namespaces has it,
	// or it is the manager's own, or begins with kube-.
	ReasonProtectedNamespace = "ProtectedNamespace"
	// ReasonAttemptsExhausted: the job has had the highest attempt that there is.
	ReasonAttemptsExhausted = "AttemptsExhausted"
	// ReasonSuspended: the TrainJob has spec.suspend: true, the gate in front of placement. It ends the attempt of a placed job.
	ReasonSuspended = "Suspended"
	// ReasonManagedByMultiKueue: MultiKueue of the hub's Kueue dispatches the job, so Trainyard does not; the message says
	// how to change that. As a reason of DispatchMirrored: the copy was stopped because of that.
	ReasonManagedByMultiKueue = "ManagedByMultiKueue"
	// ReasonWaitingForWorkload: the job is in a queue of the hub's Kueue, which has not admitted it yet as far as its
	// Workload shows.
	ReasonWaitingForWorkload = "WaitingForWorkload"
)

// Reasons of DispatchMirrored. ReasonNameConflict and ReasonRejected are shared with DispatchPlaced.
const (
	// ReasonCopied: the copy exists on the worker.
	ReasonCopied = "Copied"
	// ReasonDeletionRefused: the copy is to go, and the worker refuses to delete it.
	ReasonDeletionRefused = "DeletionRefused"
	// ReasonCopyDeleted: somebody deleted the copy on the worker before it had finished.
	ReasonCopyDeleted = "CopyDeleted"
	// ReasonPreempted: the copy was stopped to make room for a job of higher priority.
	ReasonPreempted = "Preempted"
	// ReasonDrained: the copy was stopped because its worker is being drained.
	ReasonDrained = "Drained"
	// ReasonAdmissionTimeout: the worker had not let the copy run within the policy's admissionTimeout.
	ReasonAdmissionTimeout = "AdmissionTimeout"
	// ReasonCopyChanged: somebody on the worker changes the copy again and again, or it could not be changed back.
	ReasonCopyChanged = "CopyChanged"
	// ReasonWorkerLost: the worker has not answered for longer than its grace period, and the job's failover lets it be placed anew.
	ReasonWorkerLost = "WorkerLost"
)

// ReasonHeldByWorker of PhaseQueued: the copy is suspended on its worker, by a queue there.
const ReasonHeldByWorker = "HeldByWorker"

// Reasons of DispatchFinished.
const (
	// ReasonComplete: the copy is Complete.
	ReasonComplete = "Complete"
	// ReasonFailed: the copy is Failed.
	ReasonFailed = "Failed"
)

// Reasons in DispatchStatus.Explanation, one for each filter. ReasonNameConflict and ReasonRejected occur there too.
const (
	// ReasonFits: the job's gang fits on this worker.
	ReasonFits = "Fits"
	// ReasonNotReady: the worker's Ready condition is not True.
	ReasonNotReady = "NotReady"
	// ReasonCordoned: the worker has spec.unschedulable: true.
	ReasonCordoned = "Cordoned"
	// ReasonPolicyMismatch: the policy's cluster selector does not match the worker's labels.
	ReasonPolicyMismatch = "PolicyMismatch"
	// ReasonInsufficientResources: the gang does not fit on the worker's nodes as they are now.
	ReasonInsufficientResources = "InsufficientResources"
)
