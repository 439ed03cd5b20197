// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// ExpandableNodes are nodes of one kind that a worker adds when pods need them, such as a node pool of a cluster
// autoscaler. An admin writes what a new node is like: no standard object of Kubernetes says it.
// +kubebuilder:validation:XValidation:rule="!has(self.labels) || self.labels.all(key, !(key in self.selector))",message="new nodes have the labels of selector: labels must not repeat them"
// +kubebuilder:validation:XValidation:rule="!('kubernetes.io/hostname' in self.selector)",message="selector must have labels that all nodes of the pool have, and kubernetes.io/hostname names a single node"
type ExpandableNodes struct {
	// name is the name of the nodes in explanations, such as the name of their node pool.
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:XValidation:rule="self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="name must have lower case letters, digits, '-' and '.' only"
	Name string `json:"name"`
	// selector has labels that all these nodes have, and no other nodes: the label of the node pool, such as
	// cloud.google.com/gke-nodepool, eks.amazonaws.com/nodegroup or karpenter.sh/nodepool. The nodes of the worker that
	// have all of these labels count against maximum, also those that are not Ready or cordoned. So a node that comes
	// is not counted twice, as there and as still to come.
	// +kubebuilder:validation:MinProperties=1
	// +kubebuilder:validation:MaxProperties=8
	Selector map[string]string `json:"selector"`
	// labels are the other labels of a new node that jobs may select by, such as nvidia.com/gpu.product, or that are
	// domains of their topology, such as topology.kubernetes.io/zone if all nodes of the pool are in one zone.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	Labels map[string]string `json:"labels,omitempty"`
	// taints are the taints of a new node that keep pods off, without those that it has only until it is ready.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=32
	Taints []corev1.Taint `json:"taints,omitempty"`
	// allocatable is what a new node has for pods: status.allocatable of such a node, less what pods of DaemonSets
	// request. A negative amount counts as 0.
	Allocatable NodeResources `json:"allocatable"`
	// devices are how many devices of a DeviceClass a new node has, by the name of the class, for pods that claim
	// devices by template.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	Devices map[string]int32 `json:"devices,omitempty"`
	// maximum is how many of these nodes the worker has at most, those that are there included.
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=100000
	Maximum int32 `json:"maximum"`
	// price is the price of these nodes, in the units of spec.price of the worker. Of workers that would have to add
	// nodes for a job, the one that adds the cheapest nodes gets it. A negative price counts as 0. Absent: spec.price
	// of the worker.
	// +optional
	Price Prices `json:"price,omitempty"`
}

// NodeResources are what one node has of some resources.
// +kubebuilder:validation:MinProperties=1
// +kubebuilder:validation:MaxProperties=64
type NodeResources map[corev1.ResourceName]resource.Quantity

// ExpandableStatus is how many nodes a worker has of an item of spec.expandable.
type ExpandableStatus struct {
	// name is the name of the item.
	// +kubebuilder:validation:MaxLength=63
	Name string `json:"name"`
	// nodes is how many nodes have the labels of its selector, also those that are not Ready or cordoned. It is the
	// maximum if the worker's CapacityReport is too large to have the labels of all nodes.
	Nodes int32 `json:"nodes"`
}

// Recognizes says whether a node with these labels counts against the maximum.
func (e *ExpandableNodes) Recognizes(labels map[string]string) bool {
	for key, want := range e.Selector {
		if value, has := labels[key]; !has || value != want {
			return false
		}
	}
	return true
}

// AddNodes says whether jobs may get nodes that a worker has to add first.
// +kubebuilder:validation:Enum=Last;ByScore;Never
type AddNodes string

const (
	// AddNodesLast lets jobs get such nodes only where no worker has room on nodes that are there.
	AddNodesLast AddNodes = "Last"
	// AddNodesByScore lets the scores of the policy decide, whether nodes are there or not.
	AddNodesByScore AddNodes = "ByScore"
	// AddNodesNever lets only nodes count that are there.
	AddNodesNever AddNodes = "Never"
)
