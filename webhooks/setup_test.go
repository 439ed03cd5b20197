// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	apiruntime "k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/test/check"
)

// step is one status patch, as kubectl sends it, and the API server's answer.
type step struct {
	reason string
	patch  trainer.TrainJobStatus
	// refused is a part of the answer. Empty: the patch is accepted.
	refused string
}

// patchStatus sends a merge patch, which replaces the whole list of conditions.
func (e *environment) patchStatus(t *testing.T, j *trainer.TrainJob, status trainer.TrainJobStatus) error {
	t.Helper()
	patch, err := json.Marshal(map[string]any{"status": status})
	check.Must(t, err)
	_, err = e.cluster.Kubectl(t.Context(), "patch", "trainjob", "-n", j.Namespace, j.Name, "--subresource=status", "--type=merge",
		"-p", string(patch))
	return err
}

func (e *environment) runSteps(t *testing.T, j *trainer.TrainJob, steps []step) {
	t.Helper()
	for _, s := range steps {
		before := e.get(t, j).Status
		err := e.patchStatus(t, j, s.patch)
		switch {
		case s.refused == "" && err != nil:
			t.Fatalf("%s: refused: %v", s.reason, err)
		case s.refused != "" && (err == nil || !strings.Contains(err.Error(), s.refused)):
			t.Fatalf("%s: got error %v, want one with\n%s", s.reason, err, s.refused)
		case s.refused != "":
			after := e.get(t, j).Status
			before.JobsStatus, after.JobsStatus = nil, nil // The controller counts.
			if diff := cmp.Diff(before, after); diff != "" {
				t.Fatalf("%s: refused, but the status is another one now:\n%s", s.reason, diff)
			}
		}
	}
}

// TestStatusPatches: kubectl users try to disturb the status of a job of this cluster.
func TestStatusPatches(t *testing.T) {
	e := env(t)
	j := job(e.namespace(t), "status", suspended)
	e.create(t, j)
	eventually(t, "job to be suspended", func(g gomega.Gomega) {
		g.Expect(meta.IsStatusConditionTrue(e.get(t, j).Status.Conditions, trainer.TrainJobSuspended)).To(gomega.BeTrue())
	})
	was := *meta.FindStatusCondition(e.get(t, j).Status.Conditions, trainer.TrainJobSuspended)
	after := func(c metav1.Condition) metav1.Condition {
		c.LastTransitionTime = metav1.NewTime(was.LastTransitionTime.AddDate(0, 0, 1))
		return c
	}
	complete, failed := after(condition("Complete", "True", 0)), after(condition("Failed", "True", 0))
	otherwise := complete
	otherwise.Message = "it was not so"
	broken := refusals(t, "trainjob-status", "EndIsFinal")

	e.runSteps(t, j, []step{
		{
			reason: "two ends at once", patch: conditions(was, complete, failed),
			refused: `status.conditions[Complete].status: Invalid value: "True": rule CompleteXorFailed: was not there`,
		},
		{reason: "the end of a suspended job", patch: conditions(was, complete)},
		{
			reason: "another end", patch: conditions(was, complete, failed),
			refused: `status.conditions[Failed].status: Invalid value: "True": rule CompleteXorFailed: was not there`,
		},
		{reason: "the end in other words", patch: conditions(was, otherwise), refused: `rule EndIsFinal: was "so it is"`},
		{reason: "no end any more", patch: conditions(was), refused: `status.conditions[Complete]: Required value: rule EndIsFinal`},
		{reason: "counters after the end", patch: trainer.TrainJobStatus{
			Conditions: []metav1.Condition{was, complete},
			JobsStatus: []trainer.JobStatus{{
				Name: "node", Ready: new(int32(0)), Succeeded: new(int32(1)), Failed: new(int32(0)), Active: new(int32(0)), Suspended: new(int32(0)),
			}},
		}},
		{
			reason: "a report after the end",
			patch:  trainer.TrainJobStatus{Conditions: []metav1.Condition{was, complete}, TrainerStatus: report(8).TrainerStatus},
		},
		{
			reason:  "an older report",
			patch:   trainer.TrainJobStatus{Conditions: []metav1.Condition{was, complete}, TrainerStatus: report(7).TrainerStatus},
			refused: "status.trainerStatus.lastUpdatedTime: Invalid value: \"2026-05-04T10:07:00Z\": rule ProgressDoesNotGoBack",
		},
		{reason: "resumed after the end", patch: conditions(after(condition("Suspended", "False", 0)), complete)},
		{
			reason: "suspended after the end", patch: conditions(after(condition("Suspended", "True", 0)), complete),
			refused: `status.conditions[Suspended].status: Invalid value: "True": rule EndedIsNotSuspended: was "False"`,
		},
		{
			reason: "a transition that goes back", patch: conditions(condition("Suspended", "False", 0), complete),
			refused: "status.conditions[Suspended].lastTransitionTime: Invalid value: \"2026-05-04T10:00:00Z\": rule TransitionTimeDoesNotGoBack",
		},
	})
	check.Equal(t, 2, refusals(t, "trainjob-status", "EndIsFinal")-broken, "refusals by EndIsFinal that were counted")
}

