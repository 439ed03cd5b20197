// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// LeaseState says whether an agent considers a hub alive.
// +kubebuilder:validation:Enum=Pending;Valid;Expired
type LeaseState string

const (
	// LeasePending means that the hub has not answered a valid challenge of the agent yet.
	LeasePending LeaseState = "Pending"
	// LeaseValid means that the hub has answered in time.
	LeaseValid LeaseState = "Valid"
	// LeaseExpired means that the hub has not answered in time. Fenced copies are being stopped, or are stopped.
	LeaseExpired LeaseState = "Expired"
)

// ExecutionLeaseSpec is the hub's part.
type ExecutionLeaseSpec struct {
	// fenceAfter is how long after an answered challenge the pods of fenced copies may live.
	FenceAfter metav1.Duration `json:"fenceAfter"`
	// answer is the last challenge that the hub has read, as a sign of life. It is as old as the challenge, so an answer
	// that was delayed does no harm.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Answer string `json:"answer,omitempty"`
	// manager is the process that answered, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Manager string `json:"manager,omitempty"`
}

// ExecutionLeaseStatus is the agent's part.
type ExecutionLeaseStatus struct {
	// run counts the agents that have taken over, one after the other.
	// +optional
	Run int64 `json:"run,omitempty"`
	// challenge is "<run>.<number>", new each time. Only the agent knows when it wrote it.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Challenge string `json:"challenge,omitempty"`
	// interval is the time between two challenges.
	// +optional
	Interval *metav1.Duration `json:"interval,omitempty"`
	// state is the state of the lease from the agent's view.
	// +optional
	State LeaseState `json:"state,omitempty"`
	// agent is the process that wrote, for people.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	Agent string `json:"agent,omitempty"`
	// fenced is how many copies are stopped.
	// +optional
	Fenced int32 `json:"fenced,omitempty"`
}

// ExecutionLease is the permission, on a worker, for the copies of one hub to run. The agent writes challenges, and the
// hub answers them. An answer is as old as its challenge, by the agent's own monotonic clock. The name is the hub's ID.
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,categories=trainyard
// +kubebuilder:printcolumn:name="State",type=string,JSONPath=`.status.state`
// +kubebuilder:printcolumn:name="Fenced",type=integer,JSONPath=`.status.fenced`
// +kubebuilder:printcolumn:name="Fence-After",type=string,JSONPath=`.spec.fenceAfter`
// +kubebuilder:printcolumn:name="Challenge",type=string,JSONPath=`.status.challenge`
// +kubebuilder:printcolumn:name="Answer",type=string,JSONPath=`.spec.answer`
// +kubebuilder:printcolumn:name="Agent",type=string,JSONPath=`.status.agent`,priority=1
// +kubebuilder:printcolumn:name="Manager",type=string,JSONPath=`.spec.manager`,priority=1
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
type ExecutionLease struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is written by the hub.
	Spec ExecutionLeaseSpec `json:"spec"`
	// status is written by the agent.
	// +optional
	Status ExecutionLeaseStatus `json:"status,omitempty"`
}

// ExecutionLeaseList is a list of ExecutionLeases.
// +kubebuilder:object:root=true
type ExecutionLeaseList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []ExecutionLease `json:"items"`
}
