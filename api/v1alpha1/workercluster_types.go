// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkerClusterReady is the condition type that says whether jobs can be dispatched to the worker.
const WorkerClusterReady = "Ready"

// MessageConnected is the message of WorkerClusterReady with ReasonConnected. What is missing all the same follows it, after
// a semicolon and a space.
const MessageConnected = "the worker answers and has the TrainJob and JobSet APIs"

// Reasons of WorkerClusterReady.
const (
	// ReasonConnected: the worker answers, is the registered cluster, and has the APIs that a copy needs.
	ReasonConnected = "Connected"
	// ReasonConnecting: the first connection is being made.
	ReasonConnecting = "Connecting"
	// ReasonUnreachable: the worker does not answer. status.lastSeenTime says since when.
	ReasonUnreachable = "Unreachable"
	// ReasonCredentialsNotFound: the Secret or file with the kubeconfig does not exist, or has no kubeconfig in it.
	ReasonCredentialsNotFound = "CredentialsNotFound"
	// ReasonCredentialsInvalid: the worker answers 401 to the credentials, or 403 to a request that Trainyard needs.
	ReasonCredentialsInvalid = "CredentialsInvalid"
	// ReasonInvalidKubeconfig: the kubeconfig cannot be used. The message lists every fault.
	ReasonInvalidKubeconfig = "InvalidKubeconfig"
	// ReasonInsecureKubeconfig: the kubeconfig has something that Trainyard refuses, such as an exec plugin. The message
	// lists every fault.
	ReasonInsecureKubeconfig = "InsecureKubeconfig"
	// ReasonIdentityChanged: the credentials lead to a cluster that is not the registered one.
	ReasonIdentityChanged = "IdentityChanged"
	// ReasonDuplicate: another WorkerCluster already leads to this cluster, or the cluster is the hub itself.
	ReasonDuplicate = "Duplicate"
	// ReasonTrainJobAPIMissing: the worker has no TrainJob CRD.
	ReasonTrainJobAPIMissing = "TrainJobAPIMissing"
	// ReasonJobSetAPIMissing: the worker has no JobSet CRD, so TrainJobs never run there. Jobs that are there already are
	// taken back.
	ReasonJobSetAPIMissing = "JobSetAPIMissing"
	// ReasonCapacityReportMissing: spec.capacity is Report, but there is no CapacityReport, or the hub may not read it.
	// The message says what to do. Jobs that are there already continue.
	ReasonCapacityReportMissing = "CapacityReportMissing"
	// ReasonCapacityReportStale: nobody renews the worker's CapacityReport any more. Jobs that are there already continue.
	ReasonCapacityReportStale = "CapacityReportStale"
	// ReasonQuotaMissing: spec.kueue.capacity counts quota, but the worker has no Kueue, or the hub or the agent may not
	// read its quota. The message says what to do. Jobs that are there already continue.
	ReasonQuotaMissing = "QuotaMissing"
	// ReasonCapacityUnusable: a decision about what the worker has, or the handling of one of its events, has panicked,
	// which is a fault of Trainyard. The message has it, and the manager's log has more. After a decision the manager tries
	// again. Jobs that are there already continue.
	ReasonCapacityUnusable = "CapacityUnusable"
)

// WorkerClusterAgentReady is the condition type that says whether the worker's agent answers. Else nothing can be
// fenced.
const WorkerClusterAgentReady = "AgentReady"

// Reasons of WorkerClusterAgentReady.
const (
	// ReasonAgentAnswers: the agent renews its challenge in the worker's ExecutionLease of this hub.
	ReasonAgentAnswers = "AgentAnswers"
	// ReasonAgentMissing: no agent on the worker fences, or the hub may not use its lease. The message says what to do.
	ReasonAgentMissing = "AgentMissing"
	// ReasonAgentSilent: the agent has stopped renewing its challenge.
	ReasonAgentSilent = "AgentSilent"
)

// WorkerClusterFailoverPaused is the condition type that is True while the jobs of a lost worker are not moved because
// too many workers were lost at once.
const WorkerClusterFailoverPaused = "FailoverPaused"

// Reasons of WorkerClusterFailoverPaused.
const (
	// ReasonManyWorkersLost: so many workers are lost that probably the hub is cut off.
	ReasonManyWorkersLost = "ManyWorkersLost"
	// ReasonWorkersReturned of a False FailoverPaused: enough other workers answer again. So this worker is really lost
	// unless it returns within its grace period, which begins again. The condition stays until the worker answers, as a
	// record.
	ReasonWorkersReturned = "WorkersReturned"
)

// WorkerClusterCredentialsExpiring is the condition type that is True while the hub's credentials of the worker expire, and
// somebody has to do something about that. The message says when they expire.
const WorkerClusterCredentialsExpiring = "CredentialsExpiring"

