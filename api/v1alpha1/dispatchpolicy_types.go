// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// JobSelector selects TrainJobs. An absent selector selects all.
type JobSelector struct {
	// namespaceSelector on the labels of the job's namespace.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// selector on the labels of the job.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

// ClusterSelector selects WorkerClusters. An absent selector selects all.
type ClusterSelector struct {
	// selector on the labels of the WorkerCluster.
	// +optional
	Selector *metav1.LabelSelector `json:"selector,omitempty"`
}

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
	// propagate says what may be created on a worker because a job needs it. Absent: namespaces and runtimes.
	// +optional
	Propagate *Propagation `json:"propagate,omitempty"`
	// retention is how long a finished copy stays on its worker, so that its logs can be read. Absent: 1h.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('0s')",message="retention must not be negative"
	Retention *metav1.Duration `json:"retention,omitempty"`
}

// DispatchPolicy is a rule about which jobs may go where. Without any policy every job may go everywhere; as soon as there is
// one, a job that no policy matches waits.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=trainyard
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
}

// DispatchPolicyList is a list of DispatchPolicies.
// +kubebuilder:object:root=true
type DispatchPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []DispatchPolicy `json:"items"`
}
