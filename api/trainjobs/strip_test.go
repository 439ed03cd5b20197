// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/test/check"
)

const ours = "kueue.x-k8s.io/multikueue"

// sent is a TrainJob as an API server sends it, with these fields in addition.
func sent(spec, status map[string]any) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetName("llm")
	job.SetLabels(map[string]string{"team": "a"})
	job.SetAnnotations(map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}", "note": "kept"})
	job.Object["metadata"].(map[string]any)["managedFields"] = []any{map[string]any{"manager": "kubectl"}}
	job.Object["spec"] = spec
	if status != nil {
		job.Object["status"] = status
	}
	return job
}

func TestStrip(t *testing.T) {
	spec := func(managedBy string) map[string]any {
		spec := map[string]any{"suspend": false, "trainer": map[string]any{"numNodes": int64(2)}}
		if managedBy != "" {
			spec["managedBy"] = managedBy
		}
		return spec
	}
	status := func(condition string) map[string]any {
		return map[string]any{
			"conditions": []any{map[string]any{"type": condition, "status": "True"}},
			"jobsStatus": []any{map[string]any{"name": "node", "ready": int64(2)}},
		}
	}
	cases := map[string]struct {
		reason string
		job    *unstructured.Unstructured
		spec   map[string]any
		status map[string]any
	}{
		"Live": {
			reason: "all of it is copied to a worker, also what no Go type knows",
			job:    sent(spec(ours), status("Suspended")), spec: spec(ours), status: status("Suspended"),
		},
		"New": {reason: "it has no status yet", job: sent(spec(ours), nil), spec: spec(ours)},
		"Complete": {
			reason: "its status is still brought to the hub, and shown on the Dispatch; its spec is asked no more",
			job:    sent(spec(ours), status("Complete")), spec: map[string]any{"managedBy": ours, "suspend": false}, status: status("Complete"),
		},
		"Failed": {
			reason: "as Complete",
			job:    sent(spec(ours), status("Failed")), spec: map[string]any{"managedBy": ours, "suspend": false}, status: status("Failed"),
		},
		"OfAnotherManager": {
			reason: "only that it is another's is asked",
			job:    sent(spec("example.com/other"), status("Suspended")), spec: map[string]any{"managedBy": "example.com/other", "suspend": false},
		},
		"OfTheCluster": {
			reason: "absent means the built-in controller",
			job:    sent(spec(""), status("Suspended")), spec: map[string]any{"suspend": false},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			want := sent(tc.spec, tc.status)
			unstructured.RemoveNestedField(want.Object, "metadata", "managedFields")
			unstructured.RemoveNestedField(want.Object, "metadata", "annotations", "kubectl.kubernetes.io/last-applied-configuration")
			got := any(tc.job)
			for range 2 { // Informers may transform an object twice.
				var err error
				got, err = trainjobs.StripOf(ours)(got)
				check.Must(t, err)
				if diff := cmp.Diff(want, got); diff != "" {
					t.Fatalf("%s (-want +got):\n%s", tc.reason, diff)
				}
			}
		})
	}
}

func TestStripKeepsAll(t *testing.T) {
	job := sent(map[string]any{"suspend": true}, nil)
	got, err := trainjobs.Strip(job)
	if err != nil || !trainjobs.Suspended(got.(*unstructured.Unstructured)) {
		t.Errorf("a worker's cache got %v, %v of a copy that is suspended", got, err)
	}
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "team/llm"}
	if got, err := trainjobs.Strip(tombstone); err != nil || got != any(tombstone) {
		t.Errorf("got %v, %v of a deletion that was missed, want it as it is", got, err)
	}
}
