// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"maps"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// Strip is the transform of the hub's cache of Workloads. Of a finished Workload it keeps the name, and of a Workload
// on a worker also what it needs there. A Workload that waits for a nomination keeps its status and what Kueue owns of
// it: both go into the patch that nominates, so that nobody has to read the Workload for it.
func Strip(in any) (any, error) {
	object, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	w, err := parse(object)
	if err != nil {
		return in, nil //nolint:nilerr // The reconciler reports it.
	}
	kept := &unstructured.Unstructured{Object: map[string]any{}}
	kept.SetGroupVersionKind(object.GroupVersionKind())
	kept.SetNamespace(w.Namespace)
	kept.SetName(w.Name)
	kept.SetUID(w.UID)
	kept.SetResourceVersion(w.ResourceVersion)
	kept.SetCreationTimestamp(w.CreationTimestamp)
	kept.SetDeletionTimestamp(w.DeletionTimestamp)
	status, _ := object.Object["status"].(map[string]any)
	if w.is(conditionFinished) || len(w.Status.AdmissionChecks) == 0 {
		kept.Object["status"] = map[string]any{"conditions": conditionsOf(status)}
		return kept, nil
	}
	kept.SetLabels(w.Labels)
	if owner := metav1.GetControllerOf(w); owner != nil {
		kept.SetOwnerReferences([]metav1.OwnerReference{*owner})
	}
	spec, _ := object.Object["spec"].(map[string]any)
	kept.Object["spec"] = trainjobs.PickFields(spec, "priority")
	kept.Object["spec"].(map[string]any)["podSets"] = stripPodSets(spec["podSets"])
	if w.awaitsNomination() {
		kept.SetManagedFields(entriesOfKueue(object.GetManagedFields()))
		kept.Object["status"] = status
		return kept, nil
	}
	slim := trainjobs.PickFields(status, "clusterName", "nominatedClusterNames")
	slim["conditions"] = conditionsOf(status)
	slim["admissionChecks"] = trainjobs.PickItems(status["admissionChecks"], "name", "state")
	kept.Object["status"] = slim
	return kept, nil
}

// awaitsNomination is true for a Workload that may have to be nominated, as far as the Workload itself says.
func (w *workload) awaitsNomination() bool {
	return w.Status.ClusterName == "" && w.is(conditionQuotaReserved) && !w.is(conditionEvicted)
}

func conditionsOf(status map[string]any) []any {
	return trainjobs.PickItems(status["conditions"], "type", "status", "reason")
}

// stripPodSets keeps what places pods: counts, requests and constraints.
func stripPodSets(list any) []any {
	podSets, _ := list.([]any)
	var kept []any
	for _, item := range podSets {
		podSet, _ := item.(map[string]any)
		pod, _, _ := unstructured.NestedMap(podSet, "template", "spec")
		slim := trainjobs.PickFields(pod, "nodeSelector", "tolerations", "overhead", "terminationGracePeriodSeconds", "resources")
		for _, containers := range []string{"containers", "initContainers"} {
			if pod[containers] != nil {
				slim[containers] = trainjobs.PickItems(pod[containers], "name", "resources", "restartPolicy")
			}
		}
		if affinity, _, _ := unstructured.NestedMap(pod, "affinity", "nodeAffinity"); affinity != nil {
			slim["affinity"] = map[string]any{"nodeAffinity": affinity}
		}
		one := maps.Clone(trainjobs.PickFields(podSet, "name", "count"))
		one["template"] = map[string]any{"spec": slim}
		kept = append(kept, one)
	}
	return kept
}
