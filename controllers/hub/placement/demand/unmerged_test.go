// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
)

const tunedMPI = `
mlPolicy: {numNodes: 2, mpi: {numProcPerNode: 1, mpiImplementation: OpenMPI, sshAuthMountPath: /home/u/.ssh, runLauncherAsNode: true}}
template:
  spec:
    replicatedJobs:
    - name: launcher
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec: {template: {spec: {containers: [{name: node, image: i, resources: {limits: {nvidia.com/gpu: 1}}}]}}}
    - name: node
      template:
        spec: {template: {spec: {containers: [{name: node, image: i, resources: {limits: {nvidia.com/gpu: 4}}}]}}}
`

const withoutPolicy = `
template:
  spec:
    replicatedJobs:
    - name: node
      template:
        metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}}
        spec: {template: {spec: {containers: [{name: node, image: i, resources: {requests: {cpu: "1"}}}]}}}
`

// TestUnmergedRequests compares the requests that Kubeflow Trainer 2.3 makes of runtime and job with those that 2.2
// makes, and so a Kueue that was built with it.
func TestUnmergedRequests(t *testing.T) {
	d := newTestDeriver(t)
	for name, test := range map[string]struct {
		reason           string
		runtime          string
		resources        *corev1.ResourceRequirements
		merged, unmerged map[string]corev1.ResourceList
	}{
		"CPUOnGPURuntime": {
			reason: "the GPUs of the runtime are charged by one of them, those of a sidecar by both", runtime: tuned,
			resources: &corev1.ResourceRequirements{Requests: list("cpu", "4")},
			merged: map[string]corev1.ResourceList{
				"dataset-initializer": list("cpu", "2"), "node": list("nvidia.com/gpu", "2", "memory", "1Gi", "cpu", "4500m"),
			},
			unmerged: map[string]corev1.ResourceList{"node": list("nvidia.com/gpu", "0", "memory", "0", "cpu", "4500m")},
		},
		"Same": {
			reason: "the job gives all that the runtime gives", runtime: tuned,
			resources: &corev1.ResourceRequirements{Limits: list("nvidia.com/gpu", "8"), Requests: list("memory", "2Gi")},
			merged: map[string]corev1.ResourceList{
				"dataset-initializer": list("cpu", "2"), "node": list("nvidia.com/gpu", "8", "memory", "2Gi", "cpu", "500m"),
			},
		},
		"None": {
			reason: "a job that asks for nothing gets what the runtime gives", runtime: tuned,
			merged: map[string]corev1.ResourceList{
				"dataset-initializer": list("cpu", "2"), "node": list("nvidia.com/gpu", "2", "memory", "1Gi", "cpu", "500m"),
			},
		},
		"Empty": {
			reason: "neither of them takes it for an answer", runtime: tuned, resources: &corev1.ResourceRequirements{},
			merged: map[string]corev1.ResourceList{
				"dataset-initializer": list("cpu", "2"), "node": list("nvidia.com/gpu", "2", "memory", "1Gi", "cpu", "500m"),
			},
		},
		"MPI": {
			reason: "the nodes of a launcher that is one of them get the resources too", runtime: tunedMPI,
			resources: &corev1.ResourceRequirements{Requests: list("cpu", "3")},
			merged: map[string]corev1.ResourceList{
				"launcher": list("nvidia.com/gpu", "1", "cpu", "3"), "node": list("nvidia.com/gpu", "4", "cpu", "3"),
			},
			unmerged: map[string]corev1.ResourceList{
				"launcher": list("nvidia.com/gpu", "0", "cpu", "3"), "node": list("nvidia.com/gpu", "0", "cpu", "3"),
			},
		},
		"WithoutPolicy": {
			reason: "Trainer 2.3 looks at the job only where the runtime has an mlPolicy", runtime: withoutPolicy,
			resources: &corev1.ResourceRequirements{Limits: list("nvidia.com/gpu", "8")},
			merged:    map[string]corev1.ResourceList{"node": list("cpu", "1")},
			unmerged:  map[string]corev1.ResourceList{"node": list("cpu", "0", "nvidia.com/gpu", "8")},
		},
	} {
		t.Run(name, func(t *testing.T) {
			var spec trainer.TrainingRuntimeSpec
			check.Must(t, yaml.UnmarshalStrict([]byte(test.runtime), &spec))
			got, err := d.derive(&trainer.TrainJob{Spec: trainer.TrainJobSpec{
				RuntimeRef: trainer.RuntimeRef{Name: "r", Kind: new("ClusterTrainingRuntime"), APIGroup: new("trainer.kubeflow.org")},
				Trainer:    &trainer.Trainer{ResourcesPerNode: test.resources},
			}}, &spec)
			check.Must(t, err)
			merged, unmerged := map[string]corev1.ResourceList{}, map[string]corev1.ResourceList(nil)
			for i := range got.PodSets {
				set := &got.PodSets[i]
				if merged[set.Name] = set.Requests; set.UnmergedRequests != nil {
					if unmerged == nil {
						unmerged = map[string]corev1.ResourceList{}
					}
					unmerged[set.Name] = set.UnmergedRequests
				}
			}
			check.Diff(t, test.merged, merged, fmt.Sprintf("requests: %s", test.reason))
			check.Diff(t, test.unmerged, unmerged, fmt.Sprintf("unmerged requests: %s", test.reason))
		})
	}
}

// TestUnmerged: on a worker that does not merge resources, its pods request what the job says, and quota may count what both
// say. Where it is not known what the worker does, the larger amounts count.
func TestUnmerged(t *testing.T) {
	merged, replaced := list("nvidia.com/gpu", "8", "cpu", "1"), list("nvidia.com/gpu", "0", "cpu", "4")
	plain := v1alpha1.PodSet{Name: "prepare", Requests: list("cpu", "2")}
	podSets := []v1alpha1.PodSet{plain, {Name: "node", Requests: merged, UnmergedRequests: replaced}}
	for name, test := range map[string]struct {
		merging dispatch.Merging
		podSets []v1alpha1.PodSet
		want    []v1alpha1.PodSet
	}{
		"Replaces":   {dispatch.Replaces, podSets, []v1alpha1.PodSet{plain, {Name: "node", Requests: list("cpu", "4"), MergedRequests: merged}}},
		"MayReplace": {dispatch.MayReplace, podSets, []v1alpha1.PodSet{plain, {Name: "node", Requests: list("nvidia.com/gpu", "8", "cpu", "4"), MergedRequests: merged, UnmergedRequests: replaced}}},
		"Merges":     {dispatch.Merges, podSets, nil},
		"Same":       {dispatch.Replaces, []v1alpha1.PodSet{plain}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			before := []v1alpha1.PodSet{*podSets[0].DeepCopy(), *podSets[1].DeepCopy()}
			got, changed := Unmerged(test.podSets, test.merging)
			check.Equal(t, test.want != nil, changed, "changed")
			if changed {
				check.Diff(t, test.want, got, "PodSets")
			}
			check.Diff(t, before, podSets, "the PodSets of the job")
		})
	}
}
