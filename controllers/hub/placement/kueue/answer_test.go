// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueue

import (
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// testJob is a TrainJob with the UID "origin".
func testJob(marks map[string]string) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace("team")
	job.SetName("llm")
	job.SetUID("origin")
	job.SetLabels(marks)
	return job
}

var queued = map[string]string{v1alpha1.LabelLocalQueue: "research"}

// testWorkload is the Workload of that job, with a status.
func testWorkload(name string, status map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "Workload",
		"metadata": map[string]any{"namespace": "team", "name": name, "ownerReferences": []any{map[string]any{
			"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "name": "llm", "uid": "origin",
			"controller": true,
		}}},
		"spec": map[string]any{"queueName": "research"}, "status": status,
	}}
}

// status makes the status of a Workload with these conditions and checks, such as "room:Pending". They are Ready by
// default.
func status(conditions []string, checks ...string) map[string]any {
	var types, states []any
	for _, condition := range conditions {
		types = append(types, map[string]any{"type": condition, "status": "True"})
	}
	for _, check := range checks {
		name, state, given := strings.Cut(check, ":")
		if !given {
			state = kueues.CheckReady
		}
		states = append(states, map[string]any{"name": name, "state": state})
	}
	return map[string]any{"conditions": types, "admissionChecks": states}
}

// withQuota has the conditions of a Workload that waits for its checks.
var withQuota = []string{"QuotaReserved"}

// running has the conditions of a Workload whose job may run.
var running = []string{"Admitted"}

func with(fields map[string]any, name string, value any) map[string]any {
	fields[name] = value
	return fields
}

type list []*unstructured.Unstructured

