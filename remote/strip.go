// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// stripMetadata is for what is cached as metadata only.
func stripMetadata(in any) (any, error) {
	object, err := meta.Accessor(in)
	if err != nil {
		return in, nil //nolint:nilerr // Tombstones pass through here as well.
	}
	trainjobs.StripMetadata(object)
	return in, nil
}

// stripJobSet keeps what is shown of a TrainJob's JobSet: whether it is suspended and since when it is not, and its restarts. Of a
// JobSet without a TrainJob it keeps the name.
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

func isSuspension(condition map[string]any) bool { return condition["type"] == "Suspended" }

// pickItems picks fields of those items of a list that are wanted; wanted nil means all.
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
