// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// APIVersion is the API version of Kueue's objects.
const APIVersion = "kueue.x-k8s.io/v1beta2"

// LabelQueue on a job names its LocalQueue.
const LabelQueue = "kueue.x-k8s.io/queue-name"

// Object returns an object of Kueue without a spec.
func Object(kind, namespace, name string) *unstructured.Unstructured {
	o := &unstructured.Unstructured{}
	o.SetAPIVersion(APIVersion)
	o.SetKind(kind)
	o.SetNamespace(namespace)
	o.SetName(name)
	return o
}

// IsTrue says whether a condition of an object is True.
func IsTrue(object *unstructured.Unstructured, condition string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if fields, ok := c.(map[string]any); ok && fields["type"] == condition {
			return fields["status"] == "True"
		}
	}
	return false
}
