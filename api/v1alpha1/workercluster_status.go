// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TrainerAPI is what a worker's TrainJob API can express.
type TrainerAPI struct {
	// version is the served version of trainer.kubeflow.org in which copies are written.
	// +kubebuilder:validation:MaxLength=63
	Version string `json:"version"`
	// fields are the top-level fields of a TrainJob's spec that the worker's CRD knows, sorted.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=63
	Fields []string `json:"fields,omitempty"`
	// release is the minor release of the Kubeflow Trainer whose TrainJobs have these fields, such as "2.1". A CRD does not
	// name its release, so a release that only adds fields to the newest known one counts as that one. Empty: no release
	// that is known has these fields.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	Release string `json:"release,omitempty"`
	// missing are the fields of a TrainJob's spec that the hub's CRD knows and the worker's does not, as paths, sorted. A
	// path with a type, such as "trainer.numProcPerNode (string)", is a field of which the worker does not take that type.
	// A job that uses one of them does not come here, unless its policy has skew: Translate.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Missing []string `json:"missing,omitempty"`
	// untranslatable are the fields of missing, or parts of them, that cannot be said with other fields of the worker, as
	// paths, sorted. A job whose policy has skew: Translate does not come here if it uses one of them, instead of those of
	// missing.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	Untranslatable []string `json:"untranslatable,omitempty"`
	// missingOfRuntimes are such fields of the spec of a TrainingRuntime or ClusterTrainingRuntime. A job whose runtime uses
	// one of them does not come here, unless the worker has a runtime of its own under that name.
	// +optional
	// +listType=set
	// +kubebuilder:validation:MaxItems=64
	// +kubebuilder:validation:items:MaxLength=253
	MissingOfRuntimes []string `json:"missingOfRuntimes,omitempty"`
}

// NodeGroup is a number of nodes that are alike to a scheduler of GPUs.
type NodeGroup struct {
	// product is what a label of the nodes calls the devices (nvidia.com/gpu.product or similar), or empty.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Product string `json:"product,omitempty"`
	// resource is the extended resource of the GPUs or other accelerators, such as nvidia.com/gpu, or empty for nodes
	// without any. Of nodes with several, allocatable and free have the others.
	// +optional
	Resource corev1.ResourceName `json:"resource,omitempty"`
	// unit says what one of the resource is: a whole Device, or a Share of a device, such as a MIG slice. Empty: there is
	// no resource.
	// +optional
	// +kubebuilder:validation:Enum=Device;Share
	Unit string `json:"unit,omitempty"`
	// nodes is the number of nodes in the group that can take pods.
	Nodes int32 `json:"nodes"`
	// labels are the labels that all its nodes have, without labels that name a single node.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// taints are the taints of its nodes that keep pods off.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Taints []corev1.Taint `json:"taints,omitempty"`
	// allocatable is what one node has.
	// +optional
	Allocatable corev1.ResourceList `json:"allocatable,omitempty"`
	// free says how many nodes have how much free, the most GPUs first. If there are too many kinds of nodes, similar ones
	// are shown as one kind, with the least that any of them has free.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Free []FreeNodes `json:"free,omitempty"`
}

// FreeNodes is a number of nodes with the same amounts free.
type FreeNodes struct {
	// gpus is how much of the group's resource is free on each of the nodes.
	GPUs int64 `json:"gpus"`
	// nodes is the number of nodes with that many free.
	Nodes int32 `json:"nodes"`
	// free is what is free of every resource on each of the nodes.
	// +optional
	Free corev1.ResourceList `json:"free,omitempty"`
}

// WorkerClusterStatus is what the hub knows of a worker.
type WorkerClusterStatus struct {
	// conditions are Ready and AgentReady, and FailoverPaused, CredentialsExpiring, SkewUnsupported, UnknownCopies and
	// SweepRefused while they are True.
	// +optional
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	Conditions []metav1.Condition `json:"conditions,omitempty"`
	// clusterID is the UID of the worker's kube-system namespace, pinned at the first contact.
	// +optional
	ClusterID types.UID `json:"clusterID,omitempty"`
	// kubernetesVersion is the version of the worker's API server.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	KubernetesVersion string `json:"kubernetesVersion,omitempty"`
	// trainer is the worker's TrainJob API.
	// +optional
	Trainer *TrainerAPI `json:"trainer,omitempty"`
	// lastSeenTime is when the worker last answered, while it is Unreachable or refuses the credentials. The other fields
	// are of that time.
	// +optional
	LastSeenTime *metav1.Time `json:"lastSeenTime,omitempty"`
	// nodeGroups are the node groups of the worker, the largest first.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	NodeGroups []NodeGroup `json:"nodeGroups,omitempty"`
	// gpus is "free/total" of whole GPUs and other accelerators over all nodes. Shares of devices are not in it:
	// nodeGroups has them.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	GPUs string `json:"gpus,omitempty"`
	// expandable says how many nodes the worker has of each item of spec.expandable.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	Expandable []ExpandableStatus `json:"expandable,omitempty"`
	// unknownCopies are copies of this hub that are not on record, the first 64 by namespace and name.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	UnknownCopies []UnknownCopy `json:"unknownCopies,omitempty"`
	// runtimes are the runtimes of the worker that are not what the hub's runtimes of the same kind, namespace and name
	// would be there, the first 64 by kind, namespace and name. A runtime that only one of both has is not among them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Runtimes []WorkerRuntime `json:"runtimes,omitempty"`
	// dependencies are the ConfigMaps, Secrets and ServiceAccounts of the hub that the manager has brought here, or is about
	// to. It writes them here before it creates them, and deletes them on the worker when no job needs them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=1024
	Dependencies []PropagatedDependency `json:"dependencies,omitempty"`
	// jobs is the number of jobs that are placed here and have not finished.
	// +optional
	// +kubebuilder:default=0
	Jobs int32 `json:"jobs"`
}
