// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationClusters on a hub TrainJob pins it: a label selector, as kubectl takes it, of the WorkerClusters on which the job may
// run. It narrows what the job's policy allows, and never widens it. It counts when the job is placed; a job that is placed stays.
const AnnotationClusters = "trainyard.dev/clusters"

// AnnotationDecision on a Dispatch says why its worker was chosen: the score with its parts, and of how many workers.
const AnnotationDecision = "trainyard.dev/decision"

// DispatchPolicyValid is the condition type that says whether a policy can be applied. The jobs of one that cannot wait.
const DispatchPolicyValid = "Valid"

// Reasons of DispatchPolicyValid.
const (
	// ReasonValid: all selectors can be parsed, and the expression has been compiled.
	ReasonValid = "Valid"
	// ReasonInvalid: the message lists every fault, those of the expression with line and column.
	ReasonInvalid = "Invalid"
)

// Reasons of DispatchPlaced that come from a job's policy and pin.
const (
	// ReasonInvalidPolicy: the DispatchPolicy that the job belongs to has a fault; no worker is asked until it is repaired.
	ReasonInvalidPolicy = "InvalidPolicy"
	// ReasonInvalidPin: the job's annotation trainyard.dev/clusters is no label selector.
	ReasonInvalidPin = "InvalidPin"
)

// ReasonPinMismatch stands in DispatchStatus.Explanation: the job's annotation trainyard.dev/clusters does not select the worker.
const ReasonPinMismatch = "PinMismatch"

