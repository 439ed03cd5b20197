// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"strconv"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// Surprises warns of a TrainJob that runs, but not as its owner may think. What the runtime framework makes of job and
// runtime was read in trainer v2.3.0, and is tried in TestSurprises.
func (c *Checker) Surprises(job *trainer.TrainJob, r *Runtime) (found Result) {
	nodes := nodesOf(job, r.spec.MLPolicy)
	if kind := rendezvousOf(r.spec.MLPolicy); kind != "" && job.Spec.Trainer == nil && nodes > 1 && trainerStep(r) != nil {
		found.Warn("spec.trainer: it is absent, so the %d pods get no rendezvous settings of the %s runtime %s, and each of them trains "+
			"as if it were alone: set it, to {} at least", nodes, kind, r)
	}
	if policy := r.spec.MLPolicy; policy != nil && policy.MPI != nil && ptr.Deref(policy.NumNodes, 1) > 1 {
		if step := trainerStep(r); step != nil && step.Name != constants.Node {
			found.Warn("spec.runtimeRef: numNodes of the MPI runtime %s counts the pods of replicated job %q, so the job gets %d of them: say "+
				"1 there, and set spec.trainer.numNodes, or parallelism of replicated job %q", r, step.Name, *policy.NumNodes, constants.Node)
		}
	}
	found.warnOfPorts(job, r)
	for i := range r.spec.Template.Spec.ReplicatedJobs {
		step := &r.spec.Template.Spec.ReplicatedJobs[i]
		pods := ptr.Deref(step.Template.Spec.Parallelism, 1)
		if wanted := ptr.Deref(step.Template.Spec.Completions, pods); !isTrainer(step) && wanted > pods {
			found.Warn("spec.runtimeRef: replicated job %q of %s has completions %d and parallelism %d, and a TrainJob makes both %d: "+
				"only %d of the %d pods run", step.Name, r, wanted, pods, pods, pods, wanted)
		}
	}
	return found
}

// warnOfPorts warns of a port that the framework replaces by its own: it takes two ports without a name for one.
func (a *Result) warnOfPorts(job *trainer.TrainJob, r *Runtime) {
	step := trainerStep(r)
	if step == nil || job.Spec.Trainer == nil || rendezvousOf(r.spec.MLPolicy) == "" {
		return
	}
	for _, container := range step.Template.Spec.Template.Spec.Containers {
		if container.Name != constants.Node {
			continue
		}
		for _, port := range container.Ports {
			if port.ContainerPort == constants.ContainerTrainerPort {
				return // It is found first, or there is nothing to add.
			}
			if port.Name == "" {
				a.Warn("spec.runtimeRef: port %d of container %q of %s has no name, so the port of the rendezvous, %d, takes its place: give it "+
					"a name", port.ContainerPort, container.Name, r, constants.ContainerTrainerPort)
				return
			}
		}
	}
}

// SurprisesElsewhere warns of what surprises only on the hub: JobSets of copies have no TTL, and where a worker has a runtime of
// its own with one, the Kubeflow Trainer there forgets that a job has failed when the JobSet is deleted.
func SurprisesElsewhere(r *Runtime) (found Result) {
	if ttl := r.spec.Template.Spec.TTLSecondsAfterFinished; ttl != nil {
		found.Warn("spec.runtimeRef: %s has ttlSecondsAfterFinished %d, which does not go to workers: the retention of the DispatchPolicy deletes "+
			"ended copies. Where a worker with the Kubeflow Trainer has a runtime of its own with that field, a failed job runs again and again: "+
			"remove it there", r, *ttl)
	}
	return found
}

// ServiceSurprise warns of a Service of the subdomain's name that is there already. JobSet takes it for its own, and
// pods find each other only by a headless one. A Service that may not be read is no surprise.
func (c *Checker) ServiceSurprise(ctx context.Context, job *trainer.TrainJob, r *Runtime) (found Result) {
	name := job.Name
	if network := r.spec.Template.Spec.Network; network != nil {
		if !ptr.Deref(network.EnableDNSHostnames, true) {
			return found
		}
		if network.Subdomain != "" {
			name = network.Subdomain
		}
	}
	service := &corev1.Service{}
	if err := c.live.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: name}, service); err != nil {
		return found
	}
	if service.Spec.ClusterIP != corev1.ClusterIPNone {
		found.Warn("metadata.name: there is a Service %q in namespace %q that is not headless. JobSet uses it, and the pods of the job do "+
			"not find each other by their host names: use another name, or delete the Service", name, job.Namespace)
	}
	return found
}

// rendezvousOf is the framework whose settings a runtime gives the pods, so that they find each other. MPI is not among
// them: its launcher has a list of hosts in any case.
func rendezvousOf(policy *trainer.MLPolicy) string {
	switch {
	case policy == nil:
		return ""
	case policy.Torch != nil:
		return "torch"
	case policy.JAX != nil:
		return "jax"
	case policy.XGBoost != nil:
		return "xgboost"
	}
	return ""
}

// nodesOf is how many pods the trainer of a job has.
func nodesOf(job *trainer.TrainJob, policy *trainer.MLPolicy) int32 {
	if job.Spec.Trainer != nil && job.Spec.Trainer.NumNodes != nil {
		return *job.Spec.Trainer.NumNodes
	}
	if policy == nil {
		return 1
	}
	return ptr.Deref(policy.NumNodes, 1)
}

// trainerStep is the replicated job that is the trainer, nil if there is none.
func trainerStep(r *Runtime) *jobsetv1alpha2.ReplicatedJob {
	for i := range r.spec.Template.Spec.ReplicatedJobs {
		if step := &r.spec.Template.Spec.ReplicatedJobs[i]; isTrainer(step) {
			return step
		}
	}
	return nil
}

func isTrainer(step *jobsetv1alpha2.ReplicatedJob) bool {
	return step.Template.Labels[constants.LabelTrainJobAncestor] == constants.AncestorTrainer
}

// processWarnings warns of nodes with several GPUs on which torchrun starts another number of processes. The torch
// policy counts processes from spec.trainer.resourcesPerNode alone if the job has it, and without GPUs there it counts
// CPUs, or one. The GPUs of the runtime stay, and most of them have no process.
func processWarnings(job *trainer.TrainJob, made *built) (found Result) {
	if made == nil || job.Spec.Trainer != nil && job.Spec.Trainer.NumProcPerNode != nil {
		return found // The job's user has decided.
	}
	jobSet, err := typed(made.jobSet)
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
