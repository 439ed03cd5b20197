// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueues

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Active is the condition of queues, admission checks and clusters that can be used.
const Active = "Active"

// Object is an object of a kind of Kueue with the spec S.
type Object[S any] struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              S      `json:"spec"`
	Status            Status `json:"status"`
}

// The kinds of objects beside Workloads.
type (
	// LocalQueue leads the jobs of a namespace to a ClusterQueue.
	LocalQueue = Object[LocalQueueSpec]
	// ClusterQueue has quota.
	ClusterQueue = Object[ClusterQueueSpec]
	// Cohort has quota that ClusterQueues and other Cohorts share.
	Cohort = Object[CohortSpec]
	// ResourceFlavor is a kind of nodes.
	ResourceFlavor = Object[ResourceFlavorSpec]
	// AdmissionCheck is what Workloads need to be admitted, beside quota.
	AdmissionCheck = Object[AdmissionCheckSpec]
	// MultiKueueConfig names the clusters of a check of MultiKueue.
	MultiKueueConfig = Object[MultiKueueConfigSpec]
	// MultiKueueCluster is a cluster to which MultiKueue gives jobs.
	MultiKueueCluster = Object[MultiKueueClusterSpec]
)

// Status is the status of all kinds but Workloads.
type Status struct {
	Conditions []metav1.Condition `json:"conditions"`
	// EffectiveQuotas is of ClusterQueues and Cohorts. If it is there, also without groups, it counts instead of the
	// spec's groups: Kueue 0.20 with the feature gate DynamicQuotaOrchestration.
	EffectiveQuotas *struct {
		ResourceGroups []ResourceGroup `json:"resourceGroups"`
	} `json:"effectiveQuotas"`
}

// LocalQueueSpec is the spec of a LocalQueue.
type LocalQueueSpec struct {
	ClusterQueue string `json:"clusterQueue"`
	StopPolicy   string `json:"stopPolicy"`
}

// ClusterQueueSpec is the spec of a ClusterQueue.
type ClusterQueueSpec struct {
	ResourceGroups          []ResourceGroup `json:"resourceGroups"`
	CohortName              string          `json:"cohortName"`
	StopPolicy              string          `json:"stopPolicy"`
	AdmissionChecksStrategy struct {
		AdmissionChecks []CheckRule `json:"admissionChecks"`
	} `json:"admissionChecksStrategy"`
}

// CohortSpec is the spec of a Cohort.
type CohortSpec struct {
	ResourceGroups []ResourceGroup `json:"resourceGroups"`
	ParentName     string          `json:"parentName"`
}

// ResourceGroup is a number of resources whose quotas have the same flavors.
type ResourceGroup struct {
	CoveredResources []corev1.ResourceName `json:"coveredResources"`
	Flavors          []struct {
		Name      string `json:"name"`
		Resources []struct {
			Name           corev1.ResourceName `json:"name"`
			NominalQuota   resource.Quantity   `json:"nominalQuota"`
			BorrowingLimit *resource.Quantity  `json:"borrowingLimit"`
			LendingLimit   *resource.Quantity  `json:"lendingLimit"`
		} `json:"resources"`
	} `json:"flavors"`
}

// CheckRule is an AdmissionCheck of a ClusterQueue.
type CheckRule struct {
	Name      string   `json:"name"`
	OnFlavors []string `json:"onFlavors,omitempty"`
}

// ResourceFlavorSpec is the spec of a ResourceFlavor.
type ResourceFlavorSpec struct {
	NodeLabels  map[string]string   `json:"nodeLabels"`
	NodeTaints  []corev1.Taint      `json:"nodeTaints"`
	Tolerations []corev1.Toleration `json:"tolerations"`
}

// AdmissionCheckSpec is the spec of an AdmissionCheck.
type AdmissionCheckSpec struct {
	ControllerName string     `json:"controllerName"`
	Parameters     Parameters `json:"parameters"`
}

// Parameters name the object with the parameters of an AdmissionCheck.
type Parameters struct {
	APIGroup string `json:"apiGroup"`
	Kind     string `json:"kind"`
	Name     string `json:"name"`
}

// MultiKueueConfigSpec is the spec of a MultiKueueConfig.
type MultiKueueConfigSpec struct {
	Clusters []v1alpha1.ClusterName `json:"clusters"`
}

// MultiKueueClusterSpec is the spec of a MultiKueueCluster.
type MultiKueueClusterSpec struct {
	ClusterSource struct {
		KubeConfig struct {
			Location     string `json:"location"`
			LocationType string `json:"locationType"`
		} `json:"kubeConfig"`
		ClusterProfileRef struct {
			Name string `json:"name"`
		} `json:"clusterProfileRef"`
	} `json:"clusterSource"`
}

// Groups returns the groups that count: those of the spec, or those of the status instead.
func (s *Status) Groups(ofSpec []ResourceGroup) []ResourceGroup {
	if s.EffectiveQuotas != nil {
		return s.EffectiveQuotas.ResourceGroups
	}
	return ofSpec
}

// Stopped says why a queue with this stopPolicy starts nothing, or "".
func (s *Status) Stopped(policy string) string {
	if active := meta.FindStatusCondition(s.Conditions, Active); active != nil && active.Status == metav1.ConditionFalse {
		return strings.TrimSuffix(active.Message, ".")
	}
	if policy != "" && policy != "None" {
		return "its stopPolicy is " + policy
	}
	return ""
}
