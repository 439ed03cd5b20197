// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"encoding/json"
	"fmt"
	"runtime"
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/test/check"
)

// largeJob is a TrainJob as an informer gets it, with selector terms of about so many bytes of JSON.
func largeJob(t *testing.T, number, bytes int) *unstructured.Unstructured {
	t.Helper()
	var terms strings.Builder
	for i := 0; terms.Len() < bytes; i++ {
		fmt.Fprintf(&terms, `{"weight":1,"preference":{"matchExpressions":[{"key":"k%d","operator":"In","values":["v%d"]}]}},`, number, i)
	}
	data := fmt.Sprintf(`{
		"apiVersion": "trainer.kubeflow.org/v1alpha1", "kind": "TrainJob", "metadata": {"namespace": "a", "name": "large-%d"},
		"spec": {
			"managedBy": "x/y", "suspend": false, "runtimeRef": {"name": "torch"}, "trainer": {"numNodes": 2},
			"runtimePatches": [{"manager": "me", "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": [{"name": "node",
				"template": {"spec": {"template": {"spec": {"affinity": {"nodeAffinity": {
					"preferredDuringSchedulingIgnoredDuringExecution": [%s]}}}}}}}]}}}}]
		}}`, number, strings.TrimSuffix(terms.String(), ","))
	job := &unstructured.Unstructured{}
	check.Must(t, json.Unmarshal([]byte(data), job))
	return job
}

// TestLargeJobsInCaches: eight jobs of the largest size that an API server takes, and their copies, cost the manager at
// most 40 MB together.
func TestLargeJobsInCaches(t *testing.T) {
	const limit = 40 << 20
	heap := func() uint64 {
		runtime.GC()
		var memory runtime.MemStats
		runtime.ReadMemStats(&memory)
		return memory.HeapAlloc
	}
	before := heap()
	var cached []any
	for range 2 { // The hub's cache, and a worker's.
		for number := range 8 {
			job, err := StripOf("x/y")(largeJob(t, number, 1_300_000))
			check.Must(t, err)
			cached = append(cached, job)
		}
	}
	after := heap()
	if after > before+limit {
		t.Errorf("%d large jobs in caches take %d MB, want at most %d", len(cached), (after-before)>>20, limit>>20)
	}
	runtime.KeepAlive(cached)
}

// TestPackedSpec: what is read of a job does not depend on whether the cache has packed it.
func TestPackedSpec(t *testing.T) {
	for name, bytes := range map[string]int{"Small": 1, "Large": 200_000} {
		t.Run(name, func(t *testing.T) {
			sent := largeJob(t, 1, bytes)
			sent.SetLabels(map[string]string{"kueue.x-k8s.io/queue-name": "queue"})
			cached := any(sent.DeepCopy())
			for range 2 { // Informers may transform an object twice.
				var err error
				cached, err = Strip(cached)
				check.Must(t, err)
			}
			job := cached.(*unstructured.Unstructured)
			if _, packed := packedSpec(job); packed != (bytes > 1000) {
				t.Errorf("packed: %t", packed)
			}
			typed := func(job *unstructured.Unstructured) *trainer.TrainJob {
				typed, err := Typed(job)
				check.Must(t, err)
				return typed
			}
			kind := func(job *unstructured.Unstructured) string {
				kind, key := RuntimeOf(job)
				return kind + "/" + key.String()
			}
			for what, read := range map[string]func(*unstructured.Unstructured) any{
				"spec":        func(job *unstructured.Unstructured) any { return Spec(job) },
				"typed":       func(job *unstructured.Unstructured) any { return typed(job) },
				"digest":      func(job *unstructured.Unstructured) any { return Digest(job) },
				"managedBy":   func(job *unstructured.Unstructured) any { return ManagedBy(job) },
				"suspend":     func(job *unstructured.Unstructured) any { return Suspended(job) },
				"runtime":     func(job *unstructured.Unstructured) any { return kind(job) },
				"queue":       func(job *unstructured.Unstructured) any { return QueuedByKueue(job) },
				"copied spec": func(job *unstructured.Unstructured) any { return Spec(job.DeepCopy()) },
			} {
				check.Diff(t, read(sent), read(job), fmt.Sprintf("%s differs in the cache", what))
			}
		})
	}
}

func TestDigest(t *testing.T) {
	newJob := func() *unstructured.Unstructured {
		job := New()
		job.SetName("job")
		job.SetLabels(map[string]string{"team": "a"})
		job.Object["spec"] = map[string]any{
			"managedBy": "x/y", "suspend": false, "runtimeRef": map[string]any{"name": "torch"},
			"trainer": map[string]any{"numNodes": int64(2)},
		}
		return job
	}
	spec := func(job *unstructured.Unstructured) map[string]any { return job.Object["spec"].(map[string]any) }
	for name, tc := range map[string]struct {
		reason string
		change func(*unstructured.Unstructured)
		counts bool
	}{
		"Suspended": {reason: "a job is stopped and started", change: func(job *unstructured.Unstructured) { spec(job)["suspend"] = true }},
		"NoSuspend": {reason: "absent is false", change: func(job *unstructured.Unstructured) { delete(spec(job), "suspend") }},
		"Kueue": {reason: "the hub's Kueue resumes it", change: func(job *unstructured.Unstructured) {
			spec(job)["runtimePatches"] = []any{map[string]any{"manager": KueueManager, "time": "now"}}
		}},
		"Annotation": {reason: "no copy is refused or counted by it", change: func(job *unstructured.Unstructured) {
			job.SetAnnotations(map[string]string{"note": "x"})
		}},
		"Status":     {reason: "it is the copy's", change: func(job *unstructured.Unstructured) { job.Object["status"] = map[string]any{} }},
		"Generation": {reason: "it grows with each suspension", change: func(job *unstructured.Unstructured) { job.SetGeneration(7) }},
		"Nodes": {reason: "the demand", counts: true, change: func(job *unstructured.Unstructured) {
			spec(job)["trainer"] = map[string]any{"numNodes": int64(64)}
		}},
		"Patches": {reason: "a PriorityClass, for example", counts: true, change: func(job *unstructured.Unstructured) {
			spec(job)["runtimePatches"] = []any{map[string]any{"manager": "me"}}
		}},
		"Label": {reason: "the policy and the class of a Workload", counts: true, change: func(job *unstructured.Unstructured) {
			job.SetLabels(map[string]string{"team": "b"})
		}},
		"OfTomorrow": {reason: "a field that the Go type does not know", counts: true, change: func(job *unstructured.Unstructured) {
			spec(job)["ofTomorrow"] = "x"
		}},
	} {
		t.Run(name, func(t *testing.T) {
			before := newJob()
			after := newJob()
			tc.change(after)
			check.Equal(t, tc.counts, Digest(before) != Digest(after), "%s: the digest has changed", tc.reason)
		})
	}
	job := newJob()
	spec(job)["runtimePatches"] = []any{map[string]any{"manager": KueueManager}, map[string]any{"manager": "me"}}
	before := job.DeepCopy()
	Digest(job)
	check.Equal(t, len(spec(before)["runtimePatches"].([]any)), len(spec(job)["runtimePatches"].([]any)),
		"Digest has changed its argument: runtimePatches")
}
