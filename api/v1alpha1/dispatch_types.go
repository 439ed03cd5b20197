// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Dispatch is the record of one TrainJob's placement. It has the TrainJob's namespace and name. The TrainJob owns it.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:categories=trainyard
// +kubebuilder:selectablefield:JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="TrainJob",type=string,JSONPath=`.spec.trainJob.name`
// +kubebuilder:printcolumn:name="Cluster",type=string,JSONPath=`.spec.cluster`
// +kubebuilder:printcolumn:name="Phase",type=string,JSONPath=`.status.phase`
// +kubebuilder:printcolumn:name="Attempt",type=integer,JSONPath=`.spec.attempt`
// +kubebuilder:printcolumn:name="Reason",type=string,JSONPath=`.status.reason`
// +kubebuilder:printcolumn:name="Healthy",type=string,JSONPath=`.status.conditions[?(@.type=="Healthy")].status`
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

	// Only the manager writes spec and status. Were the schema not atomic, the API server would keep 1.2 KB of managedFields
	// with each Dispatch, compute them with each write, and send them with each event of a watch.

	// spec is the decision.
	// +structType=atomic
	Spec DispatchSpec `json:"spec"`
	// status is what is known of the copy.
	// +structType=atomic
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

// IsFinished is true once the copy is Complete or Failed and the hub TrainJob says so.
func (d *Dispatch) IsFinished() bool {
	return meta.IsStatusConditionTrue(d.Status.Conditions, DispatchFinished)
}

// WasCopied is true if the status says that the current attempt has had a copy.
func (d *Dispatch) WasCopied() bool { return d.mirrored() == metav1.ConditionTrue }

// RecordedCopy returns the UID of the current attempt's copy, or "" if the status names none.
func (d *Dispatch) RecordedCopy() types.UID {
	if !d.WasCopied() {
		return ""
	}
	return d.Status.CopyUID
}

// AttemptEnded is true if the status says that the current attempt has no copy and will have none. Only then may the
// Dispatch leave its worker.
func (d *Dispatch) AttemptEnded() bool { return d.mirrored() == metav1.ConditionFalse }

// mirrored returns the status of the Mirrored condition, or "" if the status is not about the current attempt.
func (d *Dispatch) mirrored() metav1.ConditionStatus {
	condition := meta.FindStatusCondition(d.Status.Conditions, DispatchMirrored)
	if condition == nil || d.Status.Attempt != d.Spec.Attempt {
		return ""
	}
	return condition.Status
}
