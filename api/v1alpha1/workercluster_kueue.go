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
	// workerQueue says into which LocalQueue of this worker copies come. It counts before the workerQueue of a job's policy,
	// and from a job's next attempt on. Absent: as the policy says.
	// +optional
	WorkerQueue WorkerQueue `json:"workerQueue,omitempty"`
}

// WorkerQueue says into which LocalQueue of a worker the copy of a job comes: FromJob, None, or the name of a LocalQueue
// in the job's namespace. Absent: FromJob, but None for a job that the hub's own Kueue has in its queue.
// +kubebuilder:validation:MaxLength=63
// +kubebuilder:validation:XValidation:rule="self == 'FromJob' || self == 'None' || self.matches('^[a-z0-9]([-.a-z0-9]*[a-z0-9])?$')",message="workerQueue must be FromJob, None, or the name of a LocalQueue: lower case letters, digits, '-' and '.'"
type WorkerQueue string

// The values of WorkerQueue that name no LocalQueue.
const (
	// WorkerQueueFromJob: the copy has the label kueue.x-k8s.io/queue-name of the job, if the job has one.
	WorkerQueueFromJob WorkerQueue = "FromJob"
	// WorkerQueueNone: the copy has no such label.
	WorkerQueueNone WorkerQueue = "None"
)

// CountsQuota says whether quota counts.
func (c KueueCapacity) CountsQuota() bool {
	return c == KueueCapacityQuota || c == KueueCapacityQuotaAndNodes
}
