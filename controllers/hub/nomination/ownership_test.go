// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"encoding/json"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/test/check"
)

// liveWorkload has fields of Kueue's scheduler, of MultiKueue and of a controller that a newer Kueue may have.
const liveWorkload = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata:
  namespace: team
  name: job-llm
  uid: u
  resourceVersion: "7"
  labels: {team: research}
  managedFields:
  - manager: kueue-admission
    operation: Apply
    subresource: status
    apiVersion: kueue.x-k8s.io/v1beta2
    fieldsType: FieldsV1
    fieldsV1:
      f:status:
        f:admission:
          f:clusterQueue: {}
          f:podSetAssignments:
            k:{"name":"main"}:
              .: {}
              f:count: {}
              f:flavors: {f:cpu: {}}
              f:name: {}
        f:conditions:
          k:{"type":"QuotaReserved"}: {.: {}, f:message: {}, f:status: {}, f:type: {}}
        f:newList:
          v:"a": {}
        f:newScalar: {}
        f:newAtomic: {}
        f:gone: {}
  - manager: kueue.x-k8s.io/multikueue
    operation: Apply
    subresource: status
    apiVersion: kueue.x-k8s.io/v1beta2
    fieldsType: FieldsV1
    fieldsV1: {f:status: {f:admissionChecks: {'k:{"name":"mk"}': {.: {}, f:name: {}, f:state: {}}}}}
  - manager: kueue-admission
    operation: Update
    apiVersion: kueue.x-k8s.io/v1beta2
    fieldsType: FieldsV1
    fieldsV1: {f:metadata: {f:labels: {}}}
spec:
  priority: 5
  podSets:
  - name: main
    count: 2
    topologyRequest: {required: rack}
    template:
      metadata: {labels: {a: b}}
      spec:
        priorityClassName: high
        nodeSelector: {zone: a}
        affinity: {podAffinity: {}, nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}]}}}
        containers: [{name: c, image: i, env: [{name: A, value: b}], resources: {requests: {cpu: "1"}}}]
        initContainers: [{name: s, image: i, restartPolicy: Always, resources: {requests: {cpu: "1"}}}]
status:
  admission:
    clusterQueue: gpus
    podSetAssignments:
    - {name: main, count: 2, flavors: {cpu: default, others: theirs}}
    - {name: others, count: 1}
  conditions:
  - {type: QuotaReserved, status: "True", message: m, lastTransitionTime: "2026-01-01T00:00:00Z"}
  - {type: Theirs, status: "True"}
  admissionChecks:
  - {name: mk, state: Pending, message: wait}
  newList: [a, b]
  newScalar: 3
  newAtomic: {x: {z: 1}}
