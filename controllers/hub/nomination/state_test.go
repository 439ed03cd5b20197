// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

var now = time.Unix(100_000, 0)

// testWorkload has quota, and waits for the check "mk" only.
func testWorkload(changes ...func(*workload)) *workload {
	w := &workload{Workload: &kueues.Workload{}}
	w.Namespace, w.Name, w.UID = "team", "job-llm", "uid"
	set(kueues.QuotaReserved)(w)
	w.Status.AdmissionChecks = []kueues.CheckState{{Name: "mk", State: kueues.CheckPending}}
	for _, change := range changes {
		change(w)
	}
	return w
}

func set(condition string) func(*workload) {
	return func(w *workload) {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{Type: condition, Status: metav1.ConditionTrue})
	}
}

func hasCheck(name, state string) func(*workload) {
	return func(w *workload) {
		for i := range w.Status.AdmissionChecks {
			if w.Status.AdmissionChecks[i].Name == name {
				w.Status.AdmissionChecks[i].State = state
				return
			}
		}
		w.Status.AdmissionChecks = append(w.Status.AdmissionChecks, kueues.CheckState{Name: name, State: state})
	}
}

func nominated(names ...v1alpha1.ClusterName) func(*workload) {
	return func(w *workload) { w.Status.NominatedClusterNames = names }
}

func given(name string) func(*workload) {
	return func(w *workload) { w.Status.ClusterName = name }
}

func TestDecide(t *testing.T) {
	mk := targets{check: "mk", config: "all", clusters: []v1alpha1.ClusterName{"east", "west"}}
	of := func(changes ...func(*workload)) observation {
		return observation{workload: testWorkload(changes...), targets: mk}
	}
	// seen has clones in these states, and at those of a Workload that was nominated to a worker, and got its clone on
	// east, at these times.
	seen := func(o observation, east, west cloneState) observation {
		o.clones = map[v1alpha1.ClusterName]clone{"east": {state: east}, "west": {state: west}}
		return o
	}
	at := func(worker v1alpha1.ClusterName, east cloneState, since, cloned time.Time, changes ...func(*observation)) observation {
		o := seen(of(nominated(worker)), east, missing)
		o.nominated, o.cloned = since, cloned
		for _, change := range changes {
			change(&o)
		}
		return o
	}
	timeout := func(timeout time.Duration) func(*observation) { return func(o *observation) { o.timeout = timeout } }
	preempts := func(since time.Time) func(*observation) { return func(o *observation) { o.preempting = since } }
	long, short, none := now.Add(-time.Hour), now.Add(-time.Second), time.Time{}
	for name, test := range map[string]struct {
		reason string
		observation
		want state
	}{
		"Gone":            {"it was deleted", observation{}, ended},
		"NoCheck":         {"it is not MultiKueue's", observation{workload: testWorkload()}, ended},
		"Finished":        {"its end is final", of(given("east"), set(kueues.Finished)), ended},
		"BeingDeleted":    {"it will not run", of(func(w *workload) { w.DeletionTimestamp = &metav1.Time{Time: now} }), ended},
		"NoQuota":         {"it waits in the hub's queue", of(func(w *workload) { w.Status.Conditions = nil }), unready},
		"OtherCheck":      {"it may take long until the other check is Ready", of(hasCheck("provisioning", kueues.CheckPending)), unready},
		"OtherCheckReady": {"Kueue acts on nominations now", of(hasCheck("provisioning", kueues.CheckReady)), unplaced},
		"Evicted":         {"Kueue takes everything back", of(set(kueues.Evicted), nominated("east")), unready},
		"Retry":           {"Kueue is about to evict it", of(hasCheck("mk", "Retry")), unready},
		"NoConfig": {
			"an admin has to act",
			observation{workload: testWorkload(), targets: targets{check: "mk", fault: "there is no MultiKueueConfig"}}, misconfigured,
		},
		"Unplaced":          {"it needs a worker", of(), unplaced},
		"Foreign":           {"all at once is not ours to change", seen(of(nominated("east", "west")), admitted, pending), foreign},
		"Settled":           {"MultiKueue has given it away", of(given("east"), hasCheck("mk", kueues.CheckReady)), settled},
		"Following":         {"the worker has just got the clone", at("east", pending, long, short), following},
		"Overdue":           {"the worker had its time", at("east", pending, long, long), refused},
		"TimeOfPolicy":      {"the policy gives it more time", at("east", pending, long, long, timeout(2*time.Hour)), following},
		"Preempting":        {"the next worker would stop Workloads too", at("east", preempting, long, long, preempts(now)), following},
		"PreemptingTooLong": {"the policy says how long", at("east", preempting, long, long, preempts(now), timeout(time.Minute)), refused},
		"VictimsEnd": {
			"Kueue says that it waits for quota while the victims' pods end",
			at("east", pending, long, long, preempts(now.Add(-time.Minute))), following,
		},
		"Overtaken":     {"another job has got the quota of the victims", at("east", pending, long, long, preempts(long)), refused},
		"NotCreatedYet": {"a burst takes MultiKueue minutes", at("east", missing, now.Add(-time.Minute), none), following},
		"NeverCreated":  {"MultiKueue cannot reach the worker", at("east", missing, long, none), refused},
		"Reserved":      {"the worker's checks may take as long as it takes to get nodes", at("east", reserved, long, long), following},
		"Inadmissible":  {"no time helps", at("east", inadmissible, short, short), refused},
		"Granted":       {"an admitted job is never withdrawn, however late", at("east", admitted, long, long), granted},
		"Crossed": {
			"MultiKueue takes the worker that has admitted it, and its webhook wants that worker nominated",
			seen(at("west", admitted, none, long), admitted, pending), crossed,
		},
		"Withdrawn":    {"the same without a nomination", seen(of(), missing, admitted), crossed},
		"BothAdmitted": {"MultiKueue deletes one of them; the nominated one is no worse", seen(of(nominated("west")), admitted, admitted), granted},
		"Away":         {"the worker may have admitted it", at("east", unknown, long, long), away},
		"NotInConfig":  {"MultiKueue does not look there any more", at("north", missing, short, none), refused},
	} {
		t.Run(name, func(t *testing.T) {
			if got := decide(&test.observation, now); got != test.want {
				t.Errorf("decide() = %s, want %s: %s", got, test.want, test.reason)
			}
		})
	}
}