func TestJudge(t *testing.T) {
	deleted := testWorkload("w", status(running))
	deleted.Object["metadata"].(map[string]any)["deletionTimestamp"] = "2026-11-23T00:00:00Z"
	others := testWorkload("w", status(running, "mk"))
	others.Object["metadata"].(map[string]any)["ownerReferences"].([]any)[0].(map[string]any)["kind"] = "JobSet"
	unreadable := testWorkload("w", with(status(running), "clusterName", []any{"of another form"}))
	earlier := testWorkload("w", status(running, "mk"))
	earlier.Object["metadata"].(map[string]any)["ownerReferences"].([]any)[0].(map[string]any)["uid"] = "earlier"
	for name, test := range map[string]struct {
		reason    string
		marks     map[string]string
		resumed   bool
		workloads list
		want      Standing
		// message has words that must be in the message.
		message []string
	}{
		"NoKueue": {reason: "it has nothing to do with Kueue", want: Free},
		"Unmade": {
			reason: "its Workload may come with the check", marks: queued, want: Held,
			message: []string{`queue "research"`, "has made no Workload", "take the label off"},
		},
		"Prebuilt": {
			reason: "somebody makes its Workload", marks: map[string]string{kueues.KeyPrebuilt: "w"}, want: Held,
			message: []string{kueues.KeyPrebuilt},
		},
		"NotAdmitted": {
			reason: "its checks may not be there yet", marks: queued, want: Held,
			workloads: list{testWorkload("w", nil)},
			message:   []string{`has not admitted the job's Workload "w"`},
		},
		"Reserved": {
			reason: "quota is not all", marks: queued, want: Held,
			workloads: list{testWorkload("w", status([]string{"QuotaReserved"}))},
			message:   []string{"has not admitted"},
		},
		"Admitted": {
			reason: "Kueue lets it run, and nobody else does", marks: queued, want: Free,
			workloads: list{testWorkload("w", status(running, "provisioning"))},
		},
		"Evicted": {
			reason: "Kueue is about to suspend it", marks: queued, want: Held,
			workloads: list{testWorkload("w", status([]string{"Admitted", "Evicted"}))},
			message:   []string{"has not admitted"},
		},
		"BeingDeleted": {
			reason: "Kueue is about to suspend it", marks: queued, want: Held,
			workloads: list{deleted},
			message:   []string{"has not admitted"},
		},
		"MultiKueue": {
			reason: "MultiKueue makes the copy", marks: queued, want: MultiKueue,
			workloads: list{testWorkload("w", status(running, "mk", "provisioning"))},
			message:   []string{`Workload "w"`, `admission check "mk" of MultiKueue`, `LocalQueue "research"`, "--managed-by"},
		},
		"MultiKueueUnmarked": {
			reason: "the Workload says more than a label", want: MultiKueue,
			workloads: list{testWorkload("w", status(nil, "mk"))}, message: []string{`"mk"`},
		},
		"ClusterQueueIsKnown": {
			reason: "it is named", marks: queued, want: MultiKueue,
			workloads: list{
				testWorkload("w", with(status(nil, "mk"), "admission", map[string]any{"clusterQueue": "gpus"})),
			},
			message: []string{`ClusterQueue "gpus"`},
		},
		"CheckIsGone": {
			reason: "MultiKueue's copy is still where it was", marks: queued, want: MultiKueue,
			workloads: list{testWorkload("w", with(status(running), "clusterName", "far"))},
			message:   []string{`cluster "far"`, "has lost"},
		},
		"UnknownCheck": {
			reason: "it may be MultiKueue's", marks: queued, want: Held,
			workloads: list{testWorkload("w", status(running, "new"))}, message: []string{`"new"`},
		},
		"TwoWorkloads": {
			reason: "while Kueue replaces one by another, either may be acted on", marks: queued, want: MultiKueue,
			workloads: list{testWorkload("a", status(running)), testWorkload("b", status(nil, "mk"))},
			message:   []string{`Workload "b"`},
		},
		"HasQuota": {
			reason: "only our check is left", marks: queued, want: QuotaReserved,
			workloads: list{testWorkload("w", status(withQuota, "room:Pending", "provisioning"))},
		},
		"HasQuotaAndRoom": {
			reason: "Kueue is about to admit it", marks: queued, want: QuotaReserved,
			workloads: list{testWorkload("w", status(withQuota, "room", "provisioning"))},
		},
		"AdmittedNotResumed": {
			reason: "room is held for it until Kueue resumes it", marks: queued, want: QuotaReserved,
			workloads: list{testWorkload("w", status(running, "room", "provisioning"))},
		},
		"AdmittedWithRoom": {
			reason: "it runs", marks: queued, resumed: true, want: Free,
			workloads: list{testWorkload("w", status(running, "room"))},
		},
		"OtherCheckIsPending": {
			reason: "room that is held meanwhile would be lost for others", marks: queued, want: Held,
			workloads: list{testWorkload("w", status(withQuota, "room:Pending", "provisioning:Pending"))},
			message:   []string{"has not admitted"},
		},
		"CheckBeforeQuota": {
			reason: "there is nothing to hold room for", marks: queued, want: Held,
			workloads: list{testWorkload("w", status(nil, "room:Pending"))},
			message:   []string{"has not admitted"},
		},
		"QuotaIsGivenBack": {
			reason: "Kueue has not taken the quota yet", marks: queued, want: Held,
			workloads: list{testWorkload("w", status(withQuota, "room:Retry"))},
			message:   []string{"has not admitted"},
		},
		"EvictedWithQuota": {
			reason: "Kueue takes the quota", marks: queued, want: Held,
			workloads: list{testWorkload("w", status([]string{"QuotaReserved", "Evicted"}, "room:Pending"))},
			message:   []string{"has not admitted"},
		},
		"ResumedByHand": {
			reason: "Kueue suspends it again", marks: queued, resumed: true, want: Held,
			workloads: list{testWorkload("w", status(withQuota, "room:Pending"))},
			message:   []string{"has not admitted"},
		},
		"RoomAndMultiKueue": {
			reason: "MultiKueue makes the copy", marks: queued, want: MultiKueue,
			workloads: list{testWorkload("w", status(withQuota, "room:Pending", "mk:Pending"))}, message: []string{`"mk"`},
		},
		"Unreadable": {
			reason: "a later version may have a field of another form", workloads: list{unreadable}, want: Held,
			message: []string{"has not admitted"},
		},
		"OfAnotherKind": {reason: "a JobSet of the same UID is no TrainJob", workloads: list{others}, want: Free},
		"OfEarlierJob": {
			reason: "it is not this job's", marks: queued, want: Held,
			workloads: list{earlier},
			message:   []string{"has made no Workload"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := testJob(test.marks)
			job.Object["spec"] = map[string]any{"suspend": !test.resumed}
			var workloads []*workload
			for _, object := range test.workloads {
				stripped, err := stripWorkload(object, true)
				if err != nil {
					t.Fatal(err)
				}
				if w := stripped.(*workload); w.owner == job.GetUID() { // The index does this.
					workloads = append(workloads, w)
				}
			}
			got := answerOf(job, workloads, checks{decided: CheckController, controllerOf: func(check string) string {
				return map[string]string{
					"mk": v1alpha1.ManagedByMultiKueue, "provisioning": "kueue.x-k8s.io/provisioning-request", "room": CheckController,
				}[check]
			}})
			if got.Standing != test.want {
				t.Errorf("standing is %s, want %s: %s", got.Standing, test.want, test.reason)
			}
			for _, words := range test.message {
				if !strings.Contains(got.Message, words) {
					t.Errorf("the message is %q, want it to have %q", got.Message, words)
				}
			}
			if (got.Message == "") != (test.want == Free || test.want == QuotaReserved) {
				t.Errorf("the message is %q for a job that is %s", got.Message, got.Standing)
			}
		})
	}
}

