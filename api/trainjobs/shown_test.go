// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/test/check"
)

// What the hub stores of a worker's words is bounded by bytes. Everything passes that fits.
func TestShownStatus(t *testing.T) {
	condition := func(kind, message string) any {
		return map[string]any{"type": kind, "status": "True", "reason": "Because", "message": message}
	}
	resumed := map[string]any{"type": "Suspended", "status": "False", "reason": "Resumed", "message": "TrainJob is resumed"}
	letters := func(count int) string { return strings.Repeat("w", count) }
	wide := func(count int) string { return strings.Repeat("𝄞", count) } // Four bytes each.
	cutWide := wide(1023) + " ..."
	counters := func(count int, name string) (jobs []any) {
		for i := range count {
			jobs = append(jobs, map[string]any{"name": fmt.Sprint(name, i), "active": int64(1), "ready": int64(1)})
		}
		return jobs
	}
	for name, test := range map[string]struct {
		reason string
		status any
		want   map[string]any
		cut    bool
	}{
		"None": {reason: "a copy that its controller has not seen"},
		"Small": {
			reason: "fields and condition types of a Trainer of tomorrow pass",
			status: map[string]any{
				"conditions": []any{condition("OfTomorrow", "x"), condition("Complete", letters(32768))}, "jobsStatus": counters(2, "node"),
				"ofTomorrow": map[string]any{"deep": []any{"x"}},
			},
			want: map[string]any{
				"conditions": []any{condition("OfTomorrow", "x"), condition("Complete", letters(32768))}, "jobsStatus": counters(2, "node"),
				"ofTomorrow": map[string]any{"deep": []any{"x"}},
			},
		},
		"LongMessages": {
			reason: "the CRD takes 32,768 characters for each of eight conditions, a MiB",
			status: map[string]any{
				"conditions": []any{condition("A", wide(32768)), condition("B", wide(32768)), condition("Complete", wide(32768)), condition("C", "short")},
				"jobsStatus": counters(2, "node"),
			},
			want: map[string]any{
				"conditions": []any{condition("A", cutWide), condition("B", cutWide), condition("Complete", cutWide), condition("C", "short")},
				"jobsStatus": counters(2, "node"),
			},
			cut: true,
		},
		"Resumed": {
			reason: "clients take the last condition for the state",
			status: map[string]any{
				"conditions": []any{condition("OfTomorrow", "x"), resumed}, "jobsStatus": counters(1, "node"),
			},
			want: map[string]any{"conditions": []any{condition("OfTomorrow", "x")}, "jobsStatus": counters(1, "node")},
		},
		"ResumedOnly": {reason: "the CRD accepts no empty status", status: map[string]any{"conditions": []any{resumed}}},
		"Suspended": {
			reason: "the worker's queue holds the copy",
			status: map[string]any{"conditions": []any{condition("Suspended", "x")}},
			want:   map[string]any{"conditions": []any{condition("Suspended", "x")}},
		},
		"LargeField": {
			reason: "a field that the hub does not know takes no room from those that it knows",
			status: map[string]any{
				"aLarge": letters(MaxStatus), "zSmall": "kept", "conditions": []any{condition("Failed", "because"), condition("Other", "too")},
				"jobsStatus": counters(1, "node"),
			},
			want: map[string]any{
				"zSmall": "kept", "conditions": []any{condition("Failed", "because"), condition("Other", "too")}, "jobsStatus": counters(1, "node"),
			},
			cut: true,
		},
		"ManyCounters": {
			reason: "the end of the job is worth more",
			status: map[string]any{
				"conditions": []any{condition("Other", "x"), condition("Failed", "because")},
				"jobsStatus": []any{map[string]any{"name": letters(MaxStatus)}, map[string]any{"name": "node"}},
			},
			want: map[string]any{
				"conditions": []any{condition("Other", "x"), condition("Failed", "because")}, "jobsStatus": []any{map[string]any{"name": "node"}},
			},
			cut: true,
		},
	} {
		t.Run(name, func(t *testing.T) {
			copy := &unstructured.Unstructured{Object: map[string]any{}}
			if test.status != nil {
				copy.Object["status"] = test.status
			}
			before := copy.DeepCopy()
			shown, cut := ShownStatus(copy)
			check.Diff(t, test.want, shown, test.reason)
			check.Equal(t, test.cut, cut, "cut: %s", test.reason)
			encoded, err := json.Marshal(shown)
			if err != nil || len(encoded) > MaxStatus {
				t.Errorf("it has %d bytes (%v), want at most %d", len(encoded), err, MaxStatus)
			}
			check.Diff(t, before, copy, "the copy belongs to a cache, and was changed")
		})
	}
}

// Whatever a worker says, what is shown of it has at most MaxStatus bytes, and is shown as it is from then on.
func FuzzShownStatus(f *testing.F) {
	f.Add(`{"conditions":[{"type":"Complete","message":"x"}],"jobsStatus":[{"name":"node"}],"other":{}}`, 20000)
	f.Add(`{"conditions":[1,null,{}],"jobsStatus":{}}`, 1)
	f.Fuzz(func(t *testing.T, status string, times int) {
		fields := map[string]any{}
		if json.Unmarshal([]byte(status), &fields) != nil {
			t.Skip()
		}
		for field, value := range fields {
			if text, ok := value.(string); ok {
				fields[field] = strings.Repeat(text, min(max(times, 0), MaxStatus))
			}
			if list, ok := value.([]any); ok && len(list) > 0 {
				for range min(max(times, 0), 1000) {
					list = append(list, list[0])
				}
				fields[field] = list
			}
		}
		shown, _ := ShownStatus(&unstructured.Unstructured{Object: map[string]any{"status": fields}})
		if size := sizeOf(shown); size > MaxStatus {
			t.Errorf("it has %d bytes", size)
		}
		again, cut := ShownStatus(&unstructured.Unstructured{Object: map[string]any{"status": shown}})
		if diff := cmp.Diff(shown, again); diff != "" || cut {
			t.Errorf("it is cut again:\n%.2000s", diff)
		}
	})
}
