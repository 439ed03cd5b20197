// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TestQueuedByKueue: the entry of Kueue is on all jobs of its cluster. Only what Kueue does with a job tells whose it is.
func TestQueuedByKueue(t *testing.T) {
	entry := func(manager string, replicatedJobs ...any) any {
		spec := map[string]any{}
		if len(replicatedJobs) > 0 {
			spec["replicatedJobs"] = replicatedJobs
		}
		return map[string]any{
			"manager": manager, "trainingRuntimeSpec": map[string]any{"template": map[string]any{"spec": spec}},
		}
	}
	node := map[string]any{"name": "node"}
	for name, test := range map[string]struct {
		reason    string
		queue     string
		suspended bool
		patches   []any
		want      bool
	}{
		"NoKueue":       {reason: "no Kueue has seen its creation", queue: "main"},
		"Started":       {reason: "Kueue has started it", queue: "main", patches: []any{entry(KueueManager, node)}, want: true},
		"StartedBeside": {reason: "others have entries too", queue: "main", patches: []any{entry("a.dev/b"), entry(KueueManager, node)}, want: true},
		"Held":          {reason: "Kueue holds it", queue: "main", suspended: true, patches: []any{entry(KueueManager)}, want: true},
		"Unmanaged":     {reason: "it runs, and Kueue has not started it", queue: "main", patches: []any{entry(KueueManager)}},
		"OfAnother":     {reason: "the entry is not Kueue's", queue: "main", patches: []any{entry("a.dev/b", node)}},
		"NoQueue":       {reason: "it is in no queue by name", patches: []any{entry(KueueManager, node)}},
		"Odd":           {reason: "it is no entry", queue: "main", suspended: true, patches: []any{"kueue.x-k8s.io/manager"}},
	} {
		t.Run(name, func(t *testing.T) {
			job := New()
			job.SetLabels(map[string]string{v1alpha1.LabelLocalQueue: test.queue})
			job.Object["spec"] = map[string]any{"suspend": test.suspended, "runtimePatches": test.patches}
			if got := QueuedByKueue(job); got != test.want {
				t.Errorf("QueuedByKueue() = %t, want %t: %s", got, test.want, test.reason)
			}
		})
	}
}
