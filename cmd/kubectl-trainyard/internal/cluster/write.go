// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Result says what was done with an object, or would be done.
type Result string

// The results are kubectl's words.
const (
	Created    Result = "created"
	Configured Result = "configured"
	Unchanged  Result = "unchanged"
	Deleted    Result = "deleted"
)

// Apply makes a cluster have the fields of an object. It sets the object to what the cluster has then. live is what the
// cluster had, or nil.
func Apply(
	ctx context.Context, c client.Writer, object, live *unstructured.Unstructured, options ...client.ApplyOption,
) (Result, error) {
	if err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...); err != nil {
		return "", err
	}
	return resultOf(live, object), nil
}

// Merge merges the fields of an object into live, which the cluster has. It sets the object to what the cluster has
// then.
func Merge(ctx context.Context, c client.Writer, object, live *unstructured.Unstructured) (Result, error) {
	if err := c.Patch(ctx, object, client.Merge); err != nil {
		return "", err
	}
	return resultOf(live, object), nil
}

// resultOf compares what an object was with what it is. A dry run keeps the version, so the content counts.
func resultOf(before, after *unstructured.Unstructured) Result {
	without := func(object *unstructured.Unstructured) map[string]any {
		object = object.DeepCopy()
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
		object.SetGeneration(0)
		delete(object.Object, "status") // The manager's.
		return object.Object
	}
	switch {
	case before == nil:
		return Created
	case equality.Semantic.DeepEqual(without(before), without(after)):
		return Unchanged
	}
	return Configured
}
