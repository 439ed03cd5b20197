// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/test/check"
)

// TestPodsKind: what makes no difference to admission makes no other kind, and the job stays as it is.
func TestPodsKind(t *testing.T) {
	spec := func() map[string]any {
		return map[string]any{
			"suspend": true,
			"trainer": map[string]any{"image": "llm:v1", "numNodes": int64(2), "args": []any{"--seed=1"}, "env": []any{map[string]any{"name": "A"}}},
			"initializer": map[string]any{
				"model": map[string]any{"storageUri": "s3://a", "secretRef": map[string]any{"name": "token"}},
			},
			"runtimePatches": []any{map[string]any{"manager": "example.com/a", "time": "2026-11-27T00:00:00Z"}},
		}
	}
	kind := func(spec map[string]any, policies ...dispatch.Policy) podsKind {
		job := &queue.Job{Counted: &v1alpha1.Counted{Runtime: "runtime.1"}, Policies: policies}
		return podsKindOf(&unstructured.Unstructured{Object: map[string]any{"spec": spec}}, job)
	}
	at := func(object map[string]any, field string) map[string]any { return object[field].(map[string]any) }
	for name, tc := range map[string]struct {
		change func(spec map[string]any)
		same   bool
	}{
		"Suspend":    {func(spec map[string]any) { delete(spec, "suspend") }, true},
		"Nodes":      {func(spec map[string]any) { at(spec, "trainer")["numNodes"] = int64(8) }, true},
		"Arguments":  {func(spec map[string]any) { at(spec, "trainer")["args"] = []any{"--seed=2"} }, true},
		"StorageURI": {func(spec map[string]any) { at(at(spec, "initializer"), "model")["storageUri"] = "s3://b" }, true},
		"PatchTime": {func(spec map[string]any) {
			spec["runtimePatches"] = []any{map[string]any{"manager": "example.com/a", "time": "2026-11-28T00:00:00Z"}}
		}, true},
		"Image":  {func(spec map[string]any) { at(spec, "trainer")["image"] = "llm:v2" }, false},
		"Secret": {func(spec map[string]any) { delete(at(at(spec, "initializer"), "model"), "secretRef") }, false},
		"Patch":  {func(spec map[string]any) { spec["runtimePatches"] = []any{map[string]any{"manager": "example.com/b"}} }, false},
	} {
		t.Run(name, func(t *testing.T) {
			changed := spec()
			tc.change(changed)
			before := runtime.DeepCopyJSON(changed)
			check.Equal(t, tc.same, kind(spec()) == kind(changed), "the changed job has the same kind of pods")
			check.Diff(t, before, changed, "the spec, which is the cache's")
		})
	}
	flavors := dispatch.Policy{DispatchPolicy: &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{HubFlavors: v1alpha1.HubFlavorsPropagate}}}
	check.Equal(t, false, kind(spec()) == kind(spec(), flavors), "with a policy that sends flavors, the pods are of the same kind")
}

// TestAnswersAreBounded: jobs of ever new kinds cannot fill the memory with what workers answer.
func TestAnswersAreBounded(t *testing.T) {
	answers := newPodAnswers(clocktesting.NewFakePassiveClock(time.Unix(0, 0)))
	worker := &v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: "east"}}
	withAgent(worker)
	for i := range mostKinds + 10 {
		ok, ask, _ := answers.confirm(podsKind{digest: fmt.Sprint(i)}, &queue.Job{}, worker)
		check.Equal(t, false, ok, "pods of a new kind are placed without a question")
		check.Equal(t, true, ask, "pods of a new kind are asked about")
	}
	if kept := len(answers.known); kept > mostKinds {
		t.Errorf("%d kinds are kept, want at most %d", kept, mostKinds)
	}
}
