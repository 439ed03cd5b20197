// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TombstoneSpec names the copies to delete.
// +kubebuilder:validation:XValidation:rule="self == oldSelf",message="a Tombstone is immutable"
type TombstoneSpec struct {
	// cluster is the WorkerCluster that was away.
	Cluster ClusterName `json:"cluster"`
	// clusterID is the ID of that cluster. The Tombstone applies to it under any later name.
	ClusterID types.UID `json:"clusterID"`
	// trainJob is the TrainJob that was deleted, or runs elsewhere.
	TrainJob TrainJobReference `json:"trainJob"`
	// namespace is the namespace of the TrainJob.
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	Namespace string `json:"namespace"`
	// attempt is the last attempt whose copies are deleted.
	// +kubebuilder:validation:Minimum=1
	Attempt int32 `json:"attempt"`
}

// Tombstone names a copy to delete on a worker that was away when its TrainJob was deleted or moved. The copy is
// deleted before anything new is created on that worker. The manager writes the Tombstone before it releases the
// Dispatch of a deleted job. The name is the TrainJob's UID. The Tombstone of a second lost worker has the attempt
// appended. The manager deletes the Tombstone when the worker has nothing of the job.
//
// A Tombstone also keeps the last attempt of a TrainJob whose Dispatch somebody has deleted, so that the next attempt
// is higher. Such a Tombstone stays until the TrainJob has a Dispatch again, or is deleted.
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

	// spec names the copies to delete.
	Spec TombstoneSpec `json:"spec"`
}

// TombstoneList is a list of Tombstones.
// +kubebuilder:object:root=true
type TombstoneList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Tombstone `json:"items"`
}
