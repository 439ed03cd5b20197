// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package beside

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
)

// managerOfKueue is the field manager that may own a nomination.
const managerOfKueue = "kueue-admission"

// owners notes what is wrong with the ownership of any version of any Workload of the hub.
type owners struct {
	mu     sync.Mutex
	faults []string // Under mu.
	// versions and nominations are how many were looked at, and how many of them had a nomination. Under mu.
	versions, nominations int
}

// watchOwners looks at every version of every Workload: only Kueue's manager may own the nomination, by an apply. A
// Workload that Kueue has given quota to keeps all that Kueue has applied.
func watchOwners(t *testing.T, c client.WithWatch) *owners {
	t.Helper()
	o := &owners{}
	lost := map[string][]string{}
	see := func(w *unstructured.Unstructured) {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.versions++
		names, nominated, _ := unstructured.NestedStringSlice(w.Object, "status", "nominatedClusterNames")
		var managers []string
		var applied map[string]any
		for _, entry := range w.GetManagedFields() {
			fields := map[string]any{}
			if entry.FieldsV1 == nil || json.Unmarshal(entry.FieldsV1.GetRawBytes(), &fields) != nil {
				continue
			}
			status, _ := fields["f:status"].(map[string]any)
			if _, owns := status["f:nominatedClusterNames"]; owns {
				managers = append(managers, fmt.Sprintf("%s/%s/%s", entry.Manager, entry.Operation, entry.Subresource))
			}
			if entry.Manager == managerOfKueue && entry.Operation == metav1.ManagedFieldsOperationApply {
				applied = status
			}
		}
		var want []string
		if nominated {
			o.nominations++
			want = []string{managerOfKueue + "/Apply/status"}
		}
		if !slices.Equal(managers, want) {
			o.faults = append(o.faults, fmt.Sprintf("%s: the nomination %v is owned by %v", w.GetName(), names, managers))
		}
		// A write of ours changes only the nomination: it must not drop what Kueue owned in the version before.
		now := slices.Sorted(maps.Keys(applied))
		now = slices.DeleteFunc(now, func(field string) bool { return field == "f:nominatedClusterNames" })
		if nominated {
			for _, field := range lost[w.GetName()] {
				if !slices.Contains(now, field) {
					o.faults = append(o.faults, fmt.Sprintf("%s: with nomination %v, %s does not own %s any more", w.GetName(), names, managerOfKueue, field))
				}
			}
		}
		lost[w.GetName()] = now
	}
	events, err := c.Watch(t.Context(), workloadList())
	check.Must(t, err)
	t.Cleanup(events.Stop)
	go func() {
		for event := range events.ResultChan() {
			if w, ok := event.Object.(*unstructured.Unstructured); ok && event.Type != watch.Deleted {
				see(w)
			}
		}
	}()
	return o
}

// right expects that the ownership has been right so far, after a step.
func (o *owners) right(t *testing.T) {
	t.Helper()
	o.mu.Lock()
	defer o.mu.Unlock()
	if len(o.faults) > 0 {
		t.Errorf("ownership: %v", o.faults)
	}
	if o.versions == 0 || o.nominations == 0 {
		t.Errorf("of %d versions %d had a nomination", o.versions, o.nominations)
	}
}
