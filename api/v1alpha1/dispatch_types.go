// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Condition types of a Dispatch.
const (
	// DispatchPlaced is True when a worker is chosen, and False while the job waits; the reason says what for.
	DispatchPlaced = "Placed"
	// DispatchMirrored is True when the copy exists on the worker, and False when the worker refused it.
	DispatchMirrored = "Mirrored"
	// DispatchFinished is True when the copy is Complete or Failed and the hub TrainJob says so.
	DispatchFinished = "Finished"
	// DispatchEvicting is True while spec.eviction is being carried out; the reason is that of the eviction. It is False, with reason
	// NoRoomElsewhere, while the worker is being drained and the job fits on no other.
	DispatchEvicting = "Evicting"
	// DispatchWorkerLost is True while the job's worker has not answered for longer than its grace period; the reason says what is
	// done about it.
	DispatchWorkerLost = "WorkerLost"
)

// Reasons of DispatchWorkerLost.
const (
	// ReasonHold: the job stays where it is until its worker answers again, because it may be running there.
	ReasonHold = "Hold"
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
	// ReasonPriorityClassNotFound: the job's annotation trainyard.dev/priority-class names none of the hub's PriorityClasses.
	ReasonPriorityClassNotFound = "PriorityClassNotFound"
	// ReasonQueued: a job before this one waits for room, and the policy (StrictFIFO), its demand or a reservation holds this one back.
	ReasonQueued = "Queued"
	// ReasonReserved: a worker is held for the job, which waits until there is enough free.
	ReasonReserved = "Reserved"
	// ReasonPreempting: jobs of lower priority are being stopped to make room for the job on one worker.
	ReasonPreempting = "Preempting"
	// ReasonUnknownCopy: a worker has a copy of the job's name that the hub has no record of, and that may be running; the message says
	// how to decide about it.
	ReasonUnknownCopy = "UnknownCopy"
	// ReasonSuspended: the TrainJob has spec.suspend: true, the gate in front of placement.
	ReasonSuspended = "Suspended"
)

// Reasons of DispatchMirrored. ReasonNameConflict and ReasonRejected are shared with DispatchPlaced.
const (
	// ReasonCopied: the copy exists on the worker.
	ReasonCopied = "Copied"
	// ReasonCopyDeleted: somebody deleted the copy on the worker before it had finished.
	ReasonCopyDeleted = "CopyDeleted"
	// ReasonPreempted: the copy was stopped to make room for a job of higher priority.
	ReasonPreempted = "Preempted"
	// ReasonDrained: the copy was stopped because its worker is being drained.
	ReasonDrained = "Drained"
	// ReasonAdmissionTimeout: the worker had not let the copy run within the policy's admissionTimeout.
	ReasonAdmissionTimeout = "AdmissionTimeout"
	// ReasonCopyChanged: somebody changed the copy's spec on the worker, and it could not be changed back.
	ReasonCopyChanged = "CopyChanged"
	// ReasonWorkerLost: the worker has not answered for longer than its grace period, and the job's failover lets it be placed anew.
	ReasonWorkerLost = "WorkerLost"
)

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

// DispatchPhase sums up a Dispatch for people. Controllers read conditions.
// +kubebuilder:validation:Enum=Pending;Waiting;Running;Evicting;WorkerLost;Finished
type DispatchPhase string

const (
	// PhasePending means that nothing has been reported since the last decision.
	PhasePending DispatchPhase = "Pending"
	// PhaseWaiting means that no worker is chosen; the reason says why.
	PhaseWaiting DispatchPhase = "Waiting"
	// PhaseRunning means that the copy exists on the worker and has not finished.
	PhaseRunning DispatchPhase = "Running"
	// PhaseEvicting means that the copy is being stopped, for the job to be placed again.
	PhaseEvicting DispatchPhase = "Evicting"
	// PhaseWorkerLost means that the worker has not answered for longer than its grace period.
	PhaseWorkerLost DispatchPhase = "WorkerLost"
	// PhaseFinished means that the copy is Complete or Failed.
	PhaseFinished DispatchPhase = "Finished"
)

// Outcome says how an attempt ended.
// +kubebuilder:validation:Enum=Complete;Failed;Rejected;NameConflict;CopyDeleted;CopyChanged;Preempted;Drained;AdmissionTimeout;WorkerLost
type Outcome string

// Outcomes of an attempt. Each is also the reason of the condition that reports it.
const (
	OutcomeComplete         Outcome = ReasonComplete
	OutcomeFailed           Outcome = ReasonFailed
	OutcomeRejected         Outcome = ReasonRejected
	OutcomeNameConflict     Outcome = ReasonNameConflict
	OutcomeCopyDeleted      Outcome = ReasonCopyDeleted
	OutcomeCopyChanged      Outcome = ReasonCopyChanged
	OutcomePreempted        Outcome = ReasonPreempted
	OutcomeDrained          Outcome = ReasonDrained
	OutcomeAdmissionTimeout Outcome = ReasonAdmissionTimeout
	OutcomeWorkerLost       Outcome = ReasonWorkerLost
)

