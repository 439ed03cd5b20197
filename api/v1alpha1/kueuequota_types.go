// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import corev1 "k8s.io/api/core/v1"

// KueueQuota is what a worker's Kueue lets jobs use, and what its Workloads have reserved. Amounts are as in the report:
// cpu in thousandths of a core, everything else in units.
type KueueQuota struct {
	// clusterQueues are all ClusterQueues, sorted by name.
	// +optional
	// +listType=atomic
	ClusterQueues []KueueClusterQueue `json:"clusterQueues,omitempty"`
	// cohorts are all Cohorts, sorted by name.
	// +optional
	// +listType=atomic
	Cohorts []KueueCohort `json:"cohorts,omitempty"`
	// localQueues are all LocalQueues, sorted by namespace and name.
	// +optional
	// +listType=atomic
	LocalQueues []KueueLocalQueue `json:"localQueues,omitempty"`
	// flavors are all ResourceFlavors, sorted by name.
	// +optional
	// +listType=atomic
	Flavors []KueueFlavor `json:"flavors,omitempty"`
	// workloads are the Workloads of TrainJobs that are not over, sorted by namespace and job.
	// +optional
	// +listType=atomic
	Workloads []KueueWorkload `json:"workloads,omitempty"`
}

// KueueClusterQueue is a ClusterQueue.
type KueueClusterQueue struct {
	// name is the name of the ClusterQueue.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// cohort is the name of its cohort. Empty: it has none.
	// +optional
	Cohort string `json:"cohort,omitempty"`
	// stopped says why it starts nothing, in Kueue's words. Empty: it does.
	// +optional
	Stopped string `json:"stopped,omitempty"`
	// groups are its resource groups, in their order.
	// +optional
	// +listType=atomic
	Groups []KueueResourceGroup `json:"groups,omitempty"`
	// used is what Workloads of all kinds have reserved, sorted by flavor and resource.
	// +optional
	// +listType=atomic
	Used []KueueAmount `json:"used,omitempty"`
}

// KueueCohort is a Cohort.
type KueueCohort struct {
	// name is the name of the Cohort.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// parent is the name of its parent. Empty: it is a root.
	// +optional
	Parent string `json:"parent,omitempty"`
	// groups are its resource groups, in their order.
	// +optional
	// +listType=atomic
	Groups []KueueResourceGroup `json:"groups,omitempty"`
}

// KueueResourceGroup is a number of resources whose quotas have the same flavors.
type KueueResourceGroup struct {
	// resources are the resources that the group covers.
	// +optional
	// +listType=atomic
	Resources []corev1.ResourceName `json:"resources,omitempty"`
	// flavors are in the order in which Kueue tries them.
	// +optional
	// +listType=atomic
	Flavors []KueueFlavorQuotas `json:"flavors,omitempty"`
}

// KueueFlavorQuotas are the quotas of one flavor.
type KueueFlavorQuotas struct {
	// name is the name of the ResourceFlavor.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// quotas are the quotas by resource.
	// +optional
	// +listType=atomic
	Quotas []KueueResourceQuota `json:"quotas,omitempty"`
}

// KueueResourceQuota is the quota of one resource of a flavor.
type KueueResourceQuota struct {
	// resource is the name of the resource.
	Resource corev1.ResourceName `json:"resource"`
	// nominal is what belongs to the queue or cohort.
	// +optional
	Nominal int64 `json:"nominal,omitempty"`
	// borrowingLimit is what it may borrow besides. Absent: no limit.
	// +optional
	BorrowingLimit *int64 `json:"borrowingLimit,omitempty"`
	// lendingLimit is what it may lend. Absent: no limit.
	// +optional
	LendingLimit *int64 `json:"lendingLimit,omitempty"`
}

// KueueLocalQueue is a LocalQueue.
type KueueLocalQueue struct {
	// namespace is the namespace of the LocalQueue.
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace"`
	// name is the name of the LocalQueue.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// clusterQueue is the name of its ClusterQueue.
	// +optional
	ClusterQueue string `json:"clusterQueue,omitempty"`
	// stopped says why it starts nothing, in Kueue's words. Empty: it does.
	// +optional
	Stopped string `json:"stopped,omitempty"`
}

// KueueFlavor is a ResourceFlavor.
type KueueFlavor struct {
	// name is the name of the ResourceFlavor.
	// +kubebuilder:validation:MinLength=1
	Name string `json:"name"`
	// labels are the labels of its nodes.
	// +optional
	Labels map[string]string `json:"labels,omitempty"`
	// taints are the taints of its nodes that keep pods off.
	// +optional
	// +listType=atomic
	Taints []corev1.Taint `json:"taints,omitempty"`
	// tolerations are what Kueue adds to the pods that get the flavor.
	// +optional
	// +listType=atomic
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// KueueWorkload is the Workload of a TrainJob.
type KueueWorkload struct {
	// namespace is the namespace of the Workload and its TrainJob.
	// +kubebuilder:validation:MinLength=1
	Namespace string `json:"namespace"`
	// job is the name of the TrainJob.
	// +kubebuilder:validation:MinLength=1
	Job string `json:"job"`
	// queue is the name of the LocalQueue.
	// +optional
	Queue string `json:"queue,omitempty"`
	// clusterQueue is the name of the ClusterQueue in which it has reserved quota. Empty: it has reserved none.
	// +optional
	ClusterQueue string `json:"clusterQueue,omitempty"`
	// used is its part of what is used of the ClusterQueue, sorted by flavor and resource.
	// +optional
	// +listType=atomic
	Used []KueueAmount `json:"used,omitempty"`
	// requests are what all its pods request together, as this Kueue counts them, sorted by resource. Absent: Kueue has
	// not looked at the Workload.
	// +optional
	// +listType=atomic
	Requests []KueueRequest `json:"requests,omitempty"`
}

// KueueRequest is an amount of one resource.
type KueueRequest struct {
	// resource is the name of the resource.
	Resource corev1.ResourceName `json:"resource"`
	// amount is the amount.
	Amount int64 `json:"amount"`
}

// KueueAmount is an amount of one resource of a flavor.
type KueueAmount struct {
	// flavor is the name of the ResourceFlavor.
	// +kubebuilder:validation:MinLength=1
	Flavor string `json:"flavor"`
	// resource is the name of the resource.
	Resource corev1.ResourceName `json:"resource"`
	// amount is the amount.
	Amount int64 `json:"amount"`
}