// JobSelector selects TrainJobs. An absent selector selects all.
type JobSelector struct {
	// namespaceSelector on the labels of the job's namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// selector on the labels of the job.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ClusterSelector selects WorkerClusters: those that both of its fields let through. What is absent lets all through.
type ClusterSelector struct {
	// selector on the labels of the WorkerCluster.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// expression in CEL that is true for the workers on which a job may run. It sees the worker
	// (worker.name, labels, kubernetesVersion, price, allocatable, free, gpus, freeGPUs, nodeGroups, assigned, queued) and the job
	// (job.name, namespace, labels, annotations, priority, podSets). Amounts are doubles: cpu in cores, memory in bytes.
	// Where it fails, because a worker lacks a label for instance, the worker is not taken, and the explanation says why.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression,omitempty"`
}

// ScoreName names a score, a number from 0 to 100 for each worker on which a job fits.
// +kubebuilder:validation:Enum=LeastAllocated;MostAllocated;Price;QueueDepth;Sticky
type ScoreName string

// The scores.
const (
	// ScoreLeastAllocated: the share of the job's dominant resource (GPUs if it requests any) that is free when the job is placed.
	// It spreads jobs.
	ScoreLeastAllocated ScoreName = "LeastAllocated"
	// ScoreMostAllocated: how much of what is free on the nodes that the job would take it would use, and, counting a third of
	// that, how full the worker would be. It fills fragments, so that whole nodes stay free for gangs. One point goes
	// off for each job that has been placed there and has no pods yet, so that jobs that come at once spread over
	// workers that differ by little.
	ScoreMostAllocated ScoreName = "MostAllocated"
	// ScorePrice: what the job costs there per hour: 100 if nothing, 0 if as much as at the ceiling or more.
	ScorePrice ScoreName = "Price"
	// ScoreQueueDepth: 100 divided by one more than the number of jobs that have been placed there and have no pods yet.
	ScoreQueueDepth ScoreName = "QueueDepth"
	// ScoreSticky: 100 where the job ran before, which has its images and perhaps its data, and 0 elsewhere.
	ScoreSticky ScoreName = "Sticky"
)

// Score is how much a score counts.
// +kubebuilder:validation:XValidation:rule="self.name == 'Price' || !has(self.ceiling)",message="only the score Price has a ceiling"
type Score struct {
	// name of the score.
	Name ScoreName `json:"name"`
	// weight of the score. The total is the average by weight.
	// +optional
	// +kubebuilder:default=1
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100
	Weight int32 `json:"weight,omitempty"`
	// ceiling of Price, per unit and hour as WorkerCluster's spec.price: at these prices a job's score is 0. Resources that are
	// absent have the highest price that any WorkerCluster asks. Give it if a new, dear worker must not make the others alike.
	// +optional
	Ceiling Prices `json:"ceiling,omitempty"`
}

// Queueing says in which order the waiting jobs of a policy are placed. Both go by priority, then age.
// +kubebuilder:validation:Enum=BestEffortFIFO;StrictFIFO
type Queueing string

const (
	// BestEffortFIFO lets a job that fits somewhere pass those before it that do not, until one of them has waited for
	// reserveAfter.
	BestEffortFIFO Queueing = "BestEffortFIFO"
	// StrictFIFO holds every job of the policy back while one before it waits for room.
	StrictFIFO Queueing = "StrictFIFO"
)

// Preemption says whether a job that fits nowhere may have others stopped.
// +kubebuilder:validation:Enum=Never;LowerPriority
type Preemption string

const (
	// PreemptNever stops no job.
	PreemptNever Preemption = "Never"
	// PreemptLowerPriority stops as few jobs of lower priority as give the job room on one worker. They wait again then, each in
	// its place in the order.
	PreemptLowerPriority Preemption = "LowerPriority"
)

// Failover says what happens to a job whose worker is lost: that has not answered for longer than its grace period.
// +kubebuilder:validation:Enum=Hold;Fenced;Immediate
type Failover string

const (
	// FailoverHold leaves the job where it is until its worker answers again.
	FailoverHold Failover = "Hold"
	// FailoverFenced places the job anew when its copy is known to be stopped, or when the worker's agent must have stopped it: it stops
	// what is Fenced when it has had no sign of life from the hub for the worker's fenceAfter. A worker whose agent does not answer when
	// the job is placed, or when the worker is lost, is treated as with Hold; so is one at whose address something still answers, for
	// there the API server that the agent needs may be down while the job runs on.
	FailoverFenced Failover = "Fenced"
	// FailoverImmediate places the job anew as soon as the grace period is over. If the worker is cut off and not dead, the job runs twice
	// until it is back: take it for jobs only that cannot do harm to each other.
	FailoverImmediate Failover = "Immediate"
)

// PodSecurity says what a namespace on a worker counts for that enforces less of Pod Security than the namespace of
// the hub.
// +kubebuilder:validation:Enum=Enforce;Ignore
type PodSecurity string

const (
	// PodSecurityEnforce takes such a namespace for a refusal of the worker: the next worker is tried.
	PodSecurityEnforce PodSecurity = "Enforce"
	// PodSecurityIgnore leaves it to the worker's admin what pods may do there.
	PodSecurityIgnore PodSecurity = "Ignore"
)

// Propagation says what Trainyard may create on a worker because a job needs it.
type Propagation struct {
	// namespaces: create the job's namespace where it is missing.
	// +optional
	// +kubebuilder:default=true
	Namespaces *bool `json:"namespaces,omitempty"`
	// runtimes: create the job's runtime where it is missing, and update it where Trainyard created it.
	// +optional
	// +kubebuilder:default=true
	Runtimes *bool `json:"runtimes,omitempty"`
	// podSecurity: whether a worker is refused whose namespace is there already and enforces, by its labels
	// pod-security.kubernetes.io/, less than the hub's. A namespace that is created gets the labels of the hub's.
	// +optional
	// +kubebuilder:default=Enforce
	PodSecurity PodSecurity `json:"podSecurity,omitempty"`
}

// DispatchPolicySpec is a rule about which jobs may go where.
type DispatchPolicySpec struct {
	// jobs to which the policy applies. Absent: all.
	// +optional
	Jobs JobSelector `json:"jobs,omitempty"`
	// priority: of the policies that match a job the one with the highest wins, ties by name.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// clusters on which the jobs may run. Absent: all.
	// +optional
	Clusters ClusterSelector `json:"clusters,omitempty"`
	// scoring says which of the workers on which a job fits gets it: the one with the highest total, and of equal ones a
	// different one for each job. Absent: MostAllocated.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Scoring []Score `json:"scoring,omitempty"`
	// queueing says whether smaller jobs may pass those that wait for room. Absent: BestEffortFIFO.
	// +optional
	Queueing Queueing `json:"queueing,omitempty"`
	// reserveAfter is how long a job lets others pass. Then a worker is chosen for it, on which jobs behind it get only what it does
	// not need, so that it is not passed for ever. Absent: 2h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="reserveAfter must not be negative"
	ReserveAfter *metav1.Duration `json:"reserveAfter,omitempty"`
	// preemption says whether a job of this policy that fits nowhere may have jobs of lower priority stopped, those of other policies
	// too. Absent: Never.
	// +optional
	Preemption Preemption `json:"preemption,omitempty"`
	// priorityClasses are the names of the PriorityClasses that jobs of this policy may name, by the annotation
	// trainyard.dev/priority-class or in their pods. A job that names another one waits. Absent: all but the system's,
	// which are those whose names begin with "system-" and those of a value above 1000000000.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	PriorityClasses []string `json:"priorityClasses,omitempty"`
	// failover says what happens to a job whose worker is lost. It counts when the job is placed. Absent: Fenced on workers whose agent
	// answers, Hold on others.
	// +optional
	Failover Failover `json:"failover,omitempty"`
	// maxConcurrentMoves is how many jobs of this policy may be on their way from drained workers at a time. Absent: 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConcurrentMoves *int32 `json:"maxConcurrentMoves,omitempty"`
	// admissionTimeout is how long a copy may stay suspended by its worker's own queue, or without any pod, until the job is moved to
	// another worker. Absent: for ever.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="admissionTimeout must be positive"
	AdmissionTimeout *metav1.Duration `json:"admissionTimeout,omitempty"`
	// propagate says what may be created on a worker because a job needs it. Absent: namespaces and runtimes.
	// +optional
	Propagate *Propagation `json:"propagate,omitempty"`
	// retention is how long a finished copy stays on its worker, so that its logs can be read. Absent: 1h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="retention must not be negative"
	Retention *metav1.Duration `json:"retention,omitempty"`
}

// DispatchPolicyStatus says whether the policy can be applied.
type DispatchPolicyStatus struct {
	// conditions: Valid.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DispatchPolicy is a rule about which jobs may go where. Without any policy every job may go everywhere; as soon as there is
// one, a job that no policy matches waits.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=trainyard
// +kubebuilder:printcolumn:name="Valid",type=string,JSONPath=`.status.conditions[?(@.type=="Valid")].status`
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Retention",type=string,JSONPath=`.spec.retention`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type DispatchPolicy struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the rule.
	// +optional
	Spec DispatchPolicySpec `json:"spec,omitempty"`
	// status says whether the policy can be applied.
	// +optional
	Status DispatchPolicyStatus `json:"status,omitempty"`
}

// DispatchPolicyList is a list of DispatchPolicies.
// +kubebuilder:object:root=true
type DispatchPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DispatchPolicy `json:"items"`
}