// TestMirrorsStatus: a controller of another cluster writes the whole status, with the resource version that it read.
// Its clock differs, a write may have several changes, and a new copy starts a new status. Only the end stays.
func TestMirrorsStatus(t *testing.T) {
	e := env(t)
	j := job(e.namespace(t), "mirrored", func(j *trainer.TrainJob) { j.Spec.ManagedBy = new("kueue.x-k8s.io/multikueue") })
	e.create(t, j)
	mirror := func(status trainer.TrainJobStatus) error {
		t.Helper()
		hub := &unstructured.Unstructured{}
		hub.SetGroupVersionKind(trainer.GroupVersion.WithKind(trainer.TrainJobKind))
		check.Must(t, e.Get(t.Context(), client.ObjectKeyFromObject(j), hub))
		content, err := apiruntime.DefaultUnstructuredConverter.ToUnstructured(&status)
		check.Must(t, err)
		updated := hub.DeepCopy()
		updated.Object["status"] = content
		return e.Status().Patch(t.Context(), updated, client.MergeFromWithOptions(hub, client.MergeFromWithOptimisticLock{}))
	}
	for i, status := range []trainer.TrainJobStatus{
		conditions(condition("Suspended", "True", 9)),
		conditions(condition("Suspended", "False", 5)), // Another copy, on a cluster with a slow clock.
		{Conditions: []metav1.Condition{condition("Suspended", "False", 5)}, TrainerStatus: report(8).TrainerStatus},
		{Conditions: []metav1.Condition{condition("Suspended", "False", 5)}, TrainerStatus: report(2).TrainerStatus},
		conditions(condition("Suspended", "True", 4), condition("Failed", "True", 4)), // Two changes in one write.
		conditions(condition("Suspended", "True", 4), condition("Failed", "True", 4)),
	} {
		if err := mirror(status); err != nil {
			t.Fatalf("status %d is refused: %v", i, err)
		}
	}
	want := `status.conditions[Failed]: Required value: rule EndIsFinal`
	if err := mirror(conditions(condition("Complete", "True", 4))); err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("the end was exchanged for another one: got error %v, want one with %q", err, want)
	}
}

