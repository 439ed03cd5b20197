// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CapacityReportName is the name of a worker's one CapacityReport.
const CapacityReportName = "capacity"

// Abridgement is something that was left out because the report would have been too large for an object. Nothing that
// is left out makes a worker seem to have more free than it has. But a job that excludes nodes by a label may then fit
// on them.
type Abridgement string

// The abridgements.
const (
	// AbridgedFinishedGangs: gangs without bound pods are not listed. Their succeeded pods count as pods to come.
	AbridgedFinishedGangs Abridgement = "FinishedGangs"
	// AbridgedNodeLabels: labels that only one node has are not listed. Selectors with them match no node.
	AbridgedNodeLabels Abridgement = "NodeLabels"
	// AbridgedGangs: the report does not say which gang uses what on which nodes. So a gang's end gives no expected room.
	AbridgedGangs Abridgement = "Gangs"
	// AbridgedAmounts: nodes that differ only in what is used are shown as one, with the most that is used on one of them.
	AbridgedAmounts Abridgement = "Amounts"
	// AbridgedWorkloads: the Workloads of Kueue are not listed one by one. So the quota that a job of the hub has reserved
	// counts twice.
	AbridgedWorkloads Abridgement = "Workloads"
	// AbridgedNodes: no node is listed, because there are too many kinds of nodes. No job fits on such a worker.
	AbridgedNodes Abridgement = "Nodes"
	// AbridgedQuota: no queue of Kueue is listed. No job fits into the quota of such a worker.
	AbridgedQuota Abridgement = "Quota"
)

// Amounts are amounts of the resources in the report's field resources, in the same order. cpu is in thousandths of a
// core, everything else in units.
// +listType=atomic
type Amounts []int64

// ReportedNodeGroup is a number of nodes that differ only in what is used on them.
type ReportedNodeGroup struct {
	// labels are positions, from 0, in the report's field labels.
	// +optional
	// +listType=atomic
	Labels []int32 `json:"labels,omitempty"`
	// taints are the nodes' taints that keep pods off.
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
	// schedulable is true for nodes that are Ready and not cordoned.
	Schedulable bool `json:"schedulable"`
	// allocatable is what each node has.
	Allocatable Amounts `json:"allocatable"`
	// rows are the nodes of the group. Nodes in one row have the same amounts used.
	// +listType=atomic
	Rows []ReportedNodes `json:"rows"`
}

// ReportedNodes is a number of nodes that are alike in everything.
type ReportedNodes struct {
	// nodes is the number of nodes in this row.
	// +kubebuilder:validation:Minimum=1
	Nodes int32 `json:"nodes"`
	// used is what is used on each node: the sum of the requests of the pods that are bound to it and not over.
	Used Amounts `json:"used"`
	// gangs are the gangs with pods on each of these nodes, and what these pods use.
	// +optional
	// +listType=atomic
	Gangs []ReportedUse `json:"gangs,omitempty"`
}

// ReportedUse is what one gang's pods use on a node.
type ReportedUse struct {
	// gang is a position, from 0, in the report's field gangs.
	Gang int32 `json:"gang"`
	// used is the gang's part of what is used on the node.
	Used Amounts `json:"used"`
}

// ReportedGang is a JobSet with pods.
type ReportedGang struct {
	// namespace is the namespace of the JobSet.
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace"`
	// name is the name of the JobSet.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// pods are the gang's pods by replicated job.
	// +listType=atomic
	Pods []ReportedPods `json:"pods"`
}

// ReportedPods counts the pods of a replicated job.
type ReportedPods struct {
	// job is the name of the replicated job.
	Job string `json:"job"`
	// bound is the number of pods that are on a node and not over.
	// +optional
	Bound int32 `json:"bound,omitempty"`
	// succeeded is the number of pods that have succeeded and still exist.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
}

// CapacityReport is what a worker's nodes have and its pods use. The worker's agent keeps it for hubs that must not
// read nodes and pods. It is for programs, and small, because the agent writes it again whenever something changes.
// Each worker has one, named "capacity". A hub has none.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=trainyard
// +kubebuilder:printcolumn:name="Renewed",type=date,JSONPath=`.renewTime`
// +kubebuilder:printcolumn:name="Abridged",type=string,JSONPath=`.abridged`
type CapacityReport struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// renewTime is when the agent last wrote the report, by the worker's clock. The agent writes it at least every 30 s,
	// even without other changes. Hubs check whether it changes, and never compare it with their clock.
	RenewTime metav1.MicroTime `json:"renewTime"`
	// resources are all resources that a node has or a pod uses, sorted. They are the columns of all amounts.
	// +optional
	// +listType=atomic
	Resources []corev1.ResourceName `json:"resources,omitempty"`
	// labels are the labels of nodes, as key=value, sorted, without kubernetes.io/hostname. Node groups refer to
	// positions.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:items:MinLength=1
	Labels []string `json:"labels,omitempty"`
	// nodeGroups are all nodes.
	// +optional
	// +listType=atomic
	NodeGroups []ReportedNodeGroup `json:"nodeGroups,omitempty"`
	// gangs are all JobSets with pods that are bound or have succeeded, sorted by namespace and name.
	// +optional
	// +listType=atomic
	Gangs []ReportedGang `json:"gangs,omitempty"`
	// kueue is what the worker's Kueue lets jobs use. The agent counts it with --kueue-quota. Absent: it is not counted.
	// +optional
	Kueue *KueueQuota `json:"kueue,omitempty"`
	// uncounted says which devices of Dynamic Resource Allocation do not count, and why, sorted.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=10
	// +kubebuilder:validation:items:MaxLength=256
	Uncounted []string `json:"uncounted,omitempty"`
	// abridged says what was left out because the report would have been too large. Empty: nothing.
	// +optional
	// +listType=atomic
	Abridged []Abridgement `json:"abridged,omitempty"`
}

// CapacityReportList is a list of CapacityReports.
// +kubebuilder:object:root=true
type CapacityReportList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []CapacityReport `json:"items"`
}
