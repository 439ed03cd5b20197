// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// DispatchPhase sums up a Dispatch for people. Controllers read conditions.
// +kubebuilder:validation:Enum=Pending;Waiting;Queued;Starting;Running;Restarting;Evicting;WorkerLost;Finished
type DispatchPhase string

const (
	// PhasePending means that nothing has been reported since the last decision.
	PhasePending DispatchPhase = "Pending"
	// PhaseWaiting means that no worker is chosen. The reason says why.
	PhaseWaiting DispatchPhase = "Waiting"
	// PhaseQueued means that the copy exists on the worker, but the worker does not let it run yet.
	PhaseQueued DispatchPhase = "Queued"
	// PhaseStarting means that the copy exists on the worker and may run, and that no step of it has begun to run, or that
	// the next step has not.
	PhaseStarting DispatchPhase = "Starting"
	// PhaseRunning means that a step of the copy runs: all its pods are ready. Older releases wrote it for PhaseStarting and
	// PhaseRestarting too.
	PhaseRunning DispatchPhase = "Running"
	// PhaseRestarting means that a step of the copy has run, and that its pods are started again.
	PhaseRestarting DispatchPhase = "Restarting"
	// PhaseEvicting means that the copy is being stopped, so that the job can be placed again.
	PhaseEvicting DispatchPhase = "Evicting"
	// PhaseWorkerLost means that the worker has not answered for longer than its grace period.
	PhaseWorkerLost DispatchPhase = "WorkerLost"
	// PhaseFinished means that the copy is Complete or Failed.
	PhaseFinished DispatchPhase = "Finished"
)

// Outcome says how an attempt ended.
// +kubebuilder:validation:Enum=Complete;Failed;Rejected;NameConflict;CopyDeleted;CopyChanged;JobChanged;RuntimeChanged;Preempted;Drained;AdmissionTimeout;Suspended;ManagedByMultiKueue;WorkerLost
type Outcome string

// Outcomes of an attempt. Each is also the reason of the condition that reports it. dispatch/record has a row for each.
const (
	// OutcomeComplete: the copy is Complete.
	OutcomeComplete Outcome = ReasonComplete
	// OutcomeFailed: the copy is Failed.
	OutcomeFailed Outcome = ReasonFailed
	// OutcomeRejected: the worker refused the copy, or its Kueue will not admit the copy.
	OutcomeRejected Outcome = ReasonRejected
	// OutcomeNameConflict: the worker has a foreign TrainJob of the same name.
	OutcomeNameConflict Outcome = ReasonNameConflict
	// OutcomeCopyDeleted: somebody deleted the copy on the worker before it had finished.
	OutcomeCopyDeleted Outcome = "CopyDeleted"
	// OutcomeCopyChanged: somebody on the worker changes the copy again and again, or it could not be changed back.
	OutcomeCopyChanged Outcome = "CopyChanged"
	// OutcomeJobChanged: the TrainJob or its runtime was changed after the job was placed and before its copy was created.
	// The job is counted and placed anew.
	OutcomeJobChanged Outcome = "JobChanged"
	// OutcomeRuntimeChanged: the worker's own runtime was changed after the job was placed and before its copy was created.
	// The job is counted and placed anew.
	OutcomeRuntimeChanged Outcome = "RuntimeChanged"
	// OutcomePreempted: the copy was stopped to make room for a job of higher priority.
	OutcomePreempted Outcome = "Preempted"
	// OutcomeDrained: the copy was stopped because its worker is being drained, and the job fits on another worker.
	OutcomeDrained Outcome = "Drained"
	// OutcomeAdmissionTimeout: the worker did not let the copy run within the policy's admissionTimeout.
	OutcomeAdmissionTimeout Outcome = "AdmissionTimeout"
	// OutcomeSuspended: the TrainJob was suspended. When it is resumed, it is placed again.
	OutcomeSuspended Outcome = ReasonSuspended
	// OutcomeManagedByMultiKueue: MultiKueue of the hub's Kueue dispatches the job now.
	OutcomeManagedByMultiKueue Outcome = ReasonManagedByMultiKueue
	// OutcomeWorkerLost: the worker has not answered for longer than its grace period, and failover places the job again.
	OutcomeWorkerLost Outcome = ReasonWorkerLost
)