// TestPatchesGetTheirTime includes the API server's pruning and defaulting, and the webhook's match condition.
func TestPatchesGetTheirTime(t *testing.T) {
	e := env(t)
	namespace := e.namespace(t)
	manifest := func(label string) string {
		return fmt.Sprintf(`{"apiVersion":"trainer.kubeflow.org/v1alpha1","kind":"TrainJob","metadata":{"namespace":%q,"name":"timed"},`+
			`"spec":{"suspend":true,"managedBy":"kueue.x-k8s.io/multikueue","runtimeRef":{"name":"torch-distributed"},"runtimePatches":[`+
			`{"manager":"a.io/x","trainingRuntimeSpec":{"template":{"metadata":{"labels":{"l":%q}}}}}]}}`, namespace, label)
	}
	timeOf := func() metav1.Time {
		t.Helper()
		got := e.get(t, job(namespace, "timed")).Spec.RuntimePatches[0].Time
		if got == nil {
			t.Fatal("the patch has no time")
		}
		return *got
	}
	apply := func(label string) {
		t.Helper()
		check.Must(t, e.cluster.Apply(t.Context(), manifest(label)))
	}
	apply("1")
	first := timeOf()
	eventually(t, "a second to pass", func(g gomega.Gomega) { g.Expect(metav1.Now().Unix()).To(gomega.BeNumerically(">", first.Unix())) })
	apply("1")
	if again := timeOf(); !again.Equal(&first) {
		t.Errorf("to apply the same again has changed the time from %v to %v", first, again)
	}
	apply("2")
	if changed := timeOf(); !first.Before(&changed) {
		t.Errorf("the patch has changed, and its time has not: %v", changed)
	}
}

// TestRuntimesThroughTheAPIServer: config/webhook decides which requests reach the validation.
func TestRuntimesThroughTheAPIServer(t *testing.T) {
	e := env(t)
	namespace := e.namespace(t)
	runtime := func(name string, labels map[string]string, replicas int32) *trainer.TrainingRuntime {
		r := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Labels: labels}}
		r.Spec = runtimeSpec("trainer", replicas, "node")
		return r
	}
	want := []string{"spec.template.spec.replicatedJobs[0].replicas: Invalid value: 2: always must be 1"}
	check.Diff(t, want, causes(t, e.Create(t.Context(), runtime("bad", nil, 2))), "bad TrainingRuntime")
	clusterRuntime := &trainer.ClusterTrainingRuntime{ObjectMeta: metav1.ObjectMeta{Name: "bad"}, Spec: runtimeSpec("trainer", 2, "node")}
	check.Diff(t, want, causes(t, e.Create(t.Context(), clusterRuntime)), "bad ClusterTrainingRuntime")
	e.create(t, runtime("ignored", map[string]string{"trainer.kubeflow.org/webhook-validation": "disabled"}, 2))

	r := runtime("changing", nil, 1)
	e.create(t, r)
	err := update(t, e, r, func(r *trainer.TrainingRuntime) { r.Spec = runtimeSpec("trainer", 2, "node") })
	check.Diff(t, want, causes(t, err), "update to a bad spec")
}

// TestPatchOfAJobWithPlainNumbers: "cpu: 2" is stored as a number, but our types write a string. spec.trainer is
// immutable, so a webhook that sends back more than it changes blocks every later change.
func TestPatchOfAJobWithPlainNumbers(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	plain := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob",
		"metadata": map[string]any{"namespace": ns, "name": "plain"},
		"spec": map[string]any{
			"suspend": true, "runtimeRef": map[string]any{"name": "torch-distributed"},
			"trainer": map[string]any{"resourcesPerNode": map[string]any{"requests": map[string]any{"cpu": int64(2)}}},
		},
	}}
	e.create(t, plain)
	patch := `{"spec":{"runtimePatches":[{"manager":"a.io/x","trainingRuntimeSpec":{"template":{"metadata":{"labels":{"a":"1"}}}}}]}}`
	check.Must(t, e.Patch(t.Context(), plain, client.RawPatch(types.MergePatchType, []byte(patch))))
	patches, _, _ := unstructured.NestedSlice(plain.Object, "spec", "runtimePatches")
	if len(patches) != 1 || patches[0].(map[string]any)["time"] == nil {
		t.Errorf("runtimePatches: %v", patches)
	}
}
