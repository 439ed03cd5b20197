// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TombstoneSpec names what is to be deleted.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Tombstone is immutable"
type TombstoneSpec struct {
	// cluster is the WorkerCluster that was away.
	Cluster ClusterName `json:"cluster"`
	// clusterID is the cluster that it led to: the Tombstone counts there, whatever its name is then.
	ClusterID types.UID `json:"clusterID"`
	// trainJob that is gone, or runs elsewhere.
	TrainJob TrainJobReference `json:"trainJob"`
	// namespace of the TrainJob.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// attempt up to which copies are deleted.
	// +kubebuilder:validation:Minimum=1
	Attempt int32 `json:"attempt"`
}

// Tombstone is what is left to do on a worker that was away when a TrainJob went, or was moved to another worker: a copy to delete, before
// anything new is done there. It is written before the Dispatch of a job that went is let go, is named after the TrainJob's UID (that of a
// second lost worker has the attempt behind it), and goes when the worker has nothing of the job.
//
// It also keeps the attempt of a TrainJob that goes on without its Dispatch, because somebody has deleted that: its next attempt is a
// higher one. Such a Tombstone stays until the TrainJob has a Dispatch again, or goes.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=trainyard
// +kubebuilder:selectablefield:JSONPath=`.spec.trainJob.uid`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Namespace",type=string,JSONPath=`.spec.namespace`
// +kubebuilder:printcolumn:name="TrainJob",type=string,JSONPath=`.spec.trainJob.name`
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.spec.attempt`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type Tombstone struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec names what is to be deleted.
	Spec TombstoneSpec `json:"spec"`
}

// TombstoneList is a list of Tombstones.
// +kubebuilder:object:root=true
type TombstoneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tombstone `json:"items"`
}
