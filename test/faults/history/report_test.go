// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

func started(object map[string]any) { object["status"] = map[string]any{"jobsStatus": []any{}} }

func TestStatusDiffers(t *testing.T) {
	cases := map[string]struct {
		reason string
		last   func(map[string]any)
		gap    bool
		want   bool
	}{
		"the copy said the end":   {reason: "The hub says what the copy said last.", last: complete},
		"the copy did not say it": {reason: "The hub says what no copy has said.", last: started, want: true},
		"the copy was suspended before": {
			reason: "Clients take the condition Suspended for a state, so the hub leaves it out.", last: func(copied map[string]any) {
				complete(copied)
				status := copied["status"].(map[string]any)
				resumed := map[string]any{"type": "Suspended", "status": "False"}
				status["conditions"] = append([]any{resumed}, status["conditions"].([]any)...)
			},
		},
		"the copy went in a gap":             {reason: "The copy may have said the end in the gap.", last: started, gap: true},
		"the copy ended and went in the gap": {reason: "The recorder knows the end.", last: complete, gap: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Recorder{ledger: newLedger(nil), hub: newHub(func(_, _ *v1alpha1.Dispatch) error { return nil })}
			when := moment{earliest: dawn, latest: dawn}
			d := &v1alpha1.Dispatch{}
			d.UID, d.Spec.TrainJob.UID, d.Spec.Cluster, d.Spec.Attempt = "dispatch", "origin", "west", 1
			r.hub.dispatch(d, false, when)
			r.hub.trainJob(&unstructured.Unstructured{Object: ended("origin")}, false, when)
			job := copied("west", "1", 0, tc.last)
			r.ledger.trainJob("west", job, false, when)
			when.gap = tc.gap
			r.ledger.trainJob("west", job, true, when)
			if diff := r.StatusDiffers("origin"); (diff != "") != tc.want {
				t.Errorf("%s\nthe status differs: %q, want a difference: %v", tc.reason, diff, tc.want)
			}
		})
	}
}

// ended is a hub TrainJob that has ended.
func ended(uid string) map[string]any {
	job := trainjobs.New()
	job.Object["metadata"] = map[string]any{"uid": uid, "name": "job"}
	complete(job.Object)
	return job.Object
}