// Attempt is one past placement.
type Attempt struct {
	// attempt is the number of the attempt.
	Attempt int32 `json:"attempt"`
	// cluster is the worker of the attempt.
	Cluster ClusterName `json:"cluster"`
	// to is when the attempt ended, by the hub's clock.
	To metav1.Time `json:"to"`
	// startTime is when the copy's JobSet was created or last resumed, by the worker's clock. Absent: it did not start, or
	// the hub did not see it.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// firstRunningTime is when the hub first saw a step of the copy run that is no initializer, by the hub's clock. Absent:
	// none ran, or the hub did not see it, or an older release wrote the entry.
	// +optional
	FirstRunningTime *metav1.Time `json:"firstRunningTime,omitempty"`
	// progress is what the process reported last. Absent: it reported nothing.
	// +optional
	Progress *Progress `json:"progress,omitempty"`
	// gpuSeconds is the number of GPUs or other accelerators that the pods of the attempt request, times the seconds from
	// startTime to the end or the deletion of the copy, both by the worker's clock. Absent: a time is not known, or the job
	// requests none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	GPUSeconds *int64 `json:"gpuSeconds,omitempty"`
	// shareSeconds is the same for shares of devices, such as MIG slices.
	// +optional
	// +kubebuilder:validation:Minimum=0
	ShareSeconds *int64 `json:"shareSeconds,omitempty"`
	// outcome is the outcome of the attempt.
	Outcome Outcome `json:"outcome"`
	// message has the worker's words, shortened.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}

// Refusal counts how often a worker has ended an attempt of the job without running it. It may return later.
type Refusal struct {
	// cluster is the worker.
	Cluster ClusterName `json:"cluster"`
	// outcome is the outcome of the last such attempt.
	Outcome Outcome `json:"outcome"`
	// message has the worker's words, shortened.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// domain is where on the worker the last such attempt was, if outcome is AdmissionTimeout and the job has a topology.
	// Then it is the domain that did not let the job run, and the job may go to another domain of the worker at once.
	// +optional
	Domain *Domain `json:"domain,omitempty"`
	// count is the number of such attempts.
	Count int32 `json:"count"`
	// last is when the last such attempt ended, by the hub's clock.
	Last metav1.Time `json:"last"`
}

// ClusterExplanation is one worker's line in the explanation of a decision.
type ClusterExplanation struct {
	// cluster is the worker.
	Cluster ClusterName `json:"cluster"`
	// reason is Fits, or the filter that rejected the worker.
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason"`
	// message says what was missing.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// score is the score of a worker that fits, 0 to 100. The highest score wins.
	// +optional
	Score *int32 `json:"score,omitempty"`
	// domain is the domain of the worker that is best for a job with a topology. The message is about it. Absent: none is,
	// or the job has no topology.
	// +optional
	Domain *Domain `json:"domain,omitempty"`
}

// Steps of a job. A runtime may have other steps with names of its own. Replicated jobs have the names of their steps,
// but for the trainer, whose replicated job is "node".
const (
	StepDatasetInitializer = "dataset-initializer"
	StepModelInitializer   = "model-initializer"
	StepLauncher           = "launcher"
	StepTrainer            = "trainer"
)

// StepState says how far a step is.
// +kubebuilder:validation:Enum=Waiting;Running;Succeeded;Failed;Stopped
type StepState string

// States of a step. They come from the JobSet, so a step whose pods are not all ready is Waiting.
const (
	StepWaiting   StepState = "Waiting"
	StepRunning   StepState = "Running"
	StepSucceeded StepState = "Succeeded"
	StepFailed    StepState = "Failed"
	// StepStopped: the job is Complete, and this step has not succeeded: the JobSet's successPolicy does not need it.
	StepStopped StepState = "Stopped"
)

// Step is a part of a job with pods of its own.
type Step struct {
	// name is the name of the step: dataset-initializer, model-initializer, launcher, trainer, or the runtime's own name.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// state is the state of the step.
	State StepState `json:"state"`
}

// DispatchStatus is what is known of the copy.
type DispatchStatus struct {
	// phase sums up the conditions for people.
	// +optional
	// +kubebuilder:default=Pending
	Phase DispatchPhase `json:"phase,omitempty"`
	// reason is the reason of the condition that decides the phase.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Reason string `json:"reason,omitempty"`
	// cluster is the worker on which a copy exists or may exist.
	// +optional
	Cluster ClusterName `json:"cluster,omitempty"`
	// attempt is the attempt of that copy.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// copyUID is the UID of the copy on the worker.
	// +optional
	CopyUID types.UID `json:"copyUID,omitempty"`
	// steps are the steps of the job, in the order of the runtime. After the end of the job, no step is Running.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=100
	Steps []Step `json:"steps,omitempty"`
	// waitingSince is since when the job has waited for a worker on which it runs, once an attempt has ended: since the
	// job came onto the waiting list, whatever attempts never ran since then, or since the end of the last attempt that ran.
	// Absent: the time of the condition Placed=False counts, or the job does not wait. giveUpAfter counts from it.
	// +optional
	WaitingSince *metav1.Time `json:"waitingSince,omitempty"`
	// restarts is how often the copy's JobSet has restarted as a whole or has restarted one of its Jobs, plus stops.
	// +optional
	Restarts int32 `json:"restarts,omitempty"`
	// stops is how often the copy was stopped on its worker after it had started, by the worker's Kueue or agent, and stayed
	// the copy of the attempt.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Stops int32 `json:"stops,omitempty"`
	// startTime is when the copy's JobSet was created or last resumed, by the worker's clock.
	// +optional
	StartTime *metav1.Time `json:"startTime,omitempty"`
	// firstRunningTime is when the hub first saw a step of the copy run that is no initializer, by the hub's clock: all pods
	// of the step were ready.
	// +optional
	FirstRunningTime *metav1.Time `json:"firstRunningTime,omitempty"`
	// progress is what the process of the copy has reported, as of the last write of this status. No write is made for it:
	// the TrainJob's status.trainerStatus has the latest report.
	// +optional
	Progress *Progress `json:"progress,omitempty"`
	// lastCheckpoint is the last checkpoint that the process of the copy has reported, by the metric checkpoint_step. It is
	// kept for jobs with spec.checkpoint.
	// +optional
	LastCheckpoint *SavedCheckpoint `json:"lastCheckpoint,omitempty"`
	// completionTime is when the copy became Complete or Failed, by the worker's clock.
	// +optional
	CompletionTime *metav1.Time `json:"completionTime,omitempty"`
	// conditions are Placed, Mirrored and Finished, and Healthy, Evicting, WorkerLost and WriteRefused when they apply.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// history has the last 16 past attempts, the oldest first. The last attempt that has firstRunningTime stays, however many
	// attempts come after it.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	History []Attempt `json:"history,omitempty"`
	// refusals has an entry for each worker that has refused the job or lost its copy.
	// +optional
	// +listType=map
	// +listMapKey=cluster
	// +kubebuilder:validation:MaxItems=1000
	Refusals []Refusal `json:"refusals,omitempty"`
	// explanation has a line per worker, sorted by name. It says why a waiting job is not on that worker.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1000
	Explanation []ClusterExplanation `json:"explanation,omitempty"`
}
