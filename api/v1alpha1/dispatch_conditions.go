// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Condition types of a Dispatch.
const (
	// DispatchPlaced is True when a worker is chosen, and False while the job waits. The reason says why.
	DispatchPlaced = "Placed"
	// DispatchMirrored is True when the copy exists on the worker, and False when the attempt is over. It is Unknown, with
	// reason UnknownCopy, while the manager creates no copy because another worker has a copy that is not on record.
	DispatchMirrored = "Mirrored"
	// DispatchFinished is True when the copy is Complete or Failed and the hub TrainJob says so, or when the hub TrainJob is
	// Failed because the job was given up.
	DispatchFinished = "Finished"
	// DispatchEvicting is True while an eviction (spec.eviction) is carried out. Its reason is the reason of the eviction.
	// It is False while the worker is being drained and the job stays: with reason NoRoomElsewhere because it fits on no
	// other worker, with reason AwaitingCheckpoint because its process may save another checkpoint soon.
	DispatchEvicting = "Evicting"
	// DispatchWorkerLost is True while the job's worker has not answered for longer than its grace period. The reason says
	// what happens to the job.
	DispatchWorkerLost = "WorkerLost"
	// DispatchHealthy is False while something keeps the copy from making progress: the reason is one of internal/health or
	// of the worker's agent, and the message has the worker's words. It is True when that is over, and Unknown while the
	// hub does not know. A job that had no trouble does not have the condition.
	DispatchHealthy = "Healthy"
	// DispatchWriteRefused is True while the hub's API server refuses a write of the manager for its content. The reason
	// says which object, and the message why. It is tried again with a back-off and when the job changes.
	DispatchWriteRefused = "WriteRefused"
)

// Reasons of DispatchWriteRefused.
const (
	// ReasonDispatchRefused: the API server refuses the Dispatch with the decision about the job.
	ReasonDispatchRefused = "DispatchRefused"
	// ReasonDispatchStatusRefused: the API server refuses the status of the Dispatch.
	ReasonDispatchStatusRefused = "DispatchStatusRefused"
	// ReasonTrainJobStatusRefused: the API server refuses the TrainJob's status that the worker reports.
	ReasonTrainJobStatusRefused = "TrainJobStatusRefused"
)

// Reasons of DispatchHealthy, beside those of a trouble.
const (
	// ReasonRecovered: the trouble is over.
	ReasonRecovered = "Recovered"
	// ReasonUnschedulable: the scheduler of the worker has found no node for a pod for some time. The job's policy can say
	// when it moves (admissionTimeout).
	ReasonUnschedulable = "Unschedulable"
	// ReasonNotVisible: the copy has no ready pods, the worker has no agent, and the hub may not read pods there.
	ReasonNotVisible = "NotVisible"
)

// Reasons of DispatchWorkerLost.
const (
	// ReasonHold: the job stays on its worker until the worker answers again, because it may be running there.
	ReasonHold = "Hold"
	// ReasonAddressAnswers: the job's failover is Fenced, and something at the worker's address has answered since contact
	// with the worker was lost. The worker's API server may be down, and then the agent cannot stop the job. The job stays
	// until the worker answers again, even if nothing answers later. Failover reads this reason.
	ReasonAddressAnswers = "AddressAnswers"
	// ReasonFencing: the job is placed again as soon as the worker's agent must have stopped it.
	ReasonFencing = "Fencing"
	// ReasonFailoverPaused: so many workers were lost at once that probably the hub is cut off. No job is moved.
	ReasonFailoverPaused = "FailoverPaused"
	// ReasonDeletionPending: the job was deleted on the hub. Its copy will be deleted when the worker answers again.
	ReasonDeletionPending = "DeletionPending"
)

// ReasonNoRoomElsewhere of a False DispatchEvicting: the worker is being drained, and the job fits on no other worker.
const ReasonNoRoomElsewhere = "NoRoomElsewhere"

// ReasonAwaitingCheckpoint of a False DispatchEvicting: the worker is being drained, and the job moves when its process
// has saved another checkpoint, or when the checkpoint.maxWait of its policy is over.
const ReasonAwaitingCheckpoint = "AwaitingCheckpoint"

