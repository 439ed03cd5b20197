// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/internal/spelling"
)

const (
	rulePatchManager   = "PatchManager"
	rulePatchJob       = "PatchReplicatedJob"
	rulePatchContainer = "PatchContainer"
	rulePatchEnv       = "PatchEnv"
)

// PatchesPath is the path of the runtime patches of a TrainJob.
var PatchesPath = field.NewPath("spec", "runtimePatches")

// envBelongsTo says where a TrainJob sets the environment of containers whose environment no patch may set.
var envBelongsTo = map[string]string{
	constants.Node:               "spec.trainer.env",
	constants.DatasetInitializer: "spec.initializer.dataset.env",
	constants.ModelInitializer:   "spec.initializer.model.env",
}

// ChangedPatches returns the indices of added or changed patches, and whether any patch differs. Times do not count.
func ChangedPatches(old, job *trainer.TrainJob) (indices []int, changed bool) {
	before := map[string]trainer.RuntimePatch{}
	for _, patch := range old.Spec.RuntimePatches {
		before[patch.Manager] = patch
	}
	for i, patch := range job.Spec.RuntimePatches {
		if same, ok := before[patch.Manager]; !ok || !SamePatch(same, patch) {
			indices = append(indices, i)
		}
	}
	return indices, len(indices) > 0 || !sameOrder(old.Spec.RuntimePatches, job.Spec.RuntimePatches)
}

// SamePatch says whether two patches differ in their times at most.
func SamePatch(a, b trainer.RuntimePatch) bool {
	a.Time, b.Time = nil, nil
	return equality.Semantic.DeepEqual(a, b)
}

// sameOrder compares the order of managers: if two patches set a field, the later patch wins.
func sameOrder(a, b []trainer.RuntimePatch) bool {
	return slices.EqualFunc(a, b, func(x, y trainer.RuntimePatch) bool { return x.Manager == y.Manager })
}

func allPatches(job *trainer.TrainJob) (indices []int) {
	for i := range job.Spec.RuntimePatches {
		indices = append(indices, i)
	}
	return indices
}

// patchFaults returns the faults of some patches of a TrainJob, checked against its runtime.
func patchFaults(job *trainer.TrainJob, indices []int, r *Runtime) (faults []Fault) {
	for _, i := range indices {
		patch, path := job.Spec.RuntimePatches[i], PatchesPath.Index(i)
		for _, err := range validation.IsDomainPrefixedPath(path.Child("manager"), patch.Manager) {
			faults = append(faults, Fault{Rule: rulePatchManager, Err: err})
		}
		for j, step := range trainjobs.PatchedJobs(patch) {
			faults = append(faults, stepFaults(step, replicatedJobsPath(i).Index(j), r)...)
		}
	}
	return faults
}

func replicatedJobsPath(patch int) *field.Path {
	return PatchesPath.Index(patch).Child("trainingRuntimeSpec", "template", "spec", "replicatedJobs")
}

// patchedPod returns the patch of a replicated job's pods, or nil.
func patchedPod(step trainer.ReplicatedJobPatch) *trainer.PodSpecPatch {
	if t := step.Template; t != nil && t.Spec != nil && t.Spec.Template != nil {
		return t.Spec.Template.Spec
	}
	return nil
}

// podPath is the path of patchedPod's fields.
func podPath(step *field.Path) *field.Path {
	return step.Child("template", "spec", "template", "spec")
}

func stepFaults(step trainer.ReplicatedJobPatch, path *field.Path, r *Runtime) (faults []Fault) {
	pod := r.podOf(step.Name)
	if pod == nil {
		return []Fault{unknown(rulePatchJob, path.Child("name"), step.Name, "replicated jobs of "+r.String(), r.replicatedJobs())}
	}
	patch := patchedPod(step)
	if patch == nil {
		return nil
	}
	path = podPath(path)
	faults = containerFaults(patch.InitContainers, ContainerNames(pod.InitContainers), path.Child("initContainers"),
		fmt.Sprintf("init containers of replicated job %q", step.Name))
	faults = append(faults, containerFaults(patch.Containers, ContainerNames(pod.Containers), path.Child("containers"),
		fmt.Sprintf("containers of replicated job %q", step.Name))...)
	for k, container := range patch.Containers {
		if instead, ok := envBelongsTo[container.Name]; ok && len(container.Env) > 0 {
			err := field.Forbidden(path.Child("containers").Index(k).Child("env"),
				fmt.Sprintf("the environment of container %q cannot be patched; it is set by %s", container.Name, instead))
			faults = append(faults, Fault{Rule: rulePatchEnv, Err: err})
		}
	}
	return faults
}

func containerFaults(patches []trainer.ContainerPatch, names []string, path *field.Path, what string) (faults []Fault) {
	for k, container := range patches {
		if !slices.Contains(names, container.Name) {
			faults = append(faults, unknown(rulePatchContainer, path.Index(k).Child("name"), container.Name, what, names))
		}
	}
	return faults
}

// unknown returns a fault for a patch with an unknown name. It lists the known names.
func unknown(rule string, path *field.Path, name, what string, names []string) Fault {
	err := field.NotFound(path, name)
	err.Detail = fmt.Sprintf("the %s are: %s%s", what, listed(names, mostNames), spelling.DidYouMean(name, names))
	return Fault{Rule: rule, Err: err}
}

// String returns the runtime's name for messages.
func (r *Runtime) String() string {
	return fmt.Sprintf("runtime %q", r.object.GetName())
}

func (r *Runtime) replicatedJobs() (names []string) {
	for _, step := range r.spec.Template.Spec.ReplicatedJobs {
		names = append(names, step.Name)
	}
	return names
}

// podOf returns the pod of a replicated job of the runtime, or nil if there is no such job.
func (r *Runtime) podOf(name string) *corev1.PodSpec {
	steps := r.spec.Template.Spec.ReplicatedJobs
	for i := range steps {
		if steps[i].Name == name {
			return &steps[i].Template.Spec.Template.Spec
		}
	}
	return nil
}

// ContainerNames returns the names of containers.
func ContainerNames(containers []corev1.Container) []string {
	names := make([]string, 0, len(containers))
	for _, container := range containers {
		names = append(names, container.Name)
	}
	return names
}
