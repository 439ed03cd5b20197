// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// stripMetadata strips objects of which only metadata is cached.
func stripMetadata(in any) (any, error) {
	object, err := meta.Accessor(in)
	if err != nil {
		return in, nil //nolint:nilerr // Tombstones pass through here as well.
	}
	trainjobs.StripMetadata(object)
	return in, nil
}

// stripJobSet keeps the fields of a TrainJob's JobSet that are shown: its suspension and the time of that, and its
// restarts. For a JobSet without a TrainJob it keeps only the name.
func stripJobSet(in any) (any, error) {
	jobSet, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	stripped := &unstructured.Unstructured{Object: map[string]any{}}
	stripped.SetGroupVersionKind(jobSet.GroupVersionKind())
	stripped.SetNamespace(jobSet.GetNamespace())
	stripped.SetName(jobSet.GetName())
	stripped.SetUID(jobSet.GetUID())
	stripped.SetResourceVersion(jobSet.GetResourceVersion())
	owner := metav1.GetControllerOfNoCopy(jobSet)
	if owner == nil || owner.Kind != trainjobs.GroupVersionKind.Kind {
		return stripped, nil
	}
	stripped.SetOwnerReferences([]metav1.OwnerReference{*owner})
	stripped.SetCreationTimestamp(jobSet.GetCreationTimestamp())
	spec, _ := jobSet.Object["spec"].(map[string]any)
	status, _ := jobSet.Object["status"].(map[string]any)
	stripped.Object["spec"] = trainjobs.PickFields(spec, "suspend")
	kept := trainjobs.PickFields(status, "restarts")
	kept["replicatedJobsStatus"] = pickItems(status["replicatedJobsStatus"], nil, "name", "jobRestarts")
	kept["conditions"] = pickItems(status["conditions"], isSuspension, "type", "status", "lastTransitionTime")
	stripped.Object["status"] = kept
	return stripped, nil
}

// stripWorkload keeps the conditions of a Workload.
func stripWorkload(in any) (any, error) {
	workload, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	stripped := &unstructured.Unstructured{Object: map[string]any{}}
	stripped.SetGroupVersionKind(workload.GroupVersionKind())
	stripped.SetNamespace(workload.GetNamespace())
	stripped.SetName(workload.GetName())
	stripped.SetUID(workload.GetUID())
	stripped.SetResourceVersion(workload.GetResourceVersion())
	stripped.SetLabels(workload.GetLabels())
	stripped.SetDeletionTimestamp(workload.GetDeletionTimestamp())
	status, _ := workload.Object["status"].(map[string]any)
	stripped.Object["status"] = map[string]any{
		"conditions": pickItems(status["conditions"], nil, "type", "status", "reason", "message", "lastTransitionTime"),
	}
	return stripped, nil
}

func isSuspension(condition map[string]any) bool { return condition["type"] == "Suspended" }

// pickItems picks fields of the wanted items of a list. If wanted is nil, it picks from all items.
func pickItems(list any, wanted func(map[string]any) bool, keys ...string) []any {
	items, _ := list.([]any)
	picked := []any{}
	for _, item := range items {
		if fields, ok := item.(map[string]any); ok && (wanted == nil || wanted(fields)) {
			picked = append(picked, trainjobs.PickFields(fields, keys...))
		}
	}
	return picked
}