`

func liveObject(t *testing.T) *unstructured.Unstructured {
	t.Helper()
	object := &unstructured.Unstructured{}
	encoded, err := yaml.YAMLToJSON([]byte(liveWorkload))
	check.Must(t, err)
	check.Must(t, object.UnmarshalJSON(encoded))
	return object
}

// An apply deletes what its manager owned and does not repeat. So the patch has all that Kueue owns, also fields that
// this version of Trainyard does not know, and nothing of others.
func TestNominating(t *testing.T) {
	cached, err := Strip(liveObject(t))
	check.Must(t, err)
	for name, object := range map[string]*unstructured.Unstructured{"Live": liveObject(t), "Cached": cached.(*unstructured.Unstructured)} {
		t.Run(name, func(t *testing.T) {
			patch, err := nominating(object, "east")
			check.Must(t, err)
			want := map[string]any{
				"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
				"metadata": map[string]any{"namespace": "team", "name": "job-llm", "uid": "u", "resourceVersion": "7"},
				"status": map[string]any{
					"admission": map[string]any{
						"clusterQueue": "gpus",
						"podSetAssignments": []any{
							map[string]any{"name": "main", "count": int64(2), "flavors": map[string]any{"cpu": "default"}},
						},
					},
					"conditions":            []any{map[string]any{"type": "QuotaReserved", "status": "True", "message": "m"}},
					"newList":               []any{"a"},
					"newScalar":             int64(3),
					"newAtomic":             map[string]any{"x": map[string]any{"z": int64(1)}},
					"nominatedClusterNames": []any{"east"},
				},
			}
			check.Diff(t, want, patch.Object, "nominating()")
		})
	}
}

// A Kueue that does not apply owns nothing. Then the nomination is all there is.
func TestNominatingWithoutOwner(t *testing.T) {
	object := liveObject(t)
	object.SetManagedFields(nil)
	patch, err := nominating(object, "east")
	check.Must(t, err)
	check.Diff(t, map[string]any{"nominatedClusterNames": []any{"east"}}, patch.Object["status"], "nominating()")
}

// The cache keeps what each state of a Workload needs, and little more.
func TestStrip(t *testing.T) {
	kept := func(change func(status map[string]any)) string {
		object := liveObject(t)
		change(object.Object["status"].(map[string]any))
		stripped, err := Strip(object)
		check.Must(t, err)
		encoded, err := json.Marshal(stripped)
		check.Must(t, err)
		return string(encoded)
	}
	for name, test := range map[string]struct {
		change     func(status map[string]any)
		has, lacks []string
	}{
		"Waits": {
			change: func(map[string]any) {},
			has:    []string{`"kueue-admission"`, `"newAtomic"`, `"zone":"a"`, `"nodeAffinity"`, `"restartPolicy":"Always"`, `"count":2`, `"priority":5`},
			lacks:  []string{`"env"`, `"image"`, `"podAffinity"`, `"Update"`, `f:admissionChecks`},
		},
		"OnWorker": {
			change: func(status map[string]any) { status["clusterName"] = "east" },
			has:    []string{`"clusterName":"east"`, `"mk"`, `"cpu":"1"`},
			lacks:  []string{`managedFields`, `newAtomic`, `podSetAssignments`},
		},
		"Finished": {
			change: func(status map[string]any) {
				status["conditions"] = []any{map[string]any{"type": "Finished", "status": "True", "message": "long"}}
			},
			has:   []string{`"Finished"`},
			lacks: []string{`managedFields`, `podSets`, `"long"`, `"mk"`},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := kept(test.change)
			for _, part := range test.has {
				if !strings.Contains(got, part) {
					t.Errorf("%s is gone from %s", part, got)
				}
			}
			for _, part := range test.lacks {
				if strings.Contains(got, part) {
					t.Errorf("%s is in %s", part, got)
				}
			}
		})
	}
}

func TestReadClone(t *testing.T) {
	for name, test := range map[string]struct {
		conditions string
		want       cloneState
	}{
		"New":          {conditions: `[]`, want: pending},
		"Pending":      {conditions: `[{type: QuotaReserved, status: "False", reason: Pending, message: no room}]`, want: pending},
		"Inadmissible": {conditions: `[{type: QuotaReserved, status: "False", reason: Inadmissible, message: no queue}]`, want: inadmissible},
		"Reserved":     {conditions: `[{type: QuotaReserved, status: "True", reason: QuotaReserved}]`, want: reserved},
		"Admitted":     {conditions: `[{type: QuotaReserved, status: "True"}, {type: Admitted, status: "True"}]`, want: admitted},
		"Finished":     {conditions: `[{type: Finished, status: "True"}]`, want: admitted},
	} {
		t.Run(name, func(t *testing.T) {
			object := NewWorkload()
			var conditions []any
			check.Must(t, yaml.Unmarshal([]byte(test.conditions), &conditions))
			object.Object["status"] = map[string]any{"conditions": conditions}
			if got, err := readClone(object); err != nil || got.state != test.want {
				t.Errorf("readClone() = %s, %v, want %s", got.state, err, test.want)
			}
			object.Object["metadata"] = map[string]any{"deletionTimestamp": "2026-01-01T00:00:00Z"}
			if got, _ := readClone(object); got.state != missing {
				t.Errorf("a clone that is being deleted is %s", got.state)
			}
		})
	}
}
