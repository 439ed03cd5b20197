// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationClusters on a hub TrainJob pins the job to WorkerClusters by a label selector, as kubectl takes it. It
// narrows what the job's policy allows, and never widens it. It counts when the job is placed. A placed job stays.
const AnnotationClusters = "trainyard.dev/clusters"

// AnnotationDecision on a Dispatch says why its worker was chosen: the score with its parts, and from how many workers.
const AnnotationDecision = "trainyard.dev/decision"

// AnnotationAdopted on a Dispatch is the number of the latest attempt that began with a copy that was found: the hub had
// no record of the attempt. Later attempts leave the annotation as it is.
const AnnotationAdopted = "trainyard.dev/adopted"

// DispatchPolicyValid is the condition type that says whether a policy can be applied. Otherwise the policy's jobs
// wait.
const DispatchPolicyValid = "Valid"

// Reasons of DispatchPolicyValid.
const (
	// ReasonValid: all selectors are valid, and the expression compiles.
	ReasonValid = "Valid"
	// ReasonInvalid: the message lists every fault. Faults of the expression have line and column.
	ReasonInvalid = "Invalid"
)

// JobSelector selects TrainJobs. An absent selector selects all.
type JobSelector struct {
	// namespaceSelector selects jobs by the labels of their namespace on the hub. Absent: all.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// selector selects jobs by the labels of the TrainJob. A job must match both selectors. Absent: all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ClusterSelector selects the WorkerClusters that match both of its fields. An absent field matches all.
type ClusterSelector struct {
	// selector selects WorkerClusters by their labels. Absent: all.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
	// expression is a CEL expression that is true for the workers on which a job may run. It sees the worker (worker.name,
	// labels, kubernetesVersion, price, allocatable, free, gpus, freeGPUs, nodeGroups, assigned, queued) and the job
	// (job.name, namespace, labels, annotations, priority, podSets). Amounts are doubles: cpu in cores, memory in bytes.
	// If it fails, for instance because a worker lacks a label, the worker is not used, and the explanation says why. A
	// worker must pass both selector and expression. Absent: all.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Expression string `json:"expression,omitempty"`
}

// Queueing says in which order a policy's waiting jobs are placed. Both values order by priority, then by age.
// +kubebuilder:validation:Enum=BestEffortFIFO;StrictFIFO
type Queueing string

const (
	// BestEffortFIFO lets jobs that fit pass earlier jobs that do not fit, until one has waited for reserveAfter.
	BestEffortFIFO Queueing = "BestEffortFIFO"
	// StrictFIFO holds all jobs of the policy back while an earlier one waits for room.
	StrictFIFO Queueing = "StrictFIFO"
)

// Preemption says whether a job that fits nowhere may stop other jobs.
// +kubebuilder:validation:Enum=Never;LowerPriority
type Preemption string

const (
	// PreemptNever stops no job.
	PreemptNever Preemption = "Never"
	// PreemptLowerPriority stops as few jobs of lower priority as possible to make room for the job on one worker. The
	// stopped jobs wait again, each in its place in the order.
	PreemptLowerPriority Preemption = "LowerPriority"
)

// Failover says what happens to a job whose worker is lost, which is silent for longer than its grace period.
// +kubebuilder:validation:Enum=Hold;Fenced;Immediate
type Failover string

const (
	// FailoverHold leaves the job on its worker until the worker answers again.
	FailoverHold Failover = "Hold"
	// FailoverFenced places the job again when its copy is known to be stopped, or when the worker's agent must have
	// stopped it. The agent has stopped such copies after fenceAfter without a sign of life from the hub. It acts like
	// Hold if the agent does not answer when the job is placed or when the worker is lost. It also acts like Hold if
	// something still answers at the worker's address: the API server that the agent needs may be down while the job
	// runs on.
	FailoverFenced Failover = "Fenced"
	// FailoverImmediate places the job again as soon as the grace period is over. If the worker is cut off but alive, the
	// job runs twice until the worker is back. Use it only for jobs that cannot harm each other.
	FailoverImmediate Failover = "Immediate"
)

// PodSecurity says what happens if a worker's namespace enforces less of Pod Security than the hub's namespace.
// +kubebuilder:validation:Enum=Enforce;Ignore
type PodSecurity string

const (
	// PodSecurityEnforce treats that as a refusal of the worker: the job is placed on another worker.
	PodSecurityEnforce PodSecurity = "Enforce"
	// PodSecurityIgnore lets the worker's admin decide what pods may do there.
	PodSecurityIgnore PodSecurity = "Ignore"
)

// HubFlavors says what the node labels and tolerations count that the hub's Kueue has written into a job for the
// ResourceFlavors that it has assigned.
// +kubebuilder:validation:Enum=Ignore;Require;Propagate
type HubFlavors string

const (
	// HubFlavorsIgnore takes flavors for accounts of the hub: they say nothing about the nodes of workers.
	HubFlavorsIgnore HubFlavors = "Ignore"
	// HubFlavorsRequire chooses a worker that has room on nodes with these labels. The copy does not get them.
	HubFlavorsRequire HubFlavors = "Require"
	// HubFlavorsPropagate is HubFlavorsRequire, and the copy gets the labels as node selectors, and the tolerations.
	HubFlavorsPropagate HubFlavors = "Propagate"
)

// RuntimeRule says on which workers a job may run, by the runtimes that they have under the name of the job's runtime.
// +kubebuilder:validation:Enum=Any;Same;Pin
type RuntimeRule string

const (
	// RuntimeAny takes a worker's runtime as it is.
	RuntimeAny RuntimeRule = "Any"
	// RuntimeSame takes only workers whose runtime is known to be the hub's, or is made from it for the job.
	RuntimeSame RuntimeRule = "Same"
	// RuntimePin gives the copy a runtime of its own name on the worker, made from the hub's. What the worker has under the
	// name of the job's runtime does not matter.
	RuntimePin RuntimeRule = "Pin"
)

// SkewRule says what happens to a job that uses a field which the TrainJobs of a worker do not have.
// +kubebuilder:validation:Enum=Refuse;Translate
type SkewRule string

const (
	// SkewRefuse keeps the job off the worker.
	SkewRefuse SkewRule = "Refuse"
	// SkewTranslate lets the copy say the same with the fields that the worker has, and keeps the job off the worker if that
	// is not possible exactly.
	SkewTranslate SkewRule = "Translate"
)

// UnmanagedJobs says what happens to new TrainJobs that name no manager.
// +kubebuilder:validation:Enum=Ignore;Dispatch
type UnmanagedJobs string

const (
	// UnmanagedIgnore leaves them to the hub's own controller, unless their namespace has LabelDispatch.
	UnmanagedIgnore UnmanagedJobs = "Ignore"
	// UnmanagedDispatch lets the hub's webhook give them the manager's value of spec.managedBy, unless their namespace has
	// LabelDispatch with another value than DispatchYes.
	UnmanagedDispatch UnmanagedJobs = "Dispatch"
)

// DependencyKind is a kind of objects that pods name, and that Trainyard can bring to workers.
// +kubebuilder:validation:Enum=ConfigMaps;Secrets;ServiceAccounts
type DependencyKind string

// The kinds of dependencies.
const (
	DependConfigMaps      DependencyKind = "ConfigMaps"
	DependSecrets         DependencyKind = "Secrets"
	DependServiceAccounts DependencyKind = "ServiceAccounts"
)

// Propagation says what Trainyard may create on a worker because a job needs it.
type Propagation struct {
	// namespaces says whether to create the job's namespace if it is missing.
	// +optional
	// +kubebuilder:default=true
	Namespaces *bool `json:"namespaces,omitempty"`
	// runtimes says whether to create the job's runtime if it is missing, and to update it if Trainyard created it. If
	// copies that the worker's Kueue runs use an earlier version, the job gets the newer version under a name of its own.
	// +optional
	// +kubebuilder:default=true
	Runtimes *bool `json:"runtimes,omitempty"`
	// podSecurity says what happens if a worker's existing namespace enforces less than the hub's, by the labels
	// pod-security.kubernetes.io/. Enforce: the worker has refused the job, and the next worker is tried. Ignore: the
	// admin of the worker decides what pods may do there. A created namespace gets the labels of the hub's namespace.
	// +optional
	// +kubebuilder:default=Enforce
	PodSecurity PodSecurity `json:"podSecurity,omitempty"`
	// dependencies are the kinds of objects that a job's worker gets from the hub if pods of the job name them: only objects
	// with the label trainyard.dev/propagate: "true" on the hub, and only in namespaces of the worker that Trainyard has made
	// there or that have the label trainyard.dev/dependencies: "true". It takes the manager's option --dependencies, and the
	// rights of config/worker-dependencies. With a ServiceAccount come the Secrets that it pulls images with, if they have the
	// label too. It counts when the job is placed. Absent: none.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=3
	Dependencies []DependencyKind `json:"dependencies,omitempty"`
}

// DispatchPolicySpec is a rule about which jobs may run where.
type DispatchPolicySpec struct {
	// jobs are the jobs to which the policy applies. Absent: all.
	// +optional
	Jobs JobSelector `json:"jobs,omitempty"`
	// priority decides if several policies select a job: the highest priority applies, then the first name. It is not the
	// priority of jobs. Absent: 0.
	// +optional
	Priority int32 `json:"priority,omitempty"`
	// clusters are the workers on which the jobs may run. Absent: all.
	// +optional
	Clusters ClusterSelector `json:"clusters,omitempty"`
	// scoring decides which of the workers on which a job fits gets the job: the worker with the highest total. Among
	// equal workers, the choice differs from job to job. Absent: MostAllocated.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=8
	Scoring []Score `json:"scoring,omitempty"`
	// addNodes says whether jobs may get nodes that a worker has to add first, as spec.expandable of its WorkerCluster
	// says. Last: only where no worker has room on nodes that are there, whatever the scores are; of the workers that would
	// add nodes, the one that adds the cheapest gets the job, then the one that adds the fewest, then the one with the
	// highest total. ByScore: the scores alone decide, whether nodes are there or not. Never: only nodes that are there
	// count. Absent: Last.
	// +optional
	AddNodes AddNodes `json:"addNodes,omitempty"`
	// queueing says whether jobs may pass jobs before them that wait for room. BestEffortFIFO: a job that fits passes jobs
	// that do not fit. StrictFIFO: a job that waits for room holds back all jobs of the policy behind it. If a job would
	// not fit on any worker even without other jobs there, it holds no other job back. Absent: BestEffortFIFO.
	// +optional
	Queueing Queueing `json:"queueing,omitempty"`
	// reserveAfter is how long other jobs may pass a waiting job. Then a worker is reserved for it: later jobs get there
	// only what it does not need, so that it does not wait for ever. Absent: 2h.
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="reserveAfter must not be negative"
	ReserveAfter *metav1.Duration `json:"reserveAfter,omitempty"`
	// preemption says whether a job of this policy that fits nowhere may have jobs of lower priority stopped, of other
	// policies too. As few are stopped as make room on one worker, and they wait again in their old places. Before that,
	// the worker must accept the job in a dry run. Absent: Never.
	// +optional
	Preemption Preemption `json:"preemption,omitempty"`
	// priorityClasses are the names of the PriorityClasses that jobs of this policy may use, by the annotation
	// trainyard.dev/priority-class or in their pods, and of the WorkloadPriorityClasses that they may bring to the Kueue
	// of a worker, by the label kueue.x-k8s.io/priority-class. A job that names another class waits with reason
	// PriorityClassNotAllowed. Absent: all WorkloadPriorityClasses, and all PriorityClasses but the system's, which have
	// names that begin with "system-" or values above 1000000000.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=253
	PriorityClasses []string `json:"priorityClasses,omitempty"`
	// failover says what happens to a job whose worker is lost. It counts when the job is placed. Absent: Fenced on
	// workers whose agent answers, Hold on other workers.
	// +optional
	Failover Failover `json:"failover,omitempty"`
	// maxConcurrentMoves is how many jobs of this policy may move away from drained workers at a time. A job that comes no
	// further for ten minutes, because its pods do not stop or because no worker may take it any more, does not count.
	// Absent: 1.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MaxConcurrentMoves *int32 `json:"maxConcurrentMoves,omitempty"`
	// admissionTimeout is how long the worker's own queue may keep a copy suspended, or a copy may have no pods or a pod
	// without a node, until the job is moved. For a pod without a node, the time counts from the creation of the copy, and
	// the agent reports it only after 5 minutes. The job moves only if another worker has room. Absent: for ever.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="admissionTimeout must be positive"
	AdmissionTimeout *metav1.Duration `json:"admissionTimeout,omitempty"`
	// giveUpAfter is how long a job may wait for a worker. Then the manager gives it up: the TrainJob becomes Failed, and the
	// message says why each worker did not take it. Attempts that never ran, because workers refused them, do not interrupt
	// the waiting. The time in which the job is suspended or waits for the hub's Kueue does not count. It begins anew when an
	// attempt that ran has ended. A job that may have a copy somewhere is not given up, and neither are jobs that MultiKueue
	// dispatches. Absent: for ever.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="giveUpAfter must be positive"
	GiveUpAfter *metav1.Duration `json:"giveUpAfter,omitempty"`
	// workerQueue says into which LocalQueue of its worker a copy comes: FromJob, None, or the name of a LocalQueue. The
	// workerQueue of a WorkerCluster counts before it. Absent: FromJob; None for a job that the hub's Kueue has in its
	// queue.
	// +optional
	WorkerQueue WorkerQueue `json:"workerQueue,omitempty"`
	// hubFlavors says what the node labels and tolerations count of the flavors that the hub's Kueue has assigned to a
	// job. Ignore: they have no effect. Require: they limit the choice of worker and nodes. Propagate: the pods of the
	// copy also get them. Absent: Ignore.
	// +optional
	HubFlavors HubFlavors `json:"hubFlavors,omitempty"`
	// unmanagedJobs says whether new TrainJobs that name no manager, and to which the policy would apply, are dispatched.
	// The hub's webhook does that. A policy without selectors takes all such jobs of the hub. Absent: Ignore.
	// +optional
	UnmanagedJobs UnmanagedJobs `json:"unmanagedJobs,omitempty"`
	// checkpoint is for jobs that save checkpoints: an attempt is told where the last one has left off, in variables
	// TRAINYARD_ of its environment. An empty object is enough for that. Absent: attempts are told nothing.
	// +optional
	Checkpoint *Checkpointing `json:"checkpoint,omitempty"`
	// runtime says whether a worker may have another runtime than the hub under the name of the job's runtime. Any: the
	// worker's runtime is taken as it is. Same: the job gets only workers whose runtime is known to be equal to the hub's,
	// or to which propagate.runtimes brings the hub's runtime. Pin: the copy names a TrainingRuntime of its namespace that the
	// manager makes from the hub's runtime, under a name that nothing else has, and never changes. That is decided when the
	// job is placed, and needs propagate.runtimes. Absent: Any.
	// +optional
	Runtime RuntimeRule `json:"runtime,omitempty"`
	// skew says what happens to a job that uses a field which the TrainJobs of a worker do not have, because the worker has an
	// older Kubeflow Trainer than the hub. Refuse: the job does not come to that worker. Translate: the copy says the same with
	// the fields that the worker has, and the Dispatch says so; if that is not possible exactly, it is as with Refuse. It
	// counts when the job is placed. Absent: Refuse.
	// +optional
	Skew SkewRule `json:"skew,omitempty"`
	// propagate says what may be created on a worker because a job needs it. Absent: namespaces and runtimes.
	// +optional
	Propagate *Propagation `json:"propagate,omitempty"`
	// retention is how long a finished copy stays on its worker, so that its logs can be read. Absent: 1h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="retention must not be negative"
	Retention *metav1.Duration `json:"retention,omitempty"`
	// ttlSecondsAfterFinished is for how many seconds a TrainJob stays on the hub after its end. Then the manager deletes
	// it, and what is left of its copy. The annotation trainyard.dev/ttl-seconds-after-finished of a job counts before it.
	// Absent: for ever.
	// +optional
	// +kubebuilder:validation:Minimum=0
	TTLSecondsAfterFinished *int32 `json:"ttlSecondsAfterFinished,omitempty"`
}

// DispatchPolicyStatus says whether the policy can be applied.
type DispatchPolicyStatus struct {
	// conditions are Valid.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}

// DispatchPolicy is a rule about which jobs may run where. Without policies every job may run everywhere. With at least
// one policy, a job that no policy matches waits.
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

// RequiresHubFlavors is true if a worker needs nodes with the labels of the flavors. p may be nil.
func (p *DispatchPolicy) RequiresHubFlavors() bool {
	return p != nil && (p.Spec.HubFlavors == HubFlavorsRequire || p.Spec.HubFlavors == HubFlavorsPropagate)
}

// AllowsWorkloadPriorityClass is true if a copy may bring a WorkloadPriorityClass to the Kueue of its worker: the policy
// has no list of classes, or the list has the name. An empty name is allowed. p may be nil.
func (p *DispatchPolicy) AllowsWorkloadPriorityClass(name string) bool {
	return p == nil || len(p.Spec.PriorityClasses) == 0 || name == "" || slices.Contains(p.Spec.PriorityClasses, name)
}

// DispatchPolicyList is a list of DispatchPolicies.
// +kubebuilder:object:root=true
type DispatchPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DispatchPolicy `json:"items"`
}
