// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package multikueue

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// fieldOwner is the field manager of the import. The plugin's other commands have another field manager, so that
// cordons and drains stay when the import is repeated.
const fieldOwner = client.FieldOwner("kubectl-trainyard-import")

// DryRun says what is written.
type DryRun string

// DryRun has the values of kubectl.
const (
	// NoDryRun writes.
	NoDryRun DryRun = "none"
	// ClientDryRun sends nothing. Objects are compared here.
	ClientDryRun DryRun = "client"
	// ServerDryRun lets the API server check the writes, and persists nothing.
	ServerDryRun DryRun = "server"
)

// Result says what Apply has done with an object, or would do.
type Result string

// The results are kubectl's words.
const (
	Created    Result = "created"
	Configured Result = "configured"
	Unchanged  Result = "unchanged"
)

// ConflictError says that somebody else has changed what the import would write. Nothing was changed.
type ConflictError struct {
	// Causes are the field managers with their fields.
	Causes []string
}

// Error implements error.
func (e *ConflictError) Error() string {
	return "somebody has changed it since the import: " + strings.Join(e.Causes, "; ")
}

// Apply writes an object of a plan. live is the object on the hub, or nil. Apply sets object to what the hub has then.
func Apply(ctx context.Context, c client.Client, object, live *unstructured.Unstructured, dryRun DryRun) (Result, error) {
	if dryRun == ClientDryRun {
		switch {
		case live == nil:
			return Created, nil
		case contains(live.Object, object.Object):
			live.DeepCopyInto(object)
			return Unchanged, nil
		}
		return Configured, nil
	}
	options := []client.ApplyOption{fieldOwner}
	if dryRun == ServerDryRun {
		options = append(options, client.DryRunAll)
	}
	err := c.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), options...)
	switch {
	case apierrors.IsConflict(err):
		return "", conflict(err)
	case err != nil:
		return "", fmt.Errorf("apply %s %q: %w", object.GetKind(), object.GetName(), err)
	case live == nil:
		return Created, nil
	case equal(live, object):
		return Unchanged, nil
	}
	return Configured, nil
}

// equal compares what an object was with what it is. A dry run keeps the version, so the content counts.
func equal(before, after *unstructured.Unstructured) bool {
	without := func(object *unstructured.Unstructured) map[string]any {
		object = object.DeepCopy()
		object.SetManagedFields(nil)
		object.SetResourceVersion("")
		object.SetGeneration(0)
		delete(object.Object, "status") // The manager's.
		return object.Object
	}
	return equality.Semantic.DeepEqual(without(before), without(after))
}

func conflict(err error) error {
	e := &ConflictError{}
	if status, ok := err.(apierrors.APIStatus); ok && status.Status().Details != nil {
		for _, cause := range status.Status().Details.Causes {
			if cause.Type == metav1.CauseTypeFieldManagerConflict {
				e.Causes = append(e.Causes, fmt.Sprintf("%s: %s", cause.Message, cause.Field))
			}
		}
	}
	if len(e.Causes) == 0 {
		return err
	}
	slices.Sort(e.Causes)
	return e
}

// contains says whether an object has all fields that are to be applied. Items of lists are found by their name.
func contains(live, applied any) bool {
	switch applied := applied.(type) {
	case map[string]any:
		object, ok := live.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range applied {
			if !contains(object[key], value) {
				return false
			}
		}
		return true
	case []any:
		items, ok := live.([]any)
		if !ok || !allNamed(applied) {
			return equality.Semantic.DeepEqual(live, applied)
		}
		for _, item := range applied {
			if !slices.ContainsFunc(items, func(other any) bool { return sameName(other, item) && contains(other, item) }) {
				return false
			}
		}
		return true
	}
	return equality.Semantic.DeepEqual(live, applied)
}

func allNamed(items []any) bool {
	return !slices.ContainsFunc(items, func(item any) bool { return nameOf(item) == "" })
}

func sameName(a, b any) bool { return nameOf(a) == nameOf(b) }

func nameOf(item any) string {
	object, _ := item.(map[string]any)
	name, _ := object["name"].(string)
	return name
}