// Reasons of DispatchMirrored. ReasonNameConflict and ReasonRejected are shared with DispatchPlaced.
const (
	// ReasonRuntimeInUse begins the message of a refusal: the worker has an earlier version of the job's runtime, copies that
	// its Kueue runs use it, and the worker cannot have the newer version beside it.
	ReasonRuntimeInUse = "RuntimeInUse"
	// ReasonCopied: the copy exists on the worker.
	ReasonCopied = "Copied"
	// ReasonDeletionRefused: the worker refuses the deletion of the copy.
	ReasonDeletionRefused = "DeletionRefused"
	// ReasonAwaitingEnd: the copy is being deleted, and has not ended for a minute. The message says what holds it: pods that
	// end slowly, or a finalizer.
	ReasonAwaitingEnd = "AwaitingEnd"
	// ReasonWorkerLost: the worker has not answered for longer than its grace period, and failover places the job again.
	ReasonWorkerLost = "WorkerLost"
)

// Reasons of PhaseQueued, and of a True DispatchMirrored meanwhile: its message has the words of the worker's Kueue.
const (
	// ReasonHeldByWorker: a queue on the worker keeps the copy suspended, and the hub does not know why.
	ReasonHeldByWorker = "HeldByWorker"
	// ReasonWaitingForQuota: the copy waits for quota in the queue of the worker's Kueue.
	ReasonWaitingForQuota = "WaitingForQuota"
	// ReasonInadmissible: the worker's Kueue does not try to admit the copy, as while its queue is stopped.
	ReasonInadmissible = "Inadmissible"
	// ReasonAdmissionChecks: the copy has quota, and waits for admission checks of the worker's Kueue.
	ReasonAdmissionChecks = "AdmissionChecks"
	// ReasonEvictedByKueue: the worker's Kueue has stopped the copy, which waits again. The message begins with the reason.
	ReasonEvictedByKueue = "EvictedByKueue"
)

// Reasons of DispatchFinished.
const (
	// ReasonComplete: the copy is Complete.
	ReasonComplete = "Complete"
	// ReasonFailed: the copy is Failed.
	ReasonFailed = "Failed"
	// ReasonGivenUp is shared with DispatchPlaced, and is the reason of the TrainJob's condition Failed too.
)

// Reasons in DispatchStatus.Explanation, one for each filter. ReasonNameConflict and ReasonRejected are used there too.
const (
	// ReasonFits: the job's gang fits on this worker.
	ReasonFits = "Fits"
	// ReasonNotReady: the worker's Ready condition is not True.
	ReasonNotReady = "NotReady"
	// ReasonCordoned: the worker has spec.unschedulable: true.
	ReasonCordoned = "Cordoned"
	// ReasonPolicyMismatch: the policy's cluster selector does not match the worker's labels, or its expression is false.
	ReasonPolicyMismatch = "PolicyMismatch"
	// ReasonPinMismatch: the job's annotation trainyard.dev/clusters does not select the worker.
	ReasonPinMismatch = "PinMismatch"
	// ReasonFieldUnknown: the worker's CRDs do not know a field that the job uses, or that its runtime uses and the worker
	// has no runtime of its own instead.
	ReasonFieldUnknown = "FieldUnknown"
	// ReasonRuntimeDiffers: the policy wants the hub's runtime (spec.runtime: Same), and the worker has another one under
	// that name, or it is not known yet whether it has. Or the policy takes the worker's runtime, and the job cannot run
	// with that.
	ReasonRuntimeDiffers = "RuntimeDiffers"
	// ReasonInsufficientResources: the gang does not fit on what is free on the worker's nodes now.
	ReasonInsufficientResources = "InsufficientResources"
	// ReasonNoMatchingNode: no node of the worker could take some of the gang's pods if nothing else ran there. Their node
	// selector, affinity or tolerations match no node, or no node that they match has a resource that they request.
	ReasonNoMatchingNode = "NoMatchingNode"
	// ReasonGraceTooLong: the policy's checkpoint.grace is longer than what the worker's agent can give pods of a job with
	// failover Fenced.
	ReasonGraceTooLong = "GraceTooLong"
	// ReasonCheckpointElsewhere: the job's checkpoint is in a PersistentVolumeClaim of another worker, on which the job ran.
	ReasonCheckpointElsewhere = "CheckpointElsewhere"
	// ReasonDataElsewhere: the worker does not list in its spec.data all data that the job requires.
	ReasonDataElsewhere = "DataElsewhere"
	// ReasonNoDomain: no node of the worker has the label of the job's topology, or the job's pods select none that has it.
	ReasonNoDomain = "NoDomain"
)
