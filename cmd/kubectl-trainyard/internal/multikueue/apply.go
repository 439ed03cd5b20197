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

	"github.com/trainyard/trainyard/internal/cluster"
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
func Apply(
	ctx context.Context, c client.Client, object, live *unstructured.Unstructured, dryRun DryRun,
) (cluster.Result, error) {
	if dryRun == ClientDryRun {
		switch {
		case live == nil:
			return cluster.Created, nil
		case contains(live.Object, object.Object):
			live.DeepCopyInto(object)
			return cluster.Unchanged, nil
		}
		return cluster.Configured, nil
	}
	if dryRun == ServerDryRun {
		c = client.NewDryRunClient(c)
	}
	result, err := cluster.Apply(ctx, c, object, live, fieldOwner)
	switch {
	case apierrors.IsConflict(err):
		return "", conflict(err)
	case err != nil:
		return "", fmt.Errorf("apply %s %q: %w", object.GetKind(), object.GetName(), err)
	}
	return result, nil
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
