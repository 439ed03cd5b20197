// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// countsOf has functions that return what counts of an object, nil for nothing, by the kind of the object.
var countsOf = map[kueues.Kind]func(*unstructured.Unstructured) any{
	kueues.KindClusterQueue:   func(object *unstructured.Unstructured) any { return clusterQueueOf(object) },
	kueues.KindCohort:         func(object *unstructured.Unstructured) any { return cohortOf(object) },
	kueues.KindLocalQueue:     func(object *unstructured.Unstructured) any { return localQueueOf(object) },
	kueues.KindResourceFlavor: func(object *unstructured.Unstructured) any { return flavorOf(object) },
	kueues.KindWorkload: func(object *unstructured.Unstructured) any {
		if w := workloadOf(object); w.job != "" || w.clusterQueue != "" {
			return w
		}
		return nil
	},
}

// fieldsOf reads an object. The API server checks the objects against their CRD. So an object that cannot be read has a
// version that this process does not know. It counts as missing.
func fieldsOf[T any](object *unstructured.Unstructured) *T {
	fields, _ := kueues.Read[T](object)
	return fields
}

func groupsOf(given []kueues.ResourceGroup) []v1alpha1.KueueResourceGroup {
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
	q := fieldsOf[kueues.ClusterQueue](object)
	return v1alpha1.KueueClusterQueue{
		Name: object.GetName(), Cohort: q.Spec.CohortName, Stopped: q.Status.Stopped(q.Spec.StopPolicy),
		Groups: groupsOf(q.Status.Groups(q.Spec.ResourceGroups)),
	}
}

func cohortOf(object *unstructured.Unstructured) v1alpha1.KueueCohort {
	c := fieldsOf[kueues.Cohort](object)
	return v1alpha1.KueueCohort{
		Name: object.GetName(), Parent: c.Spec.ParentName, Groups: groupsOf(c.Status.Groups(c.Spec.ResourceGroups)),
	}
}

func localQueueOf(object *unstructured.Unstructured) v1alpha1.KueueLocalQueue {
	q := fieldsOf[kueues.LocalQueue](object)
	return v1alpha1.KueueLocalQueue{
		Namespace: object.GetNamespace(), Name: object.GetName(), ClusterQueue: q.Spec.ClusterQueue,
		Stopped: q.Status.Stopped(q.Spec.StopPolicy),
	}
}

func flavorOf(object *unstructured.Unstructured) v1alpha1.KueueFlavor {
	spec := &fieldsOf[kueues.ResourceFlavor](object).Spec
	return v1alpha1.KueueFlavor{
		Name: object.GetName(), Labels: spec.NodeLabels, Taints: HardTaints(spec.NodeTaints), Tolerations: spec.Tolerations,
	}
}

// workloadOf returns what a Workload counts for. Pods that need no quota any more do not count.
func workloadOf(object *unstructured.Unstructured) countedWorkload {
	w, counted := fieldsOf[kueues.Workload](object), countedWorkload{}
	if w.Is(kueues.Finished) {
		return counted
	}
	if job := kueues.TrainJobOf(object); job != nil {
		counted.job, counted.queue, counted.requests = job.Name, w.Spec.QueueName, kueueRequests(&w.Status)
	}
	if w.Status.Admission == nil || !w.Is(kueues.QuotaReserved) {
		return counted
	}
	counted.clusterQueue, counted.used = w.Status.Admission.ClusterQueue, map[flavorResource]int64{}
	pods, left := map[string]int32{}, map[string]int32{}
	for _, podSet := range w.Spec.PodSets {
		pods[podSet.Name], left[podSet.Name] = podSet.Count, podSet.Count
	}
	for _, reclaimable := range w.Status.ReclaimablePods {
		left[reclaimable.Name] -= reclaimable.Count
	}
	for _, assigned := range w.Status.Admission.PodSetAssignments {
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

// kueueRequests returns what all pods of a Workload request together, as Kueue counts them. It is empty before Kueue
// has looked at the Workload.
func kueueRequests(status *kueues.WorkloadStatus) map[corev1.ResourceName]int64 {
	var podSets []corev1.ResourceList
	if status.Admission != nil {
		for _, assigned := range status.Admission.PodSetAssignments {
			podSets = append(podSets, assigned.ResourceUsage)
		}
	} else {
		for _, podSet := range status.ResourceRequests {
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
