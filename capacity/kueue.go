// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// kueueFields are the fields of Kueue's objects that count. All kinds share them, as no two kinds have one name for
// different things.
type kueueFields struct {
	Spec struct {
		// These are of ClusterQueues and Cohorts.
		ResourceGroups []kueueGroup `json:"resourceGroups,omitempty"`
		CohortName     string       `json:"cohortName,omitempty"`
		ParentName     string       `json:"parentName,omitempty"`
		// These are of LocalQueues and ClusterQueues.
		ClusterQueue string `json:"clusterQueue,omitempty"`
		StopPolicy   string `json:"stopPolicy,omitempty"`
		// These are of ResourceFlavors.
		NodeLabels  map[string]string   `json:"nodeLabels,omitempty"`
		NodeTaints  []corev1.Taint      `json:"nodeTaints,omitempty"`
		Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
		// These are of Workloads.
		QueueName string `json:"queueName,omitempty"`
		PodSets   []struct {
			Name  string `json:"name"`
			Count int32  `json:"count"`
		} `json:"podSets,omitempty"`
	} `json:"spec,omitempty"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions,omitempty"`
		// EffectiveQuotas is of ClusterQueues and Cohorts. If it is there, also without groups, it counts instead of the
		// spec's groups: Kueue 0.20 with the feature gate DynamicQuotaOrchestration.
		EffectiveQuotas *struct {
			ResourceGroups []kueueGroup `json:"resourceGroups,omitempty"`
		} `json:"effectiveQuotas,omitempty"`
		// These are of Workloads.
		Admission       *kueueAdmission `json:"admission,omitempty"`
		ReclaimablePods []struct {
			Name  string `json:"name"`
			Count int32  `json:"count"`
		} `json:"reclaimablePods,omitempty"`
		// ResourceRequests is there from Kueue's first look at a Workload until it reserves quota.
		ResourceRequests []struct {
			Name      string              `json:"name"`
			Resources corev1.ResourceList `json:"resources,omitempty"`
		} `json:"resourceRequests,omitempty"`
	} `json:"status,omitempty"`
}

type kueueGroup struct {
	CoveredResources []corev1.ResourceName `json:"coveredResources,omitempty"`
	Flavors          []struct {
		Name      string `json:"name"`
		Resources []struct {
			Name           corev1.ResourceName `json:"name"`
			NominalQuota   resource.Quantity   `json:"nominalQuota,omitempty"`
			BorrowingLimit *resource.Quantity  `json:"borrowingLimit,omitempty"`
			LendingLimit   *resource.Quantity  `json:"lendingLimit,omitempty"`
		} `json:"resources,omitempty"`
	} `json:"flavors,omitempty"`
}

type kueueAdmission struct {
	ClusterQueue      string `json:"clusterQueue"`
	PodSetAssignments []struct {
		Name          string                         `json:"name"`
		Flavors       map[corev1.ResourceName]string `json:"flavors,omitempty"`
		ResourceUsage corev1.ResourceList            `json:"resourceUsage,omitempty"`
		Count         *int32                         `json:"count,omitempty"`
	} `json:"podSetAssignments,omitempty"`
}

// kept are the fields that StripKueue keeps.
var kept = map[string][]string{
	"spec": {
		"resourceGroups", "cohortName", "parentName", "clusterQueue", "stopPolicy", "nodeLabels", "nodeTaints", "tolerations", "queueName",
	},
	"status": {"conditions", "reclaimablePods", "effectiveQuotas"},
}

// StripKueue keeps the fields of Kueue's objects that quota depends on. Of a finished Workload it keeps the identity.
func StripKueue(in any) (any, error) {
	object, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	stripped := &unstructured.Unstructured{Object: map[string]any{}}
	stripped.SetGroupVersionKind(object.GroupVersionKind())
	stripped.SetNamespace(object.GetNamespace())
	stripped.SetName(object.GetName())
	stripped.SetUID(object.GetUID())
	stripped.SetResourceVersion(object.GetResourceVersion())
	if object.GetKind() == "Workload" {
		stripped.SetLabels(object.GetLabels())
		stripped.SetDeletionTimestamp(object.GetDeletionTimestamp())
		if owner := metav1.GetControllerOfNoCopy(object); owner != nil {
			stripped.SetOwnerReferences([]metav1.OwnerReference{*owner})
		}
	}
	for part, fields := range kept {
		for _, field := range fields {
			if value, has, _ := unstructured.NestedFieldNoCopy(object.Object, part, field); has {
				setField(stripped, value, part, field)
			}
		}
	}
	if object.GetKind() != "Workload" {
		return stripped, nil
	}
	if isTrue(object, "Finished") {
		delete(stripped.Object, "spec")
	} else {
		stripWorkload(object, stripped)
	}
	return stripped, nil
}

