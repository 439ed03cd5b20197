// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// AnnotationCheckpoint on a hub TrainJob says where the job saves its checkpoints: a URI, in which $(UID) and
// $(NAMESPACE) of the TrainJob are expanded, or CheckpointPVC and the name of a PersistentVolumeClaim. It counts when
// the job is placed, and if the policy of the job has spec.checkpoint.
const AnnotationCheckpoint = "trainyard.dev/checkpoint"

// CheckpointPVC begins the value of AnnotationCheckpoint for a checkpoint that is in a PersistentVolumeClaim of the
// worker. The name of the claim follows.
const CheckpointPVC = "pvc:"

// MetricCheckpoint is the name of the metric in a TrainJob's status.trainerStatus.metrics by which its process says
// which checkpoint it has saved last: a step, for instance. Another value is another checkpoint.
const MetricCheckpoint = "checkpoint_step"

// Checkpointing is what a policy says about jobs that save checkpoints, and whose next attempt goes on from there.
type Checkpointing struct {
	// grace is how long the pods of the trainer and of the launcher have to save a checkpoint when they are stopped: their
	// terminationGracePeriodSeconds, in whole seconds. It is not for pods for which runtime or job say it. A job does
	// not go to a worker without the CRDs of Kubeflow Trainer 2.3. With failover Fenced it does not go to a worker whose agent
	// could not give its pods that much: spec.failover.fenceAfter of the WorkerCluster decides. Absent: what Kubernetes gives
	// pods, 30s.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) >= duration('1s')",message="grace must be at least 1s"
	Grace *metav1.Duration `json:"grace,omitempty"`
	// maxWait is how long a job stays on a worker that is being drained, with room for it elsewhere, until its process has
	// saved another checkpoint, by the metric checkpoint_step of its trainerStatus. A job that has not reported this metric
	// in its present attempt moves at once. Absent: no job waits.
	// +optional
	// +kubebuilder:validation:XValidation:rule="duration(self) > duration('0s')",message="maxWait must be positive"
	MaxWait *metav1.Duration `json:"maxWait,omitempty"`
}

// GraceSeconds is grace in whole seconds, rounded up, or 0 if there is none. c may be nil.
func (c *Checkpointing) GraceSeconds() int64 {
	if c == nil || c.Grace == nil {
		return 0
	}
	return int64((c.Grace.Duration + time.Second - 1) / time.Second)
}

// Checkpoint is what the process of an attempt is told in variables of its environment, beside job, attempt and worker,
// and the time that it gets to save a checkpoint.
type Checkpoint struct {
	// uri is where the job saves its checkpoints: the annotation trainyard.dev/checkpoint of the TrainJob, expanded. Absent:
	// the TrainJob did not have it when it was placed.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	URI string `json:"uri,omitempty"`
	// previousCluster is the worker of the last attempt of which a step ran that is no initializer. Absent: there was none.
	// +optional
	PreviousCluster ClusterName `json:"previousCluster,omitempty"`
	// lastProgress is what the process of that attempt reported last, as the JSON of a Progress. Absent: it reported nothing.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	LastProgress string `json:"lastProgress,omitempty"`
	// grace is the grace period that pods of the copy get by the policy. Absent: none gets one.
	// +optional
	Grace *PodGrace `json:"grace,omitempty"`
}

// PodGrace is a grace period of pods that a policy gives.
type PodGrace struct {
	// seconds is the terminationGracePeriodSeconds of the pods.
	// +kubebuilder:validation:Minimum=1
	Seconds int64 `json:"seconds"`
	// podSets are the names of the PodSets whose pods get it.
	// +listType=set
	// +kubebuilder:validation:MinItems=1
	// +kubebuilder:validation:MaxItems=256
	// +kubebuilder:validation:items:MaxLength=63
	PodSets []string `json:"podSets"`
}

// Progress is what the process of an attempt has reported about itself: the trainerStatus of its copy, cut to 1024 bytes
// of JSON.
type Progress struct {
	// progressPercentage is how complete the training is.
	// +optional
	// +kubebuilder:validation:Minimum=0
	// +kubebuilder:validation:Maximum=100
	ProgressPercentage *int32 `json:"progressPercentage,omitempty"`
	// estimatedRemainingSeconds is how long the training will take from then on.
	// +optional
	// +kubebuilder:validation:Minimum=0
	EstimatedRemainingSeconds *int32 `json:"estimatedRemainingSeconds,omitempty"`
	// metrics are the metrics of the report. In the history only the last attempt that ran has them.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Metrics []Metric `json:"metrics,omitempty"`
	// lastUpdatedTime is the time of the report, by the worker's clock.
	// +optional
	LastUpdatedTime *metav1.Time `json:"lastUpdatedTime,omitempty"`
}

// Metric is a metric that a training process has reported.
type Metric struct {
	// name is the name of the metric.
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`
	// value is the value of the metric.
	// +kubebuilder:validation:MaxLength=64
	Value string `json:"value"`
}

// SavedCheckpoint is the last checkpoint that the process of an attempt has reported.
type SavedCheckpoint struct {
	// name is the value of the metric checkpoint_step.
	// +kubebuilder:validation:MaxLength=64
	Name string `json:"name"`
	// time is when the hub saw this value first, by the hub's clock.
	Time metav1.Time `json:"time"`
}
