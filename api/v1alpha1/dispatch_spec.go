// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TrainJobReference names the TrainJob of a Dispatch, in the Dispatch's namespace.
type TrainJobReference struct {
	// name is the name of the TrainJob and of the Dispatch.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	Name string `json:"name"`
	// uid is the UID of the TrainJob. A TrainJob that is created again has another UID, and gets another Dispatch.
	UID types.UID `json:"uid"`
}

// PodSetRole is what the pods of a PodSet do. It is the runtime's trainer.kubeflow.org/trainjob-ancestor-step label, or
// "launcher" for MPI's launcher, or empty.
// +kubebuilder:validation:MaxLength=63
type PodSetRole string

// Roles that placement uses.
const (
	RoleDatasetInitializer PodSetRole = "dataset-initializer"
	RoleModelInitializer   PodSetRole = "model-initializer"
	RoleTrainer            PodSetRole = "trainer"
	RoleLauncher           PodSetRole = "launcher"
)

// PodSet is a number of equal pods of a job. A job's demand is its PodSets. They are derived from runtime and TrainJob
// when the job is placed, so a restarted manager can count placed jobs without both.
type PodSet struct {
	// name is the name of the replicated job in the JobSet.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// role is the role of the pods.
	// +optional
	Role PodSetRole `json:"role,omitempty"`
	// concurrent is true for an initializer that runs at the same time as the other pods, because they do not wait for its
	// end (dependsOn with status Complete). Other initializers run before the other pods.
	// +optional
	Concurrent bool `json:"concurrent,omitempty"`
	// count is the number of pods. All must fit at the same time.
	// +kubebuilder:validation:Minimum=0
	Count int32 `json:"count"`
	// requests are the requests of one pod. Devices that it claims by a ResourceClaimTemplate are there as ~deviceclass/CLASS.
	// +optional
	Requests corev1.ResourceList `json:"requests,omitempty"`
	// hostPorts are the ports that one pod takes on its node. Absent also if an older release has written the PodSet.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	HostPorts []HostPort `json:"hostPorts,omitempty"`
	// unmergedRequests are what a Kueue may charge for one pod instead of its requests, if that is different. A Kueue that
	// was built with a Kubeflow Trainer before 2.3, such as Kueue 0.19, takes spec.trainer.resourcesPerNode of a TrainJob
	// in place of the resources of the runtime. Trainer 2.3 merges the two. All resources of requests are listed, with 0
	// if nothing is charged.
	// +optional
	UnmergedRequests corev1.ResourceList `json:"unmergedRequests,omitempty"`
	// mergedRequests are what a Kueue may charge for one pod instead of its requests, if that is different, on a worker whose
	// Kubeflow Trainer is older than 2.3, or may be: there requests are what that Trainer makes, or the larger amounts. A
	// Kueue that was built with Trainer 2.3 charges the resources of runtime and TrainJob, merged.
	// +optional
	MergedRequests corev1.ResourceList `json:"mergedRequests,omitempty"`
	// nodeSelector is the node selector of one pod.
	// +optional
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// nodeAffinity is the node affinity that one pod requires (requiredDuringSchedulingIgnoredDuringExecution).
	// +optional
	NodeAffinity *corev1.NodeSelector `json:"nodeAffinity,omitempty"`
	// tolerations are the tolerations of one pod.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
	// terminationGracePeriodSeconds is the grace period of one pod. Jobs whose pods take long to stop are preempted last.
	// Absent: Kubernetes' default.
	// +optional
	TerminationGracePeriodSeconds *int64 `json:"terminationGracePeriodSeconds,omitempty"`
}

// ClaimedDevices is followed by the name of a DeviceClass. It is the name under which devices count that pods claim. No
// container can request it.
const ClaimedDevices = "~deviceclass/"

// Domain is the nodes of one worker that have the same value of a label: an NVLink domain, a rack, a zone.
type Domain struct {
	// label is the label of the nodes.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=317
	Label string `json:"label"`
	// value is the value that the nodes have.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Value string `json:"value"`
}

// String returns the domain as a label selector.
func (d Domain) String() string { return d.Label + "=" + d.Value }

// PatchesField is a field of a TrainJob's spec in which an older Kubeflow Trainer has what runtimePatches say.
// +kubebuilder:validation:Enum=podTemplateOverrides;podSpecOverrides
type PatchesField string

const (
	// PodTemplateOverrides is the field of release 2.1.
	PodTemplateOverrides PatchesField = "podTemplateOverrides"
	// PodSpecOverrides is the field of release 2.0.
	PodSpecOverrides PatchesField = "podSpecOverrides"
)

// Counted says from what the demand of an attempt was derived. Its copy is made from that, and from nothing else.
type Counted struct {
	// generation is the generation of the TrainJob.
	Generation int64 `json:"generation"`
	// digest sums up the spec and the labels of the TrainJob, without what only starts and stops it.
	// +kubebuilder:validation:MaxLength=128
	Digest string `json:"digest"`
	// runtime is "UID.GENERATION" of the TrainingRuntime or ClusterTrainingRuntime that the TrainJob names.
	// +kubebuilder:validation:MaxLength=128
	Runtime string `json:"runtime"`
	// workerRuntime is the digest of the spec of the worker's own runtime, with which the demand was derived. Empty: the
	// hub's runtime was counted.
	// +kubebuilder:validation:MaxLength=128
	// +optional
	WorkerRuntime string `json:"workerRuntime,omitempty"`
}

// EvictionReason says why an attempt must end.
// +kubebuilder:validation:Enum=Preempted;Drained;AdmissionTimeout;CopyChanged;Rejected;Suspended;ManagedByMultiKueue
type EvictionReason string