// Reasons of WorkerClusterCredentialsExpiring.
const (
	// ReasonExpiresSoon: the credentials expire within a week, or a fifth of their life is left, and the manager does not
	// renew them.
	ReasonExpiresSoon = "ExpiresSoon"
	// ReasonRenewalFailed: the manager has tried to renew the token, and could not. It tries again each minute.
	ReasonRenewalFailed = "RenewalFailed"
)

// WorkerClusterSkewUnsupported is the condition type that is True while the releases of the Kubeflow Trainer on the hub and
// on the worker are too far apart. A hub should be at least as new as its workers, and workers at most two minor releases
// behind it. Jobs are sent there all the same, except those that use fields which the worker does not know.
const WorkerClusterSkewUnsupported = "SkewUnsupported"

// Reasons of WorkerClusterSkewUnsupported.
const (
	// ReasonWorkerNewer: the worker has a later release than the hub.
	ReasonWorkerNewer = "WorkerNewer"
	// ReasonWorkerTooOld: the worker is more than two minor releases behind the hub.
	ReasonWorkerTooOld = "WorkerTooOld"
)

// WorkerClusterUnknownCopies is the condition type that is True while the worker has copies of this hub that are not on
// record, as after a restore from a backup. The manager leaves them alone until an admin decides about them.
const WorkerClusterUnknownCopies = "UnknownCopies"

// WorkerClusterSweepRefused is the condition type that is True while the worker refuses the sweep: listing its copies,
// and deleting outdated ones. The message has the worker's words. No job is placed there, and jobs that were placed
// there and have no copy yet are placed again.
const WorkerClusterSweepRefused = "SweepRefused"

// Reasons of WorkerClusterSweepRefused.
const (
	// ReasonForbidden: the hub's user lacks a right on the worker. The message names it.
	ReasonForbidden = "Forbidden"
	// ReasonRefused: the worker refuses for another reason, such as an admission webhook of its own.
	ReasonRefused = "Refused"
	// ReasonFailing: the worker has answered with errors for longer than a short disturbance lasts.
	ReasonFailing = "Failing"
)

// ReasonQuarantined of WorkerClusterUnknownCopies: status.unknownCopies lists them.
const ReasonQuarantined = "Quarantined"

// Reasons of an UnknownCopy.
const (
	// ReasonAttemptTooHigh: the hub cannot have made so many attempts since a backup.
	ReasonAttemptTooHigh = "AttemptTooHigh"
	// ReasonAppearedLate: the copy appeared while the manager was watching the worker, and the manager had not created it.
	ReasonAppearedLate = "AppearedLate"
	// ReasonRunsElsewhere: the worker that the Dispatch names has the job's copy, so this copy is not. It blocks nothing.
	ReasonRunsElsewhere = "RunsElsewhere"
	// ReasonNotAsked: it is not known yet whether the worker that the Dispatch names has the job's copy.
	ReasonNotAsked = "NotAsked"
)

// Reasons of Events about ClusterProfiles.
const (
	// ReasonClusterProfileMissing: the ClusterProfile of a worker is gone or no longer selected, so the worker is cordoned.
	ReasonClusterProfileMissing = "ClusterProfileMissing"
	// ReasonWorkerClusterExists: there is a WorkerCluster with the name of a ClusterProfile that does not follow it.
	ReasonWorkerClusterExists = "WorkerClusterExists"
)

// CapacitySource says from where the hub reads what a worker has and what its pods use.
// +kubebuilder:validation:Enum=Pods;Report
type CapacitySource string

// The sources of capacity.
const (
	// CapacityFromPods: the hub watches the worker's nodes and pods. The worker needs no agent.
	CapacityFromPods CapacitySource = "Pods"
	// CapacityFromReport: the hub watches the CapacityReport that the worker's agent keeps, and caches no pods.
	CapacityFromReport CapacitySource = "Report"
)

// SecretReference names a Secret in the manager's namespace.
type SecretReference struct {
	// name is the name of a Secret in the manager's namespace. Its key "kubeconfig" has the kubeconfig.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
}

// Connection says how to reach a worker, with exactly one of its fields.
// +kubebuilder:validation:ExactlyOneOf=kubeconfigSecretRef;kubeconfigPath
type Connection struct {
	// kubeconfigSecretRef is a Secret in the manager's namespace with the worker's kubeconfig under the key "kubeconfig".
	// +optional
	KubeconfigSecretRef *SecretReference `json:"kubeconfigSecretRef,omitempty"`
	// kubeconfigPath is the absolute path of a kubeconfig file that is mounted in the manager. Exactly one of
	// kubeconfigPath and kubeconfigSecretRef is set.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=4096
	// +kubebuilder:validation:XValidation:rule="self.startsWith('/')",message="kubeconfigPath must be an absolute path"
	KubeconfigPath string `json:"kubeconfigPath,omitempty"`
}

// Prices are prices per hour, in one currency for all workers: of one GPU or other device, one core of cpu, or one GiB
// of memory, ephemeral-storage or hugepages.
// +kubebuilder:validation:MaxProperties=16
type Prices map[corev1.ResourceName]resource.Quantity

