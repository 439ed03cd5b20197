// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"strconv"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// processWarnings warns of nodes with several GPUs on which torchrun starts another number of processes. The torch
// policy counts processes from spec.trainer.resourcesPerNode alone if the job has it, and without GPUs there it counts
// CPUs, or one. The GPUs of the runtime stay, and most of them have no process.
func processWarnings(job *trainer.TrainJob, built *unstructured.Unstructured) (found Result) {
	if built == nil || job.Spec.Trainer != nil && job.Spec.Trainer.NumProcPerNode != nil {
		return found // The job's user has decided.
	}
	jobSet, err := typed(built)
	if err != nil {
		return found // The dry run says so.
	}
	for i := range jobSet.Spec.ReplicatedJobs {
		step := &jobSet.Spec.ReplicatedJobs[i].Template
		if step.Labels[constants.LabelTrainJobAncestor] != constants.AncestorTrainer {
			continue
		}
		for j := range step.Spec.Template.Spec.Containers {
			container := &step.Spec.Template.Spec.Containers[j]
			gpus, processes := trainerruntime.GetNumGPUPerNode(&container.Resources), processesOf(container)
			if gpus > 1 && processes > 0 && processes != gpus {
				found.Warn("spec.trainer.numProcPerNode: each node has %d GPUs, and torchrun's number of processes there is %d: it is "+
					"counted from spec.trainer.resourcesPerNode, which names no GPUs; set numProcPerNode to %d, or name the GPUs in "+
					"resourcesPerNode too", gpus, processes, gpus)
			}
		}
	}
	return found
}

// processesOf is how many processes torchrun starts in a container, 0 if that is not a number, as when torchrun counts
// the GPUs itself.
func processesOf(container *corev1.Container) int {
	for _, env := range container.Env {
		if env.Name == constants.TorchEnvNumProcPerNode {
			number, err := strconv.Atoi(env.Value)
			if err != nil {
				return 0
			}
			return number
		}
	}
	return 0
}
