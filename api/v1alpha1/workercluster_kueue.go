// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// KueueCapacity says whether the quota of a worker's Kueue counts as what the worker has free.
// +kubebuilder:validation:Enum=Ignore;Quota;QuotaAndNodes
type KueueCapacity string

// The values of KueueCapacity. They are about jobs that go to a LocalQueue. For other jobs only the nodes count.
const (
	// KueueCapacityIgnore: only the nodes count.
	KueueCapacityIgnore KueueCapacity = "Ignore"
	// KueueCapacityQuota: only the quota counts. It is for clusters that add nodes when jobs need them.
	KueueCapacityQuota KueueCapacity = "Quota"
	// KueueCapacityQuotaAndNodes: a job must fit into the quota and on the nodes.
	KueueCapacityQuotaAndNodes KueueCapacity = "QuotaAndNodes"
)

// WorkerKueue says what the hub does with the Kueue of a worker.
type WorkerKueue struct {
	// capacity says whether the quota of the worker's Kueue counts as what the worker has free. The hub then reads
	// LocalQueues, ClusterQueues, Cohorts, ResourceFlavors and Workloads there, or the agent does for its CapacityReport.
	// +optional
	// +kubebuilder:default=Ignore
	Capacity KueueCapacity `json:"capacity,omitempty"`
}

// CountsQuota says whether quota counts.
func (c KueueCapacity) CountsQuota() bool {
	return c == KueueCapacityQuota || c == KueueCapacityQuotaAndNodes
}
