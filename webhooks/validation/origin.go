// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"reflect"
	"regexp"
	"strconv"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	"k8s.io/apimachinery/pkg/util/validation/field"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
)

var (
	podField     = regexp.MustCompile(`^(\w+)(?:\[(\d+)\])?(?:\.(\w+))?`)
	jobSetsField = regexp.MustCompile(`^spec\.replicatedJobs\[(\d+)\]\.template\.spec\.template\.(.*)$`)
)

// originInJobSet returns the field of the TrainJob that sets a field of its JobSet.
func originInJobSet(job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet, at string) *field.Path {
	parts := jobSetsField.FindStringSubmatch(at)
	if parts == nil {
		return runtimeRefPath.Child("name")
	}
	index, err := strconv.Atoi(parts[1])
	if err != nil || index >= len(jobSet.Spec.ReplicatedJobs) {
		return runtimeRefPath.Child("name")
	}
	return origin(job, &jobSet.Spec.ReplicatedJobs[index], strings.TrimPrefix(parts[2], "spec."))
}

// origin returns the field of the TrainJob that sets a field of a replicated job's pods. spec.trainer wins over
// patches, and the last patch over earlier patches. If none sets the field, the runtime does.
func origin(job *trainer.TrainJob, step *jobsetv1alpha2.ReplicatedJob, at string) *field.Path {
	parts := podField.FindStringSubmatch(at)
	if parts == nil {
		return runtimeRefPath.Child("name")
	}
	container, part := containerAt(step, parts[1], parts[2]), parts[3]
	if path := trainerOrigin(job, step, container, part); path != nil {
		return path
	}
	for i := len(job.Spec.RuntimePatches) - 1; i >= 0; i-- {
		if path := patchOrigin(job.Spec.RuntimePatches[i], i, step.Name, parts[1], container, part); path != nil {
			return path
		}
	}
	return runtimeRefPath.Child("name")
}

// containerAt returns the name of the container that a path is in, or "".
func containerAt(step *jobsetv1alpha2.ReplicatedJob, list, index string) string {
	i, err := strconv.Atoi(index)
	if err != nil {
		return ""
	}
	pod := step.Template.Spec.Template.Spec
	switch {
	case list == "containers" && i < len(pod.Containers):
		return pod.Containers[i].Name
	case list == "initContainers" && i < len(pod.InitContainers):
		return pod.InitContainers[i].Name
	}
	return ""
}

// trainerOrigin returns the path if spec.trainer sets this part of the container.
func trainerOrigin(job *trainer.TrainJob, step *jobsetv1alpha2.ReplicatedJob, container, part string) *field.Path {
	t := job.Spec.Trainer
	isTrainer := step.Template.Labels[constants.LabelTrainJobAncestor] == constants.AncestorTrainer || step.Name == constants.Node
	if t == nil || !isTrainer || container != constants.Node {
		return nil
	}
	set := map[string]bool{
		"image": t.Image != nil, "command": t.Command != nil, "args": t.Args != nil,
		"env": len(t.Env) > 0, "resources": t.ResourcesPerNode != nil,
	}
	if !set[part] {
		return nil
	}
	if part == "resources" {
		part = "resourcesPerNode"
	}
	return field.NewPath("spec", "trainer", part)
}

// patchOrigin returns the path if a patch sets the field of the replicated job's pods, or the part of the container.
func patchOrigin(patch trainer.RuntimePatch, index int, step, name, container, part string) *field.Path {
	for j, patched := range trainjobs.PatchedJobs(patch) {
		path := replicatedJobsPath(index).Index(j)
		if patched.Name != step {
			continue
		}
		if name == "metadata" && patched.Template != nil && patched.Template.Spec != nil && patched.Template.Spec.Template != nil &&
			patched.Template.Spec.Template.Metadata != nil {
			return path.Child("template", "spec", "template", "metadata", part)
		}
		pod := patchedPod(patched)
		if pod == nil {
			continue
		}
		if container == "" {
			if isSet(*pod, name) {
				return podPath(path).Child(name)
			}
			continue
		}
		containers := map[string][]trainer.ContainerPatch{"containers": pod.Containers, "initContainers": pod.InitContainers}[name]
		for k, c := range containers {
			if c.Name == container && isSet(c, part) {
				return podPath(path).Child(name).Index(k).Child(part)
			}
		}
	}
	return nil
}

// isSet says whether a struct has a value in the field of this name in JSON.
func isSet(object any, name string) bool {
	value := reflect.ValueOf(object)
	for i := range value.NumField() {
		tag, _, _ := strings.Cut(value.Type().Field(i).Tag.Get("json"), ",")
		if tag == name {
			return !value.Field(i).IsZero()
		}
	}
	return false
}

// guessedField guesses from the message of an admission plugin which field of a pod it is about, and returns its path.
func guessedField(message string) string {
	for _, plugin := range []struct{ words, path string }{
		{"service account", "serviceAccountName"},
		{"PriorityClass", "priorityClassName"},
		{"violates PodSecurity", "securityContext"},
		{"exceeded quota", "containers[0].resources"},
		{"failed quota", "containers[0].resources"},
		{"per Container", "containers[0].resources"},
		{"per Pod", "containers[0].resources"},
	} {
		if strings.Contains(message, plugin.words) {
			return plugin.path
		}
	}
	return ""
}
