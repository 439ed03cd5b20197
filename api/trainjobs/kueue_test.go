// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"fmt"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp/cmpopts"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestQueuedByKueue: the entry of Kueue is on all jobs of its cluster. Only what Kueue does with a job tells whose it
// is.
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
			check.Equal(t, test.want, QueuedByKueue(job), "QueuedByKueue(): %s", test.reason)
		})
	}
}

// Kueue's entry never counts as it is. What it says about nodes counts under another key, and only there.
func TestSetHubFlavors(t *testing.T) {
	tolerations := []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}}
	entry := HubFlavors([]trainer.ReplicatedJobPatch{
		OnNodes("launcher", nil, nil), OnNodes("node", map[string]string{"gpu": "h100"}, tolerations),
	})
	entry.Manager = KueueManager
	pod := entry.TrainingRuntimeSpec.Template.Spec.ReplicatedJobs[0].Template.Spec.Template
	pod.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue.x-k8s.io/topology"}}
	pod.Metadata = &metav1.ObjectMeta{Labels: map[string]string{"kueue.x-k8s.io/podset": "node"}}
	flavors := HubFlavors([]trainer.ReplicatedJobPatch{OnNodes("node", map[string]string{"gpu": "h100"}, tolerations)})
	users := trainer.RuntimePatch{Manager: "a.dev/b"}
	forged := trainer.RuntimePatch{Manager: HubFlavorsManager}
	for name, test := range map[string]struct {
		reason  string
		patches []trainer.RuntimePatch
		count   bool
		want    []trainer.RuntimePatch
	}{
		"Ignored":  {reason: "an account says nothing about nodes", patches: []trainer.RuntimePatch{*entry, users}, want: []trainer.RuntimePatch{users}},
		"Counted":  {reason: "nodes only", patches: []trainer.RuntimePatch{*entry, users}, count: true, want: []trainer.RuntimePatch{users, *flavors}},
		"NoKueue":  {reason: "nobody has assigned flavors", patches: []trainer.RuntimePatch{users}, count: true, want: []trainer.RuntimePatch{users}},
		"NotYet":   {reason: "Kueue has not started the job", patches: []trainer.RuntimePatch{{Manager: KueueManager}}, count: true},
		"Forged":   {reason: "the entry is not for users", patches: []trainer.RuntimePatch{forged}, count: true},
		"Replaced": {reason: "nor does it come before Kueue's", patches: []trainer.RuntimePatch{forged, *entry}, count: true, want: []trainer.RuntimePatch{*flavors}},
	} {
		t.Run(name, func(t *testing.T) {
			job := &trainer.TrainJob{}
			job.Spec.RuntimePatches = slices.Clone(test.patches)
			var count *trainer.RuntimePatch
			if test.count {
				count = KueueFlavors(job)
			}
			SetHubFlavors(job, count)
			check.Diff(t, test.want, job.Spec.RuntimePatches,
				fmt.Sprintf("SetHubFlavors() (-want +got): %s", test.reason), cmpopts.EquateEmpty())
		})
	}
}
