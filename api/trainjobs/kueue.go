// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// KueueManager is the key of Kueue's own entry in spec.runtimePatches. Each cluster's Kueue looks after its own.
	KueueManager = "kueue.x-k8s.io/manager"
	// HubFlavorsManager is the key of the entry in a copy's spec.runtimePatches that has the node labels and tolerations
	// of flavors of the hub's Kueue.
	HubFlavorsManager = v1alpha1.KeyPrefix + "hub-flavors"
)

// FlavorsOf returns what Kueue's entry says about nodes, as an entry of HubFlavorsManager: the node labels and the
// tolerations of the flavors. The labels of pods name queues of the hub, and only the hub's Kueue would lift scheduling
// gates. FlavorsOf returns nil if the entry says nothing about nodes.
func FlavorsOf(entry trainer.RuntimePatch) *trainer.RuntimePatch {
	var jobs []trainer.ReplicatedJobPatch
	for _, job := range PatchedJobs(entry) {
		if t := job.Template; t != nil && t.Spec != nil && t.Spec.Template != nil && t.Spec.Template.Spec != nil {
			pod := t.Spec.Template.Spec
			jobs = append(jobs, OnNodes(job.Name, pod.NodeSelector, pod.Tolerations))
		}
	}
	return HubFlavors(jobs)
}

// HubFlavors returns the entry of HubFlavorsManager with what OnNodes has returned, nil if that says nothing.
func HubFlavors(jobs []trainer.ReplicatedJobPatch) *trainer.RuntimePatch {
	jobs = slices.DeleteFunc(jobs, func(job trainer.ReplicatedJobPatch) bool {
		pod := job.Template.Spec.Template.Spec
		return len(pod.NodeSelector) == 0 && len(pod.Tolerations) == 0
	})
	if len(jobs) == 0 {
		return nil
	}
	return patchBy(HubFlavorsManager, jobs)
}

// patchBy returns the entry of a manager that patches replicated jobs.
func patchBy(manager string, jobs []trainer.ReplicatedJobPatch) *trainer.RuntimePatch {
	return &trainer.RuntimePatch{
		Manager: manager,
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{
			Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: jobs},
		}},
	}
}

// OnNodes returns a patch of the pods of a replicated job.
func OnNodes(name string, labels map[string]string, tolerations []corev1.Toleration) trainer.ReplicatedJobPatch {
	pod := &trainer.PodSpecPatch{NodeSelector: labels, Tolerations: tolerations}
	return trainer.ReplicatedJobPatch{Name: name, Template: &trainer.JobTemplatePatch{
		Spec: &trainer.JobSpecPatch{Template: &trainer.PodTemplatePatch{Spec: pod}},
	}}
}

// TakeFlavorTolerations takes the tolerations out of the entry of HubFlavorsManager, and returns them by replicated job.
// Kubeflow Trainer merges the tolerations of a pod as one value: those of a later entry replace those of the runtime and
// of the user.
func TakeFlavorTolerations(job *trainer.TrainJob) map[string][]corev1.Toleration {
	taken := map[string][]corev1.Toleration{}
	for i := range job.Spec.RuntimePatches {
		if job.Spec.RuntimePatches[i].Manager != HubFlavorsManager {
			continue
		}
		for _, patched := range PatchedJobs(job.Spec.RuntimePatches[i]) {
			if t := patched.Template; t != nil && t.Spec != nil && t.Spec.Template != nil && t.Spec.Template.Spec != nil {
				pod := t.Spec.Template.Spec
				taken[patched.Name], pod.Tolerations = pod.Tolerations, nil
			}
		}
	}
	return taken
}

// WithTolerations returns tolerations, and of others those that are not among them.
func WithTolerations(tolerations, others []corev1.Toleration) []corev1.Toleration {
	all := slices.Clip(tolerations)
	for i := range others {
		if !slices.ContainsFunc(all, func(t corev1.Toleration) bool { return equality.Semantic.DeepEqual(t, others[i]) }) {
			all = append(all, others[i])
		}
	}
	return all
}

// SetHubFlavors replaces Kueue's entry by an entry of HubFlavorsManager, which comes last. With nil it only takes
// Kueue's entry out.
func SetHubFlavors(job *trainer.TrainJob, flavors *trainer.RuntimePatch) {
	job.Spec.RuntimePatches = slices.DeleteFunc(job.Spec.RuntimePatches, func(patch trainer.RuntimePatch) bool {
		return StaysOnHub(patch.Manager)
	})
	if flavors != nil {
		job.Spec.RuntimePatches = append(job.Spec.RuntimePatches, *flavors)
	}
}

// StaysOnHub is true for the managers whose entries no copy gets from its job: Kueue and Trainyard's own. A user can
// write each of them.
func StaysOnHub(manager string) bool {
	return manager == KueueManager || manager == HubFlavorsManager || manager == TopologyManager || manager == CheckpointManager
}

// KueueFlavors is FlavorsOf the entry of Kueue in a job.
func KueueFlavors(job *trainer.TrainJob) *trainer.RuntimePatch {
	for _, patch := range job.Spec.RuntimePatches {
		if patch.Manager == KueueManager {
			return FlavorsOf(patch)
		}
	}
	return nil
}

// PatchedJobs returns the replicated jobs that an entry of runtimePatches names.
func PatchedJobs(patch trainer.RuntimePatch) []trainer.ReplicatedJobPatch {
	if s := patch.TrainingRuntimeSpec; s != nil && s.Template != nil && s.Template.Spec != nil {
		return s.Template.Spec.ReplicatedJobs
	}
	return nil
}

// QueuedByKueue is true for a job that the Kueue of its own cluster has in the queue of the job's label. Kueue adds its
// entry to the runtimePatches of each job that is created, also if it does not manage the job. When Kueue starts a job,
// it writes the replicated jobs into the entry, whatever the flavors are. Before that the job is suspended.
func QueuedByKueue(job *unstructured.Unstructured) bool {
	if job.GetLabels()[v1alpha1.LabelLocalQueue] == "" {
		return false
	}
	all, _ := Spec(job)["runtimePatches"].([]any)
	for _, patch := range all {
		fields, _ := patch.(map[string]any)
		if manager, _ := fields["manager"].(string); manager != KueueManager {
			continue
		}
		started, _, _ := unstructured.NestedFieldNoCopy(fields, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
		replicatedJobs, _ := started.([]any)
		return len(replicatedJobs) > 0 || Suspended(job)
	}
	return false
}