// A job wakes only when something changes that its answer depends on.
func TestChanges(t *testing.T) {
	assigned := func(flavor string) map[string]any {
		return with(status(running, "mk"), "admission", map[string]any{"podSetAssignments": []any{
			map[string]any{"name": "node", "flavors": map[string]any{"cpu": flavor, "nvidia.com/gpu": "h100"}},
		}})
	}
	before := assigned("h100")
	for name, test := range map[string]struct {
		after *unstructured.Unstructured
		want  bool
	}{
		"Same":     {after: testWorkload("w", assigned("h100"))},
		"PodsRun":  {after: testWorkload("w", with(assigned("h100"), "conditions", status([]string{"Admitted", "PodsReady"})["conditions"]))},
		"Flavor":   {after: testWorkload("w", assigned("cpus")), want: true},
		"Evicted":  {after: testWorkload("w", status([]string{"Admitted", "Evicted"}, "mk")), want: true},
		"CheckOff": {after: testWorkload("w", status(running)), want: true},
		"State":    {after: testWorkload("w", status(running, "mk:Retry")), want: true},
		"Cluster":  {after: testWorkload("w", with(status(running, "mk"), "clusterName", "far")), want: true},
	} {
		t.Run(name, func(t *testing.T) {
			was, _ := stripWorkload(testWorkload("w", before), true)
			is, _ := stripWorkload(test.after, true)
			told := false
			tellChange(func(key types.NamespacedName) { told = key.Name == "llm" }, was, is)
			if told != test.want {
				t.Errorf("the job was told of: %t, want %t", told, test.want)
			}
		})
	}
}

// A Workload says that its quota was given back as soon as the check asks for that, and as long as Kueue counts it.
func TestGaveBack(t *testing.T) {
	by := checks{decided: CheckController, controllerOf: func(check string) string {
		return map[string]string{"room": CheckController, "other": "example.com/other"}[check]
	}}
	for name, tc := range map[string]struct {
		check kueues.CheckState
		want  bool
	}{
		"Asked":   {check: kueues.CheckState{Name: "room", State: kueues.CheckRetry}, want: true},
		"Evicted": {check: kueues.CheckState{Name: "room", State: kueues.CheckPending, RetryCount: 1}, want: true},
		"New":     {check: kueues.CheckState{Name: "room", State: kueues.CheckPending}},
		"Other":   {check: kueues.CheckState{Name: "other", State: kueues.CheckRetry, RetryCount: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := by.gaveBack(&workload{observation: observation{checks: []kueues.CheckState{tc.check}}}); got != tc.want {
				t.Errorf("it was given back: %t, want %t", got, tc.want)
			}
		})
	}
	if (checks{controllerOf: by.controllerOf}).gaveBack(&workload{observation: observation{checks: []kueues.CheckState{{State: kueues.CheckRetry}}}}) {
		t.Error("a manager that decides about no checks has given something back")
	}
}
