// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/quota"
	"github.com/trainyard/trainyard/test/check"
)

func TestMergingOf(t *testing.T) {
	for name, tc := range map[string]struct {
		reason string
		api    *v1alpha1.TrainerAPI
		agent  string
		want   Merging
	}{
		"Older":        {"its Kubeflow Trainer replaces", &v1alpha1.TrainerAPI{Release: "2.2"}, v1alpha1.ReasonAgentMissing, Replaces},
		"Oldest":       {"so does the first release", &v1alpha1.TrainerAPI{Release: "2.0"}, v1alpha1.ReasonAgentMissing, Replaces},
		"Newest":       {"its Kubeflow Trainer merges", &v1alpha1.TrainerAPI{Release: "2.3"}, v1alpha1.ReasonAgentMissing, Merges},
		"Agent":        {"the agent merges, whatever the CRDs are", &v1alpha1.TrainerAPI{Release: "2.2"}, v1alpha1.ReasonAgentAnswers, Merges},
		"SilentAgent":  {"it is there", &v1alpha1.TrainerAPI{Release: "2.2"}, v1alpha1.ReasonAgentSilent, Merges},
		"AgentUnknown": {"an agent may run the TrainJobs", &v1alpha1.TrainerAPI{Release: "2.2"}, "", MayReplace},
		"NewestAlone":  {"whoever runs the TrainJobs merges", &v1alpha1.TrainerAPI{Release: "2.3"}, "", Merges},
		"Unknown":      {"the CRDs do not say it", &v1alpha1.TrainerAPI{Version: "v1alpha1"}, v1alpha1.ReasonAgentMissing, MayReplace},
		"NotSeen":      {"no job comes there", nil, "", Merges},
	} {
		t.Run(name, func(t *testing.T) {
			cluster := &v1alpha1.WorkerCluster{Status: v1alpha1.WorkerClusterStatus{Trainer: tc.api}}
			if tc.agent != "" {
				cluster.Status.Conditions = []metav1.Condition{{Type: v1alpha1.WorkerClusterAgentReady, Reason: tc.agent}}
			}
			check.Equal(t, tc.want, MergingOf(cluster), "MergingOf(): %s", tc.reason)
			check.Equal(t, tc.want, WorkerOf(cluster, NewNodes(nil), nil).Merging, "WorkerOf(): %s", tc.reason)
		})
	}
}

// TestMergingIsSaid: users learn why a job counts on one worker as on no other, where it fits and where it does not.
func TestMergingIsSaid(t *testing.T) {
	small, large := podSet(1, 1), podSet(1, 9)
	for name, tc := range map[string]struct {
		merging  Merging
		admitted []v1alpha1.PodSet
		want     string
	}{
		"Fits":        {Replaces, []v1alpha1.PodSet{small}, "in place of the runtime's (Kubeflow Trainer 2.2)"},
		"DoesNot":     {Replaces, []v1alpha1.PodSet{large}, "in place of the runtime's (Kubeflow Trainer 2.2)"},
		"AssumedFits": {MayReplace, []v1alpha1.PodSet{small}, "so the larger amounts count (Kubeflow Trainer 2.2)"},
		"Assumed":     {MayReplace, []v1alpha1.PodSet{large}, "so the larger amounts count (Kubeflow Trainer 2.2)"},
		"Same":        {Replaces, nil, ""},
	} {
		t.Run(name, func(t *testing.T) {
			job := Job{UID: "job", PodSets: []v1alpha1.PodSet{podSet(1, 4)}}
			if tc.admitted != nil {
				job.Admit("east", tc.admitted)
			}
			east := worker("east", 1, 8, func(w *Worker) { w.Merging, w.Trainer.Release = tc.merging, "2.2" })
			line := Explain(job, nil, []Worker{east})[0]
			decision := Decide(job, nil, []Worker{east})
			fit := tc.admitted == nil || tc.admitted[0].Requests[gpu] == small.Requests[gpu]
			check.Equal(t, fit, line.Reason == v1alpha1.ReasonFits, "it fits: %s", line.Message)
			if !strings.HasSuffix(line.Message, tc.want) || strings.Contains(line.Message, "counted") != (tc.merging == Replaces && tc.want != "") {
				t.Errorf("the line says %q, want %q at the end", line.Message, tc.want)
			}
			if fit && !strings.HasSuffix(decision.Message, tc.want) {
				t.Errorf("the decision says %q, want %q at the end", decision.Message, tc.want)
			}
		})
	}
}

// TestQuotaOfAnOlderTrainer: on a worker whose Kubeflow Trainer replaces resources, a Kueue may charge them merged.
func TestQuotaOfAnOlderTrainer(t *testing.T) {
	four, eight := resource.MustParse("4"), resource.MustParse("8")
	set := v1alpha1.PodSet{
		Name: "node", Count: 2, Requests: corev1.ResourceList{corev1.ResourceCPU: four},
		MergedRequests: corev1.ResourceList{corev1.ResourceCPU: four, gpu: eight},
	}
	unknown := *set.DeepCopy()
	unknown.Requests, unknown.UnmergedRequests = set.MergedRequests, corev1.ResourceList{corev1.ResourceCPU: four, gpu: resource.MustParse("0")}
	for name, podSets := range map[string][]v1alpha1.PodSet{"Replaces": {set}, "MayReplace": {unknown}} {
		for basis, want := range map[quota.Basis]Resources{
			quota.Merged: {corev1.ResourceCPU: 8000, gpu: 16}, quota.Unmerged: {corev1.ResourceCPU: 8000}, quota.Assumed: {corev1.ResourceCPU: 8000},
		} {
			check.Diff(t, want, chargedOf(podSets, basis), name)
		}
		check.Equal(t, quota.Merged, BasisOf(podSets, map[corev1.ResourceName]int64{corev1.ResourceCPU: 8000, gpu: 16}), "%s: basis", name)
		check.Equal(t, quota.Unmerged, BasisOf(podSets, map[corev1.ResourceName]int64{corev1.ResourceCPU: 8000}), "%s: basis", name)
	}
}