// stripWorkload keeps the numbers of pods, what the Workload has reserved, and what it waits for. Templates and
// topologies can be large.
func stripWorkload(object, stripped *unstructured.Unstructured) {
	podSets, _, _ := unstructured.NestedFieldNoCopy(object.Object, "spec", "podSets")
	setField(stripped, trainjobs.PickItems(podSets, "name", "count"), "spec", "podSets")
	if checks, has, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "admissionChecks"); has {
		setField(stripped, trainjobs.PickItems(checks, "name", "state", "message"), "status", "admissionChecks")
	}
	if requests, has, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "resourceRequests"); has {
		setField(stripped, trainjobs.PickItems(requests, "name", "resources"), "status", "resourceRequests")
	}
	if admission, has, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "admission"); has {
		fields, _ := admission.(map[string]any)
		setField(stripped, map[string]any{
			"clusterQueue":      fields["clusterQueue"],
			"podSetAssignments": trainjobs.PickItems(fields["podSetAssignments"], "name", "flavors", "resourceUsage", "count"),
		}, "status", "admission")
	}
}

// setField sets a field of an object without a copy of the value.
func setField(object *unstructured.Unstructured, value any, part, field string) {
	fields, _ := object.Object[part].(map[string]any)
	if fields == nil {
		fields = map[string]any{}
		object.Object[part] = fields
	}
	fields[field] = value
}

func isTrue(object *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedFieldNoCopy(object.Object, "status", "conditions")
	list, _ := conditions.([]any)
	for _, c := range list {
		if fields, _ := c.(map[string]any); fields["type"] == condition {
			return fields["status"] == string(metav1.ConditionTrue)
		}
	}
	return false
}

// fieldsOf reads an object. The API server checks the objects against their CRD. So an object that cannot be read has a
// version that this process does not know. It counts as missing.
func fieldsOf(object *unstructured.Unstructured) *kueueFields {
	fields := &kueueFields{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, fields); err != nil {
		return &kueueFields{}
	}
	return fields
}

// stopped says why a queue starts nothing, or "".
func (f *kueueFields) stopped() string {
	for _, c := range f.Status.Conditions {
		if c.Type == "Active" && c.Status == metav1.ConditionFalse {
			return strings.TrimSuffix(c.Message, ".")
		}
	}
	if f.Spec.StopPolicy != "" && f.Spec.StopPolicy != "None" {
		return "its stopPolicy is " + f.Spec.StopPolicy
	}
	return ""
}

func (f *kueueFields) groups() []v1alpha1.KueueResourceGroup {
	given := f.Spec.ResourceGroups
	if f.Status.EffectiveQuotas != nil {
		given = f.Status.EffectiveQuotas.ResourceGroups
	}
	var groups []v1alpha1.KueueResourceGroup
	for _, from := range given {
		group := v1alpha1.KueueResourceGroup{Resources: from.CoveredResources}
		for _, flavor := range from.Flavors {
			quotas := v1alpha1.KueueFlavorQuotas{Name: flavor.Name}
			for _, r := range flavor.Resources {
				quotas.Quotas = append(quotas.Quotas, v1alpha1.KueueResourceQuota{
					Resource: r.Name, Nominal: amountOf(r.Name, r.NominalQuota),
					BorrowingLimit: limitOf(r.Name, r.BorrowingLimit), LendingLimit: limitOf(r.Name, r.LendingLimit),
				})
			}
			group.Flavors = append(group.Flavors, quotas)
		}
		groups = append(groups, group)
	}
	return groups
}