// A worker that does not admit a job is asked again after longer and longer times.
func TestRefusals(t *testing.T) {
	m := &progress{}
	at := now
	for i, want := range []time.Duration{1, 2, 4, 8, 16, 30, 30} {
		m.refuse("east", v1alpha1.ReasonRejected, "no queue", at)
		if got := m.next(at).Sub(at); got != want*time.Minute {
			t.Errorf("refusal %d lasts %s, want %s", i+1, got, want*time.Minute)
		}
		m.refuse("east", v1alpha1.ReasonRejected, "still no queue", at.Add(time.Second))
		if got := m.next(at).Sub(at); got != want*time.Minute || m.refusals["east"].message != "still no queue" {
			t.Errorf("refusal %d that is seen again lasts %s: %+v", i+1, got, m.refusals["east"])
		}
		at = m.next(at)
	}
	if next := m.next(at); !next.IsZero() {
		t.Errorf("after its end a refusal lasts until %s", next)
	}
}

// The time of a nomination begins when it is first seen, the time of its clone with the clone.
func TestLook(t *testing.T) {
	m := &progress{}
	m.look("east", missing, now)
	m.look("east", pending, now.Add(time.Second))
	m.look("east", unknown, now.Add(2*time.Second))
	m.look("east", pending, now.Add(3*time.Second))
	if !m.nominated.Equal(now) || !m.cloned.Equal(now.Add(time.Second)) {
		t.Errorf("nominated %s, cloned %s", m.nominated, m.cloned)
	}
	m.look("east", missing, now.Add(4*time.Second))
	if !m.cloned.IsZero() {
		t.Error("the clone is gone")
	}
	m.look("west", missing, now.Add(5*time.Second))
	if !m.nominated.Equal(now.Add(5 * time.Second)) {
		t.Error("another nomination has its own time")
	}
}

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
			object := kueues.KindWorkload.New()
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