// Reasons of an eviction. Each is the outcome of the attempt that the eviction ends.
const (
	EvictionPreempted           = EvictionReason(OutcomePreempted)
	EvictionDrained             = EvictionReason(OutcomeDrained)
	EvictionAdmissionTimeout    = EvictionReason(OutcomeAdmissionTimeout)
	EvictionCopyChanged         = EvictionReason(OutcomeCopyChanged)
	EvictionRejected            = EvictionReason(OutcomeRejected)
	EvictionSuspended           = EvictionReason(OutcomeSuspended)
	EvictionManagedByMultiKueue = EvictionReason(OutcomeManagedByMultiKueue)
)

// Eviction ends the current attempt: the manager deletes the copy. When no pod of it lives, the job waits again.
type Eviction struct {
	// reason is the reason of the eviction.
	Reason EvictionReason `json:"reason"`
	// message is for the owner of the evicted job.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
	// for is the UID of the TrainJob that takes the room.
	// +optional
	For types.UID `json:"for,omitempty"`
}

// DispatchSpec is the decision. It is on the API server before the manager writes to any worker.
// +kubebuilder:validation:XValidation:rule="self.trainJob == oldSelf.trainJob",message="trainJob is immutable"
// +kubebuilder:validation:XValidation:rule="self.attempt >= oldSelf.attempt",message="attempt never falls: it is the fencing token of the copies"
// +kubebuilder:validation:XValidation:rule="!has(self.cluster) || (has(oldSelf.cluster) && self.cluster == oldSelf.cluster) || self.attempt > oldSelf.attempt",message="cluster moves to a worker only together with a higher attempt"
// +kubebuilder:validation:XValidation:rule="!has(self.eviction) || has(self.cluster)",message="only a placed Dispatch can be evicted"
// +kubebuilder:validation:XValidation:rule="!has(self.cluster) || self.attempt >= 1",message="a placed Dispatch has attempt 1 or higher"
type DispatchSpec struct {
	// trainJob is the TrainJob that is placed. Immutable.
	TrainJob TrainJobReference `json:"trainJob"`
	// cluster is the WorkerCluster that was chosen for the current attempt. Absent: the job waits.
	// +optional
	// +kubebuilder:validation:MinLength=1
	Cluster ClusterName `json:"cluster,omitempty"`
	// clusterID is the ID of the chosen cluster. If the WorkerCluster leads to another cluster later, the objects there do
	// not belong to this job.
	// +optional
	ClusterID types.UID `json:"clusterID,omitempty"`
	// attempt counts the placements of this TrainJob, from 1. 0: not placed yet.
	// +optional
	// +kubebuilder:validation:Minimum=0
	Attempt int32 `json:"attempt"`
	// priority is the job's priority, from its PriorityClass. Jobs of higher priority are placed first.
	// +optional
	Priority int32 `json:"priority"`
	// failover says what happens to the job if its worker is lost. It is decided when the job is placed, and the copy
	// carries it for the worker's agent. Absent: Hold.
	// +optional
	Failover Failover `json:"failover,omitempty"`
	// localQueue is the LocalQueue of the worker into which the copy comes, decided when the job is placed. Empty: the copy
	// has no label of a queue. Absent: the copy has the labels of the job.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	LocalQueue *string `json:"localQueue,omitempty"`
	// domain is where on the worker the pods run that belong together by the job's topology. It was decided with the worker,
	// podSets select its nodes, and so do the pods of the copy. Absent: the pods may run on all nodes of the worker.
	// +optional
	Domain *Domain `json:"domain,omitempty"`
	// addedNodes is how many nodes the worker has to add for the job, as the decision was made. Until the job runs it holds
	// them, if they have not come. Absent: none.
	// +optional
	// +kubebuilder:validation:Minimum=0
	AddedNodes int32 `json:"addedNodes,omitempty"`
	// checkpoint is what the process of the copy is told about the attempts before it. It is decided when the job is placed.
	// Absent: the policy of the job does not say so.
	// +optional
	Checkpoint *Checkpoint `json:"checkpoint,omitempty"`
	// translatedInto is the field of the copy's spec that says what spec.runtimePatches of the TrainJob say, because the
	// worker's Kubeflow Trainer is older. Labels and annotations of the JobSet are in spec.labels and spec.annotations then. It
	// is decided when the job is placed. Absent: nothing is translated.
	// +optional
	TranslatedInto PatchesField `json:"translatedInto,omitempty"`
	// runtime is Pin if the copy names a runtime that the manager makes for it from the hub's, whatever the worker has under the
	// name of the job's runtime. It is decided when the job is placed. Absent: the copy names the runtime that the TrainJob
	// names.
	// +optional
	Runtime RuntimeRule `json:"runtime,omitempty"`
	// eviction ends the current attempt. It is removed when the job waits again.
	// +optional
	Eviction *Eviction `json:"eviction,omitempty"`
	// podSets are the demand for which the decision was made. Their size is checked before they are written, so that the
	// job's user gets a helpful message.
	// +optional
	// +listType=map
	// +listMapKey=name
	PodSets []PodSet `json:"podSets,omitempty"`
	// counted says from what podSets and priority were derived. If TrainJob or runtime have changed by the time at which the
	// copy is created, the attempt ends with outcome JobChanged. Absent: the job waits, or the attempt was placed by a release
	// that did not record it, or comes from a copy that was found.
	// +optional
	Counted *Counted `json:"counted,omitempty"`
	// dependencies are the objects of the hub that the pods name, of the kinds that the job's policy brings to workers. The
	// manager brings to the worker those that it may, and deletes them there when no job needs them. Absent: it brings none.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Dependencies []Dependency `json:"dependencies,omitempty"`
}
