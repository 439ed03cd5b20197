// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"encoding/json"
	"fmt"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/test/check"
)

// withPatches returns a TrainJob as clients send it: with unknown fields, and numbers that our types write differently.
func withPatches(patches string) []byte {
	return []byte(`{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"namespace":"default","name":"j"},` +
		`"spec":{"fromTheFuture":{"a":1},"trainer":{"resourcesPerNode":{"limits":{"cpu":500,"memory":"1024Mi"}}},"runtimeRef":{"name":"torch"},"runtimePatches":` + patches + `}}`)
}

func TestDefaulter(t *testing.T) {
	const (
		now    = "2026-05-04T10:30:00Z"
		before = "2026-05-04T10:00:00Z"
		labels = `"trainingRuntimeSpec":{"template":{"metadata":{"labels":{"a":"1"}}}}`
		others = `"trainingRuntimeSpec":{"template":{"metadata":{"labels":{"a":"2"}}}}`
	)
	stamp := func(operation, path, value string) string {
		return fmt.Sprintf(`[{"op":%q,"path":%q,"value":%q}]`, operation, path, value)
	}
	cases := map[string]struct {
		reason string
		old    string
		new    string
		// want is the JSON patch. null: none.
		want string
	}{
		"New": {
			reason: "A patch without a time gets that of now, and nothing else is touched, not even what we do not know.",
			new:    `[{"manager":"a.io/x",` + labels + `}]`,
			want:   stamp("add", "/spec/runtimePatches/0/time", now),
		},
		"NewWithTime": {
			reason: "A new patch may bring its time, as a copy of a TrainJob does.",
			new:    `[{"manager":"a.io/x","time":"` + before + `",` + labels + `}]`,
		},
		"Same": {
			reason: "To send all that there was changes nothing.",
			old:    `[{"manager":"a.io/x","time":"` + before + `",` + labels + `}]`,
			new:    `[{"manager":"a.io/x","time":"` + before + `",` + labels + `}]`,
		},
		"SameWithoutTime": {
			reason: "To apply a manifest again changes nothing.",
			old:    `[{"manager":"a.io/x","time":"` + before + `",` + labels + `}]`,
			new:    `[{"manager":"a.io/x",` + labels + `}]`,
			want:   stamp("add", "/spec/runtimePatches/0/time", before),
		},
		"SameWithAnotherTime": {
			reason: "The time of what has not changed does not change.",
			old:    `[{"manager":"a.io/x","time":"` + before + `",` + labels + `}]`,
			new:    `[{"manager":"a.io/x","time":"2020-01-01T00:00:00Z",` + labels + `}]`,
			want:   stamp("replace", "/spec/runtimePatches/0/time", before),
		},
		"Changed": {
			reason: "A changed patch gets the time of now, also if the client sends the old one back.",
			old:    `[{"manager":"a.io/x","time":"` + before + `",` + labels + `}]`,
			new:    `[{"manager":"a.io/x","time":"` + before + `",` + others + `}]`,
			want:   stamp("replace", "/spec/runtimePatches/0/time", now),
		},
		"AddedInFront": {
			reason: "Patches are told apart by manager, not by place.",
			old:    `[{"manager":"a.io/x","time":"` + before + `",` + labels + `}]`,
			new:    `[{"manager":"b.io/x",` + labels + `},{"manager":"a.io/x","time":"` + before + `",` + labels + `}]`,
			want:   stamp("add", "/spec/runtimePatches/0/time", now),
		},
		"SameThatNeverHadATime": {
			reason: "It was made before there was a webhook; its time is not known, and stays so.",
			old:    `[{"manager":"a.io/x",` + labels + `}]`,
			new:    `[{"manager":"a.io/x","time":"` + before + `",` + labels + `}]`,
			want:   `[{"op":"remove","path":"/spec/runtimePatches/0/time"}]`,
		},
	}
	clock := clocktesting.NewFakePassiveClock(time.Date(2026, time.May, 4, 10, 30, 0, 0, time.UTC))
	handler := &trainJobDefaulter{clock: clock}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			request := admissionv1.AdmissionRequest{Operation: admissionv1.Create, Object: apiruntime.RawExtension{Raw: withPatches(tc.new)}}
			if tc.old != "" {
				request.Operation, request.OldObject.Raw = admissionv1.Update, withPatches(tc.old)
			}
			response := handler.Handle(t.Context(), admission.Request{AdmissionRequest: request})
			if !response.Allowed {
				t.Fatalf("%s\nrefused: %v", tc.reason, response.Result)
			}
			got, err := json.Marshal(response.Patches)
			check.Must(t, err)
			if tc.want == "" {
				tc.want = "null"
			}
			check.Diff(t, tc.want, string(got), fmt.Sprintf("%s\npatch", tc.reason))
		})
	}
}
