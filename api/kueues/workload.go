// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueues

import (
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Conditions of a Workload.
const (
	QuotaReserved = "QuotaReserved"
	Admitted      = "Admitted"
	Evicted       = "Evicted"
	Finished      = "Finished"
	PodsReady     = "PodsReady"
	// PreemptionGated: Kueue would preempt other Workloads for this one, but MultiKueue has to let it. It stays until the
	// Workload is admitted or evicted.
	PreemptionGated = "BlockedOnPreemptionGates"
)

// Reasons of QuotaReserved with status False before Kueue 0.20. Its messages tell more cases apart.
const (
	// ReasonInadmissible: only an admin can change that, or a queue is stopped or not ready yet.
	ReasonInadmissible = "Inadmissible"
	// ReasonPending is for all other cases.
	ReasonPending = "Pending"
	// WordsPreempting begins the messages of Pending while Workloads stop for this one.
	WordsPreempting = "Pending the preemption of "
)

// Reasons of QuotaReserved with status False since Kueue 0.20.
const (
	ReasonMisconfigured           = "Misconfigured"
	ReasonSuspended               = "Suspended"
	ReasonExceedsMaxQuota         = "ExceedsMaxQuota"
	ReasonNoMatchingFlavor        = "NoMatchingFlavor"
	ReasonTopologyPlacementFailed = "TopologyPlacementFailed"
	ReasonWaitingForQuota         = "WaitingForQuota"
	ReasonPreempting              = "WaitingForPreemptedWorkloads"
)

// Reasons of Evicted with which Kueue itself gives up a Workload.
const (
	ReasonCheckRejected    = "DeactivatedDueToAdmissionCheck"
	ReasonRequeuedTooOften = "DeactivatedDueToRequeuingLimitExceeded"
)

// States of an admission check.
const (
	// CheckPending: the Workload keeps its quota, and waits.
	CheckPending = "Pending"
	// CheckReady: the job may run.
	CheckReady = "Ready"
	// CheckRetry: Kueue takes the quota back, and reserves quota again later.
	CheckRetry = "Retry"
)

// Workload is Kueue's record of a job.
type Workload struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              WorkloadSpec   `json:"spec"`
	Status            WorkloadStatus `json:"status"`
}

// WorkloadSpec says what the job needs.
type WorkloadSpec struct {
	QueueName string   `json:"queueName"`
	Priority  int32    `json:"priority"`
	PodSets   []PodSet `json:"podSets"`
}

// PodSet is a number of equal pods.
type PodSet struct {
	Name  string `json:"name"`
	Count int32  `json:"count"`
	// Template can be large, and few readers need it. Pod reads it.
	Template map[string]any `json:"template"`
}

// WorkloadStatus says what Kueue has decided about the job.
type WorkloadStatus struct {
	Conditions []metav1.Condition `json:"conditions"`
	// Admission is nil before quota is reserved.
	Admission       *Admission   `json:"admission"`
	AdmissionChecks []CheckState `json:"admissionChecks"`
	// ClusterName is the cluster to which MultiKueue has given the job. NominatedClusterNames are the clusters to which it
	// may give the job.
	ClusterName           string                 `json:"clusterName"`
	NominatedClusterNames []v1alpha1.ClusterName `json:"nominatedClusterNames"`
	ReclaimablePods       []PodSet               `json:"reclaimablePods"`
	// ResourceRequests is there from Kueue's first look at a Workload until it reserves quota.
	ResourceRequests []struct {
		Name      string              `json:"name"`
		Resources corev1.ResourceList `json:"resources"`
	} `json:"resourceRequests"`
}

// Admission is the quota that is reserved.
type Admission struct {
	ClusterQueue      string       `json:"clusterQueue"`
	PodSetAssignments []Assignment `json:"podSetAssignments"`
}

// Assignment is the quota of one PodSet.
type Assignment struct {
	// Name is the name of the PodSet, which a TrainJob's replicated job has too.
	Name          string                         `json:"name"`
	Flavors       map[corev1.ResourceName]string `json:"flavors"`
	ResourceUsage corev1.ResourceList            `json:"resourceUsage"`
	Count         *int32                         `json:"count"`
}

// CheckState is the state of an admission check.
type CheckState struct {
	Name    string `json:"name"`
	State   string `json:"state"`
	Message string `json:"message"`
	// LastTransitionTime is in the form in which the API server has it.
	LastTransitionTime string `json:"lastTransitionTime"`
	// RetryCount is how many times the check has given the quota back in a row.
	RetryCount int64 `json:"retryCount"`
}

// Is is true if the condition is True.
func (w *Workload) Is(condition string) bool {
	return meta.IsStatusConditionTrue(w.Status.Conditions, condition)
}

// Condition returns a condition, nil if the Workload does not have it.
func (w *Workload) Condition(condition string) *metav1.Condition {
	return meta.FindStatusCondition(w.Status.Conditions, condition)
}

// Pod returns the spec of the pods.
func (p *PodSet) Pod() (*corev1.PodSpec, error) {
	template := &corev1.PodTemplateSpec{}
	err := runtime.DefaultUnstructuredConverter.FromUnstructured(p.Template, template)
	return &template.Spec, err
}

// TrainJobOf returns the TrainJob that controls a Workload, nil for another kind of job.
func TrainJobOf(workload metav1.Object) *metav1.OwnerReference {
	owner := metav1.GetControllerOfNoCopy(workload)
	if owner == nil || owner.Kind != trainer.TrainJobKind || !strings.HasPrefix(owner.APIVersion, trainer.GroupVersion.Group+"/") {
		return nil
	}
	return owner
}
