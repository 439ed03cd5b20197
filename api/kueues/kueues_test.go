// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueues

import (
	"encoding/json"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/test/check"
)

// parse returns an object as a client decodes it: with int64.
func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	data, err := yaml.YAMLToJSON([]byte(text))
	check.Must(t, err)
	object := &unstructured.Unstructured{}
	check.Must(t, object.UnmarshalJSON(data))
	return object
}

const workload = `
apiVersion: kueue.x-k8s.io/v1beta2
kind: Workload
metadata:
  namespace: team
  name: trainjob-llm
  labels: {kueue.x-k8s.io/job-uid: u}
  annotations: {note: long}
  ownerReferences: [{apiVersion: trainer.kubeflow.org/v1alpha1, kind: TrainJob, name: llm, uid: u, controller: true}]
spec:
  queueName: main
  priority: 7
  fieldOfTomorrow: {new: true}
  podSets: [{name: node, count: 2, template: {spec: {terminationGracePeriodSeconds: 5, containers: []}}}]
status:
  fieldOfTomorrow: [new]
  conditions: [{type: QuotaReserved, status: "True", reason: QuotaReserved}, {type: Evicted, status: "False"}]
  admissionChecks: [{name: room, state: Retry, message: full, lastTransitionTime: "2026-11-23T11:00:00Z", retryCount: 3}]
  admission:
    clusterQueue: team-a
    podSetAssignments: [{name: node, flavors: {cpu: h100}, resourceUsage: {cpu: 500m}, topologyAssignment: {levels: [a]}}]
`

// TestRead: fields of a newer Kueue disturb nobody, and stay in the object.
func TestRead(t *testing.T) {
	object := parse(t, workload)
	w, err := Read[Workload](object)
	check.Must(t, err)
	if !w.Is(QuotaReserved) || w.Is(Evicted) || w.Is(Admitted) || w.Condition(QuotaReserved).Reason != QuotaReserved {
		t.Errorf("the conditions are %+v", w.Status.Conditions)
	}
	want := []CheckState{{Name: "room", State: CheckRetry, Message: "full", LastTransitionTime: "2026-11-23T11:00:00Z", RetryCount: 3}}
	check.Diff(t, want, w.Status.AdmissionChecks, "the checks")
	if w.Spec.QueueName != "main" || w.Spec.Priority != 7 || w.Status.Admission.PodSetAssignments[0].Flavors["cpu"] != "h100" {
		t.Errorf("the Workload is %+v", w)
	}
	pod, err := w.Spec.PodSets[0].Pod()
	if check.Must(t, err); *pod.TerminationGracePeriodSeconds != 5 {
		t.Errorf("the pod is %+v", pod)
	}
	if owner := TrainJobOf(object); owner == nil || owner.Name != "llm" {
		t.Errorf("the job is %+v", owner)
	}
	check.Diff(t, parse(t, workload), object, "reading changes nothing")
	object.Object["spec"].(map[string]any)["queueName"] = []any{"of another form"}
	if w, err = Read[Workload](object); err == nil || w == nil || w.Name != "" {
		t.Errorf("got %+v and the error %v, want no fields and an error", w, err)
	}
}

// TestTrainJobOf: the Workload of another kind of job is no TrainJob's, whatever the name of the kind.
func TestTrainJobOf(t *testing.T) {
	for name, owner := range map[string]metav1.OwnerReference{
		"JobSet":     {APIVersion: "jobset.x-k8s.io/v1alpha2", Kind: "JobSet", Controller: new(true)},
		"OtherGroup": {APIVersion: "trainer.kubeflow.org.example/v1", Kind: "TrainJob", Controller: new(true)},
		"NoOwner":    {APIVersion: "trainer.kubeflow.org/v1alpha1", Kind: "TrainJob"},
	} {
		if got := TrainJobOf(&metav1.ObjectMeta{OwnerReferences: []metav1.OwnerReference{owner}}); got != nil {
			t.Errorf("%s: got %+v", name, got)
		}
	}
}

// TestStrip: caches keep what is read, and nothing that can be large.
func TestStrip(t *testing.T) {
	finished := parse(t, workload)
	finished.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": Finished, "status": "True"}}, "admission": map[string]any{}}
	for name, test := range map[string]struct {
		object *unstructured.Unstructured
		want   string
	}{
		"Workload": {object: parse(t, workload), want: `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload",` +
			`"metadata":{"labels":{"kueue.x-k8s.io/job-uid":"u"},"name":"trainjob-llm","namespace":"team","ownerReferences":` +
			`[{"apiVersion":"trainer.kubeflow.org/v1alpha1","controller":true,"kind":"TrainJob","name":"llm","uid":"u"}]},` +
			`"spec":{"podSets":[{"count":2,"name":"node"}],"queueName":"main"},"status":{"admission":{"clusterQueue":"team-a",` +
			`"podSetAssignments":[{"flavors":{"cpu":"h100"},"name":"node","resourceUsage":{"cpu":"500m"}}]},"admissionChecks":` +
			`[{"lastTransitionTime":"2026-11-23T11:00:00Z","message":"full","name":"room","retryCount":3,"state":"Retry"}],` +
			`"conditions":[{"reason":"QuotaReserved","status":"True","type":"QuotaReserved"},{"status":"False","type":"Evicted"}]}}`},
		"Finished": {object: finished, want: `{"apiVersion":"kueue.x-k8s.io/v1beta2","kind":"Workload",` +
			`"metadata":{"labels":{"kueue.x-k8s.io/job-uid":"u"},"name":"trainjob-llm","namespace":"team","ownerReferences":` +
			`[{"apiVersion":"trainer.kubeflow.org/v1alpha1","controller":true,"kind":"TrainJob","name":"llm","uid":"u"}]},` +
			`"status":{"conditions":[{"status":"True","type":"Finished"}]}}`},
		"Queue": {
			object: parse(t, `{kind: LocalQueue, metadata: {name: main, labels: {a: b}}, spec: {clusterQueue: team-a}, status: {pendingWorkloads: 3}}`),
			want:   `{"kind":"LocalQueue","metadata":{"name":"main"},"spec":{"clusterQueue":"team-a"},"status":{}}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			stripped, err := Strip(test.object)
			check.Must(t, err)
			got, err := json.Marshal(stripped.(*unstructured.Unstructured).Object)
			check.Must(t, err)
			check.Diff(t, test.want, string(got), name)
		})
	}
}

// TestKinds: the names of resources are those of Kueue's CRDs.
func TestKinds(t *testing.T) {
	for kind, want := range map[Kind]string{
		KindAdmissionCheck: "admissionchecks", KindClusterQueue: "clusterqueues", KindCohort: "cohorts",
		KindLocalQueue: "localqueues", KindMultiKueueConfig: "multikueueconfigs", KindMultiKueueCluster: "multikueueclusters",
		KindResourceFlavor: "resourceflavors", KindWorkload: "workloads", KindWorkloadPriorityClass: "workloadpriorityclasses",
	} {
		if got := kind.Resource(); got != want {
			t.Errorf("the resource of %s is %s, want %s", kind, got, want)
		}
	}
}