func limitOf(name corev1.ResourceName, limit *resource.Quantity) *int64 {
	if limit == nil {
		return nil
	}
	return new(amountOf(name, *limit))
}

func clusterQueueOf(object *unstructured.Unstructured) v1alpha1.KueueClusterQueue {
	fields := fieldsOf(object)
	return v1alpha1.KueueClusterQueue{
		Name: object.GetName(), Cohort: fields.Spec.CohortName, Stopped: fields.stopped(), Groups: fields.groups(),
	}
}

func cohortOf(object *unstructured.Unstructured) v1alpha1.KueueCohort {
	fields := fieldsOf(object)
	return v1alpha1.KueueCohort{Name: object.GetName(), Parent: fields.Spec.ParentName, Groups: fields.groups()}
}

func localQueueOf(object *unstructured.Unstructured) v1alpha1.KueueLocalQueue {
	fields := fieldsOf(object)
	return v1alpha1.KueueLocalQueue{
		Namespace: object.GetNamespace(), Name: object.GetName(), ClusterQueue: fields.Spec.ClusterQueue, Stopped: fields.stopped(),
	}
}

func flavorOf(object *unstructured.Unstructured) v1alpha1.KueueFlavor {
	fields := fieldsOf(object)
	return v1alpha1.KueueFlavor{
		Name: object.GetName(), Labels: fields.Spec.NodeLabels, Taints: HardTaints(fields.Spec.NodeTaints), Tolerations: fields.Spec.Tolerations,
	}
}

// workloadOf returns what a Workload counts for. Pods that need no quota any more do not count.
func workloadOf(object *unstructured.Unstructured) countedWorkload {
	if isTrue(object, "Finished") {
		return countedWorkload{}
	}
	fields, counted := fieldsOf(object), countedWorkload{}
	if owner := metav1.GetControllerOfNoCopy(object); owner != nil && owner.Kind == "TrainJob" &&
		strings.HasPrefix(owner.APIVersion, "trainer.kubeflow.org/") {
		counted.job, counted.queue, counted.requests = owner.Name, fields.Spec.QueueName, fields.requests()
	}
	if fields.Status.Admission == nil || !isTrue(object, "QuotaReserved") {
		return counted
	}
	counted.clusterQueue, counted.used = fields.Status.Admission.ClusterQueue, map[flavorResource]int64{}
	pods := map[string]int32{}
	for _, podSet := range fields.Spec.PodSets {
		pods[podSet.Name] = podSet.Count
	}
	left := map[string]int32{}
	for name, count := range pods {
		left[name] = count
	}
	for _, reclaimable := range fields.Status.ReclaimablePods {
		left[reclaimable.Name] -= reclaimable.Count
	}
	for _, assigned := range fields.Status.Admission.PodSetAssignments {
		count := pods[assigned.Name]
		if assigned.Count != nil {
			count = *assigned.Count
		}
		for name, quantity := range assigned.ResourceUsage {
			amount := amountOf(name, quantity)
			if rest := left[assigned.Name]; rest < count && count > 0 {
				amount = amount / int64(count) * int64(max(rest, 0))
			}
			if flavor := assigned.Flavors[name]; flavor != "" && name != "" && amount > 0 {
				counted.used[flavorResource{flavor, name}] += amount
			}
		}
	}
	return counted
}

// requests are what all pods of a Workload request together, as Kueue counts them. They are empty before Kueue has
// looked at it.
func (f *kueueFields) requests() map[corev1.ResourceName]int64 {
	var podSets []corev1.ResourceList
	if f.Status.Admission != nil {
		for _, assigned := range f.Status.Admission.PodSetAssignments {
			podSets = append(podSets, assigned.ResourceUsage)
		}
	} else {
		for _, podSet := range f.Status.ResourceRequests {
			podSets = append(podSets, podSet.Resources)
		}
	}
	requests := map[corev1.ResourceName]int64{}
	for _, resources := range podSets {
		for name, quantity := range resources {
			if amount := amountOf(name, quantity); name != "" && amount > 0 {
				requests[name] += amount
			}
		}
	}
	return requests
}

// counts says whether anybody needs to know of the Workload.
func (w countedWorkload) counts() bool { return w.job != "" || w.clusterQueue != "" }
