// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"slices"

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

// stripJobSet keeps the fields of a TrainJob's JobSet that are shown: its suspension and the time of that, its
// restarts and its TTL. For a JobSet without a TrainJob it keeps name, UID and age.
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
	stripped.SetCreationTimestamp(jobSet.GetCreationTimestamp())
	owner := metav1.GetControllerOfNoCopy(jobSet)
	if owner == nil || owner.Kind != trainjobs.GroupVersionKind.Kind {
		return stripped, nil
	}
	stripped.SetOwnerReferences([]metav1.OwnerReference{*owner})
	spec, _ := jobSet.Object["spec"].(map[string]any)
	status, _ := jobSet.Object["status"].(map[string]any)
	stripped.Object["spec"] = trainjobs.PickFields(spec, "suspend", "ttlSecondsAfterFinished")
	kept := trainjobs.PickFields(status, "restarts")
	kept["replicatedJobsStatus"] = trainjobs.PickItems(status["replicatedJobsStatus"], "name", "jobRestarts")
	kept["conditions"] = trainjobs.PickItems(suspensions(status["conditions"]), "type", "status", "lastTransitionTime")
	stripped.Object["status"] = kept
	return stripped, nil
}

// suspensions are the conditions of a JobSet that say whether it is suspended.
func suspensions(conditions any) []any {
	items, _ := conditions.([]any)
	return slices.DeleteFunc(slices.Clone(items), func(item any) bool {
		condition, _ := item.(map[string]any)
		return condition["type"] != "Suspended"
	})
}