// ExtendedResourceName is the name of a resource that is not Kubernetes' own, such as nvidia.com/gpumem.
// +kubebuilder:validation:MaxLength=317
// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-a-z0-9.]*[a-z0-9])?/[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?$') && !self.contains('kubernetes.io/')",message="must be the name of an extended resource, such as nvidia.com/gpumem"
type ExtendedResourceName string

// WorkerClusterSpec says how to reach a worker and whether it takes jobs.
type WorkerClusterSpec struct {
	// connection says how to reach the worker.
	Connection Connection `json:"connection"`
	// unschedulable cordons the worker: it gets no new jobs, and keeps the jobs that it has.
	// +optional
	Unschedulable bool `json:"unschedulable,omitempty"`
	// drain cordons the worker and moves its jobs to other workers, as many at a time as their policies allow. A job that
	// fits on no other worker stays, and its Dispatch says so.
	// +optional
	Drain bool `json:"drain,omitempty"`
	// failover says when the worker counts as lost. The policies of its jobs say what happens then.
	// +optional
	Failover WorkerFailover `json:"failover,omitempty"`
	// capacity says from where the hub reads what the worker has free: from its nodes and pods, or from the report of the
	// worker's agent. The numbers are the same.
	// +optional
	// +kubebuilder:default=Pods
	Capacity CapacitySource `json:"capacity,omitempty"`
	// kueue is about the Kueue of the worker.
	// +optional
	Kueue WorkerKueue `json:"kueue,omitempty"`
	// price is the price per hour of one GPU or other device, one core of cpu, one GiB of memory, ephemeral-storage or
	// hugepages. Use one currency for all workers. Absent resources cost nothing. Policies can score by it. Absent: free
	// of charge.
	// +optional
	// +kubebuilder:validation:XValidation:rule="self.all(r, !string(self[r]).startsWith('-'))",message="a price must not be negative"
	Price Prices `json:"price,omitempty"`
	// ignoredResources are extended resources that a scheduler extender of the worker manages, and that no node there
	// lists, such as nvidia.com/gpumem with HAMi. Whether a job fits there does not depend on what its pods request of
	// them. Absent: pods fit only where nodes list all resources that they request.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=32
	IgnoredResources []ExtendedResourceName `json:"ignoredResources,omitempty"`
	// expandable are the nodes that the worker adds when pods need them: node pools of a cluster autoscaler or of
	// Karpenter, also those that have no node now. A job gets such nodes only where no worker has room on nodes that are
	// there, unless addNodes of its policy says otherwise. Absent: only nodes that are there count.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Expandable []ExpandableNodes `json:"expandable,omitempty"`
	// data is the data that is near the worker. Policies can score by it (DataLocality), and a job that requires data by the
	// annotation trainyard.dev/data comes only to workers that list it. Absent: all data is far away.
	// +optional
	// +listType=map
	// +listMapKey=prefix
	// +kubebuilder:validation:MaxItems=64
	Data []WorkerData `json:"data,omitempty"`
}

// WorkerFailover says when a worker counts as lost.
// +kubebuilder:validation:XValidation:rule="!has(self.gracePeriod) || duration(self.gracePeriod) >= duration('0s')",message="gracePeriod must not be negative"
// +kubebuilder:validation:XValidation:rule="!has(self.fenceAfter) || duration(self.fenceAfter) >= duration('5s')",message="fenceAfter must be at least 5s"
type WorkerFailover struct {
	// gracePeriod is how long the worker may be unreachable until it counts as lost. Absent: 5m.
	// +optional
	GracePeriod *metav1.Duration `json:"gracePeriod,omitempty"`
	// fenceAfter is how long copies with failover Fenced may run without a sign of life from the hub. After that time the
	// agent has stopped them, and their pods have ended, termination grace included. So the agent begins to stop a copy
	// earlier, by the grace of its pods and up to 15s, but not before half of fenceAfter. An agent that starts while the
	// hub is silent gives it 15s at most. Absent: 10m.
	// +optional
	FenceAfter *metav1.Duration `json:"fenceAfter,omitempty"`
}

// WorkerCluster registers a worker. Policies select by its labels.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=trainyard,shortName=wc
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`
// +kubebuilder:printcolumn:name="Agent",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="AgentReady")].status`
// +kubebuilder:printcolumn:name="GPUs",type=string,JSONPath=`.status.gpus`,description="free/total"
// +kubebuilder:printcolumn:name="Jobs",type=integer,JSONPath=`.status.jobs`
// +kubebuilder:printcolumn:name="Version",type=string,JSONPath=`.status.kubernetesVersion`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type WorkerCluster struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec says how to reach the worker.
	Spec WorkerClusterSpec `json:"spec"`
	// status is what the hub knows of the worker.
	// +optional
	Status WorkerClusterStatus `json:"status,omitempty"`
}

// WorkerClusterList is a list of WorkerClusters.
// +kubebuilder:object:root=true
type WorkerClusterList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkerCluster `json:"items"`
}
