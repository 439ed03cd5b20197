// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// managerOfKueue is the field manager with which Kueue applies what it decides about a Workload. Kueue must be able to
// take the nomination off again: only the manager that applied a field can. So nominations are applied in its name.
const managerOfKueue = "kueue-admission"

// entriesOfKueue returns the entry of what Kueue has applied to the status, if there is one.
func entriesOfKueue(entries []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	return slices.DeleteFunc(slices.Clone(entries), func(e metav1.ManagedFieldsEntry) bool {
		return e.Manager != managerOfKueue || e.Operation != metav1.ManagedFieldsOperationApply || e.Subresource != "status"
	})
}

// nominating returns what nominates one worker when it is applied to the status in Kueue's name. An apply deletes what
// its manager owned and does not repeat. So it has everything that Kueue owns of the status, as the object has it, and
// it fails with a conflict if the Workload has changed since.
func nominating(w *unstructured.Unstructured, worker v1alpha1.ClusterName) (*unstructured.Unstructured, error) {
	status := map[string]any{}
	for _, entry := range entriesOfKueue(w.GetManagedFields()) {
		if entry.FieldsV1 == nil {
			continue
		}
		fields := map[string]any{}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields); err != nil {
			return nil, fmt.Errorf("read what %s owns of the Workload: %w", managerOfKueue, err)
		}
		owned, _ := fields["f:status"].(map[string]any)
		live, _ := w.Object["status"].(map[string]any)
		if len(owned) > 0 {
			status, _ = ownedOf(live, owned).(map[string]any)
		}
	}
	status["nominatedClusterNames"] = []any{string(worker)}
	patch := &unstructured.Unstructured{Object: map[string]any{"status": status}}
	patch.SetGroupVersionKind(w.GroupVersionKind())
	patch.SetNamespace(w.GetNamespace())
	patch.SetName(w.GetName())
	patch.SetUID(w.GetUID())
	patch.SetResourceVersion(w.GetResourceVersion())
	return patch, nil
}

// ownedOf returns the part of a value that a set of fields in the form of FieldsV1 names. A value of which no parts are
// named is owned as a whole.
func ownedOf(value any, fields map[string]any) any {
	if len(fields) == 0 {
		return value
	}
	switch live := value.(type) {
	case map[string]any:
		return ownedFields(live, fields)
	case []any:
		return ownedItems(live, fields)
	}
	return value
}

func ownedFields(live, fields map[string]any) map[string]any {
	owned := map[string]any{}
	for key, below := range fields {
		name, isField := strings.CutPrefix(key, "f:")
		value, there := live[name]
		if parts, ok := below.(map[string]any); ok && isField && there {
			owned[name] = ownedOf(value, parts)
		}
	}
	return owned
}

// ownedItems returns the items of a list that are named by their keys (k:) or by their value (v:), in the list's order.
func ownedItems(live []any, fields map[string]any) []any {
	var owned []any
	for _, item := range live {
		for key, below := range fields {
			parts, _ := below.(map[string]any)
			if kept, is := ownedItem(item, key, parts); is {
				owned = append(owned, kept)
			}
		}
	}
	return owned
}

// ownedItem returns what a field set has of an item of a list. is: the key names this item.
func ownedItem(item any, key string, parts map[string]any) (owned any, is bool) {
	kind, text, _ := strings.Cut(key, ":")
	var named any
	if json.Unmarshal([]byte(text), &named) != nil {
		return nil, false
	}
	switch kind {
	case "v":
		return item, fmt.Sprint(named) == fmt.Sprint(item)
	case "k":
		keys, _ := named.(map[string]any)
		live, ok := item.(map[string]any)
		if !ok || len(keys) == 0 {
			return nil, false
		}
		for name, value := range keys {
			if fmt.Sprint(live[name]) != fmt.Sprint(value) {
				return nil, false
			}
		}
		kept := ownedFields(live, parts)
		for name := range keys {
			kept[name] = live[name]
		}
		return kept, true
	}
	return nil, false
}
