// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// CapacityReportName is the name of a worker's one CapacityReport.
const CapacityReportName = "capacity"

// Abridgement is something that was left out of a report because it would have been too large for an object. Nothing that is left
// out makes a worker look as if it had more free than it has. Only what excludes nodes by a label may find some that it excludes.
type Abridgement string

// What can be left out.
const (
	// AbridgedFinishedGangs: gangs none of whose pods are bound are not listed, so that their pods that have succeeded are expected
	// again, and count.
	AbridgedFinishedGangs Abridgement = "FinishedGangs"
	// AbridgedNodeLabels: labels that one node alone has are not listed. What selects nodes by them finds none.
	AbridgedNodeLabels Abridgement = "NodeLabels"
	// AbridgedGangs: it is not said which gang uses what on which nodes, so that no room is expected of a gang's end.
	AbridgedGangs Abridgement = "Gangs"
	// AbridgedAmounts: nodes that are alike but in what is used are shown as one, with the most that is used on any of them.
	AbridgedAmounts Abridgement = "Amounts"
	// AbridgedNodes: no node is listed, because there are too many kinds of them. Nothing fits on such a worker.
	AbridgedNodes Abridgement = "Nodes"
)

// Amounts are of the resources in the report's field resources, in its order: of cpu in thousandths of a core, of everything else in
// units.
// +listType=atomic
type Amounts []int64

// ReportedNodeGroup is a number of nodes that are alike but in what is used on them.
type ReportedNodeGroup struct {
	// labels are positions, from 0, in the report's field labels.
	// +optional
	// +listType=atomic
	Labels []int32 `json:"labels,omitempty"`
	// taints that keep pods off.
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
	// schedulable: Ready, and not cordoned.
	Schedulable bool `json:"schedulable"`
	// allocatable of each node.
	Allocatable Amounts `json:"allocatable"`
	// rows of nodes that are alike in what is used, too.
	// +listType=atomic
	Rows []ReportedNodes `json:"rows"`
}

// ReportedNodes is a number of nodes that are alike in everything.
type ReportedNodes struct {
	// nodes in this row.
	Nodes int32 `json:"nodes"`
	// used on each node: the requests of the pods that are bound to it and not over.
	Used Amounts `json:"used"`
	// gangs with pods on each of these nodes, and what those use.
	// +optional
	// +listType=atomic
	Gangs []ReportedUse `json:"gangs,omitempty"`
}

// ReportedUse is what one gang's pods use on a node.
type ReportedUse struct {
	// gang is a position, from 0, in the report's field gangs.
	Gang int32 `json:"gang"`
	// used is a part of what is used on the node.
	Used Amounts `json:"used"`
}

// ReportedGang is a JobSet with pods.
type ReportedGang struct {
	// namespace of the JobSet.
	Namespace string `json:"namespace"`
	// name of the JobSet.
	Name string `json:"name"`
	// pods by replicated job.
	// +listType=atomic
	Pods []ReportedPods `json:"pods"`
}

// ReportedPods counts the pods of a replicated job.
type ReportedPods struct {
	// job is the name of the replicated job.
	Job string `json:"job"`
	// bound pods are on a node and not over.
	// +optional
	Bound int32 `json:"bound,omitempty"`
	// succeeded pods are over, and still there.
	// +optional
	Succeeded int32 `json:"succeeded,omitempty"`
}

// CapacityReport is what a worker's nodes have and its pods use, kept by the worker's agent for hubs that are not to read nodes and
// pods. It is written for programs: small, for it is written again whenever something changes. There is one on each worker, named
// "capacity"; a hub has none.
// +kubebuilder:object:root=true
// +kubebuilder:resource:scope=Cluster,categories=trainyard
// +kubebuilder:printcolumn:name="Renewed",type=date,JSONPath=`.renewTime`
// +kubebuilder:printcolumn:name="Abridged",type=string,JSONPath=`.abridged`
type CapacityReport struct {
	metav1.TypeMeta `json:",inline"`
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// renewTime is when the report was last written, by the worker's clock. An agent that lives writes it every 30 s even if nothing
	// else has changed. Hubs look at whether it changes, never at the time.
	RenewTime metav1.MicroTime `json:"renewTime"`
	// resources that any node has or any pod uses, sorted. They are the columns of all amounts.
	// +optional
	// +listType=atomic
	Resources []corev1.ResourceName `json:"resources,omitempty"`
	// labels of nodes, as key=value, sorted, without kubernetes.io/hostname. Node groups refer to them by position.
	// +optional
	// +listType=atomic
	Labels []string `json:"labels,omitempty"`
	// nodeGroups are all nodes.
	// +optional
	// +listType=atomic
	NodeGroups []ReportedNodeGroup `json:"nodeGroups,omitempty"`
	// gangs are all JobSets with pods that are bound or have succeeded, sorted by namespace and name.
	// +optional
	// +listType=atomic
	Gangs []ReportedGang `json:"gangs,omitempty"`
	// abridged says what was left out of a report that would have been too large. Empty: nothing.
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