// TrainJobReference names the TrainJob of a Dispatch, in the Dispatch's namespace.
type TrainJobReference struct {
	// name of the TrainJob, equal to the name of the Dispatch.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// uid of the TrainJob. A TrainJob that is created again under the same name has another one, and gets another Dispatch.
	UID types.UID `json:"uid"`
}

// PodSetRole is what the pods of a PodSet do. It is the runtime's trainer.kubeflow.org/trainjob-ancestor-step label, or
// "launcher" for MPI's launcher, or empty.
// +kubebuilder:validation:MaxLength=63
type PodSetRole string

// Roles that mean something to placement.
const (
	RoleDatasetInitializer PodSetRole = "dataset-initializer"
	RoleModelInitializer   PodSetRole = "model-initializer"
	RoleTrainer            PodSetRole = "trainer"
	RoleLauncher           PodSetRole = "launcher"
)

// PodSet is a number of equal pods of a job. A job's demand is its PodSets: derived from runtime and TrainJob when the job is
// placed, so that a restarted manager needs neither to count what is placed.
type PodSet struct {
	// name of the replicated job in the JobSet.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// role of the pods.
	// +optional
	Role PodSetRole `json:"role,omitempty"`
	// count of pods. All must fit at the same time.
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`
	// requests of one pod.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// nodeSelector of one pod.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// nodeAffinity that one pod requires (requiredDuringSchedulingIgnoredDuringExecution).
	// +optional
	NodeAffinity *corev1.NodeSelector `json:"nodeAffinity,omitempty"`
	// tolerations of one pod.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// EvictionReason says why an attempt is to end.
// +kubebuilder:validation:Enum=Preempted;Drained;AdmissionTimeout;CopyChanged
type EvictionReason string

// Reasons of an eviction. Each is also the outcome of the attempt that it ends.
const (
	// EvictionPreempted says that a job of higher priority takes the room.
	EvictionPreempted EvictionReason = ReasonPreempted
	// EvictionDrained says that the worker is being drained, and that the job fits elsewhere.
	EvictionDrained EvictionReason = ReasonDrained
	// EvictionAdmissionTimeout says that the worker has not let the copy run in time.
	EvictionAdmissionTimeout EvictionReason = ReasonAdmissionTimeout
	// EvictionCopyChanged says that the copy is no longer what the hub's job is, and cannot be made so.
	EvictionCopyChanged EvictionReason = ReasonCopyChanged
)

// Eviction ends the current attempt: the copy is deleted, and when none of its pods is alive the job waits again.
type Eviction struct {
	// reason of the eviction.
	Reason EvictionReason `json:"reason"`
	// message for the victim's owner.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// for is the UID of the TrainJob that takes the room.
	// +optional
	For types.UID `json:"for,omitempty"`
}

// DispatchSpec is the decision. It is on the API server before any worker is touched.
// +kubebuilder:validation:XValidation:rule="self.trainJob == oldSelf.trainJob",message="trainJob is immutable"
// +kubebuilder:validation:XValidation:rule="self.attempt >= oldSelf.attempt",message="attempt never falls: it is the fencing token of the copies"
// +kubebuilder:validation:XValidation:rule="!has(self.cluster) || (has(oldSelf.cluster) && self.cluster == oldSelf.cluster) || self.attempt > oldSelf.attempt",message="cluster moves to a worker only together with a higher attempt"
// +kubebuilder:validation:XValidation:rule="!has(self.eviction) || has(self.cluster)",message="only a placed Dispatch can be evicted"
// +kubebuilder:validation:XValidation:rule="!has(self.cluster) || self.attempt >= 1",message="a placed Dispatch has attempt 1 or higher"
type DispatchSpec struct {
	// trainJob whose placement this is. Immutable.
	TrainJob TrainJobReference `json:"trainJob"`
	// cluster is the WorkerCluster chosen for the current attempt. Absent: the job waits.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Cluster ClusterName `json:"cluster,omitempty"`
	// clusterID is the ID of the cluster that the WorkerCluster led to when it was chosen. Should its name lead to another cluster
	// later, what is there is not this job's.
	// +optional
	ClusterID types.UID `json:"clusterID,omitempty"`
	// attempt counts the placements of this TrainJob, from 1. 0: not placed yet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempt int32 `json:"attempt"`
	// priority of the job, from its PriorityClass: the higher, the earlier it is placed.
	// +optional
	Priority int32 `json:"priority"`
	// failover says what happens to the job if its worker is lost, as it was decided when the job was placed: a copy that is to be fenced
	// says so to the worker's agent. Absent: Hold.
	// +optional
	Failover Failover `json:"failover,omitempty"`
	// eviction ends the current attempt. It goes when the job waits again.
	// +optional
	Eviction *Eviction `json:"eviction,omitempty"`
	// podSets are the demand for which the decision was made.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=64
	PodSets []PodSet `json:"podSets,omitempty"`
}

// Attempt is one past placement.
type Attempt struct {
	// attempt number.
	Attempt int32 `json:"attempt"`
	// cluster of the attempt.
	Cluster ClusterName `json:"cluster"`
	// to is when the attempt ended, by the hub's clock.
	To metav1.Time `json:"to"`
	// outcome of the attempt.
	Outcome Outcome `json:"outcome"`
	// message in the worker's words, shortened.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Refusal counts how often a worker has ended an attempt of the job without running it. It is asked again after a back-off.
type Refusal struct {
	// cluster is the worker.
	Cluster ClusterName `json:"cluster"`
	// outcome of the last such attempt.
	Outcome Outcome `json:"outcome"`
	// message in the worker's words, shortened.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// count of such attempts.
	Count int32 `json:"count"`
	// last is when the last one ended, by the hub's clock.
	Last metav1.Time `json:"last"`
}

// ClusterExplanation is one worker's line in the explanation of a decision.
type ClusterExplanation struct {
	// cluster is the worker.
	Cluster ClusterName `json:"cluster"`
	// reason is Fits, or the filter that rejected the worker.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message says what was lacking.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// score of a worker that fits, 0 to 100, the highest wins.
	// +optional
	Score *int32 `json:"score,omitempty"`
}

// Steps of a job besides those that a runtime may name as it likes. Their replicated jobs have the same names, but for the
// trainer, whose is "node".
const (
	StepDatasetInitializer = "dataset-initializer"
	StepModelInitializer   = "model-initializer"
	StepLauncher           = "launcher"
	StepTrainer            = "trainer"
)

// StepState says how far a step is.
// +kubebuilder:validation:Enum=Waiting;Running;Succeeded;Failed
type StepState string

// States of a step. Which one it is in says the JobSet, so a step whose pods are not all ready is Waiting.
const (
	StepWaiting   StepState = "Waiting"
	StepRunning   StepState = "Running"
	StepSucceeded StepState = "Succeeded"
	StepFailed    StepState = "Failed"
)

// Step is a part of a job that has pods of its own.
type Step struct {
	// name of the step: dataset-initializer, model-initializer, launcher, trainer, or what the runtime calls it.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// state of the step.
	State StepState `json:"state"`
}

// DispatchStatus is what is known of the copy.
type DispatchStatus struct {
	// phase sums up the conditions for people.
	// +optional
	// +kubebuilder:default=Pending
	Phase DispatchPhase `json:"phase,omitempty"`
	// reason of the condition that makes the phase.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// cluster on which a copy exists or may exist.
	// +optional
	Cluster ClusterName `json:"cluster,omitempty"`
	// attempt of that copy.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// copyUID is the UID of the copy on the worker.
	// +optional
	CopyUID types.UID `json:"copyUID,omitempty"`
	// steps of the job, in the order of the runtime. Once the job has ended none is Running: those that were have ended with it.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Steps []Step `json:"steps,omitempty"`
	// restarts is how often the JobSet of the copy has restarted, wholly or one of its Jobs.
	// +optional
	Restarts int32 `json:"restarts,omitempty"`
	// startTime is when the JobSet of the copy was created or last resumed, by the worker's clock.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// completionTime is when the copy became Complete or Failed, by the worker's clock.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// conditions: Placed, Mirrored, Finished; Evicting and WorkerLost while they say something.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// history of past attempts, the oldest first, the last 16.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	History []Attempt `json:"history,omitempty"`
	// refusals has an entry for each worker that has refused the job, or has lost its copy.
	// +optional
	// +listType=map
	// +listMapKey=cluster
	// +kubebuilder:validation:MaxItems=1000
	Refusals []Refusal `json:"refusals,omitempty"`
	// explanation has a line per worker, sorted by name: why a waiting job is not there.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Explanation []ClusterExplanation `json:"explanation,omitempty"`
}

// Dispatch is the record of one TrainJob's placement: same namespace and name as the TrainJob, owned by it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=trainyard
// +kubebuilder:printcolumn:name="TrainJob",type=string,JSONPath=`.spec.trainJob.name`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.spec.attempt`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Priority",type=integer,priority=1,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Step",type=string,priority=1,JSONPath=`.status.steps[?(@.state=="Running")].name`
// +kubebuilder:printcolumn:name="Restarts",type=integer,priority=1,JSONPath=`.status.restarts`
// +kubebuilder:printcolumn:name="Started",type=date,priority=1,JSONPath=`.status.startTime`
// +kubebuilder:printcolumn:name="Completed",type=date,priority=1,JSONPath=`.status.completionTime`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == self.spec.trainJob.name",message="a Dispatch has the name of its TrainJob"
type Dispatch struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the decision.
	Spec DispatchSpec `json:"spec"`
	// status is what is known of the copy.
	// +optional
	// +kubebuilder:default={phase: "Pending"}
	Status DispatchStatus `json:"status,omitempty"`
}

// DispatchList is a list of Dispatches.
// +kubebuilder:object:root=true
type DispatchList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Dispatch `json:"items"`
}
