// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueues

import (
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// Strip is the transform of caches of objects whose quota is counted. It drops what can be large, such as the templates
// and topologies of a Workload. Of a finished Workload it keeps the identity and the conditions.
func Strip(in any) (any, error) {
	object, ok := in.(*unstructured.Unstructured)
	if !ok {
		return in, nil
	}
	spec, status := Fields(object, "spec"), Fields(object, "status")
	switch {
	case object.GetKind() != string(KindWorkload):
		return Slim(object, spec, trainjobs.PickFields(status, "conditions", "effectiveQuotas")), nil
	case trainjobs.HasCondition(object, Finished):
		return Slim(object, nil, trainjobs.PickFields(status, "conditions"), "labels", "ownerReferences"), nil
	}
	kept := trainjobs.PickFields(status, "conditions", "reclaimablePods", "admissionChecks", "resourceRequests")
	if admission := Fields(object, "status", "admission"); admission != nil {
		kept["admission"] = map[string]any{
			"clusterQueue":      admission["clusterQueue"],
			"podSetAssignments": trainjobs.PickItems(admission["podSetAssignments"], "name", "flavors", "resourceUsage", "count"),
		}
	}
	needs := trainjobs.PickFields(spec, "queueName")
	needs["podSets"] = trainjobs.PickItems(spec["podSets"], "name", "count")
	return Slim(object, needs, kept, "labels", "ownerReferences"), nil
}

// Slim returns an object with the identity of another object, these fields of its metadata, and this spec and status.
func Slim(object *unstructured.Unstructured, spec, status map[string]any, metadata ...string) *unstructured.Unstructured {
	metadata = append(metadata, "namespace", "name", "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp")
	slim := trainjobs.PickFields(object.Object, "apiVersion", "kind")
	slim["metadata"] = trainjobs.PickFields(Fields(object, "metadata"), metadata...)
	slim["status"] = status
	if spec != nil {
		slim["spec"] = spec
	}
	return &unstructured.Unstructured{Object: slim}
}

// Fields returns an object in an object without a copy, nil if there is none.
func Fields(object *unstructured.Unstructured, path ...string) map[string]any {
	value, _, _ := unstructured.NestedFieldNoCopy(object.Object, path...)
	fields, _ := value.(map[string]any)
	return fields
}
