// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/hub"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/manifests"
)

// check finds faults that an API server or the hub's manager would refuse in the files' objects, and sets defaults.
func check(objects *manifests.Objects) error {
	if err := objects.Duplicates(); err != nil {
		return err
	}
	jobs, at := manifests.Of[*trainer.TrainJob](objects)
	for i, job := range jobs {
		if job.Spec.RuntimeRef.Name == "" {
			return fmt.Errorf("%s: spec.runtimeRef.name: it is required", at[i])
		}
	}
	policies, at := manifests.Of[*v1alpha1.DispatchPolicy](objects)
	for i, policy := range policies {
		if faults := policyFaults(policy); len(faults) > 0 {
			return fmt.Errorf("%s: %s", at[i], strings.Join(faults, "\n"+at[i]+": "))
		}
	}
	cluster, _ := manifests.Of[*trainer.ClusterTrainingRuntime](objects)
	for _, runtime := range cluster {
		setDefaults(&runtime.Spec)
	}
	namespaced, _ := manifests.Of[*trainer.TrainingRuntime](objects)
	for _, runtime := range namespaced {
		setDefaults(&runtime.Spec)
	}
	return nil
}

func policyFaults(policy *v1alpha1.DispatchPolicy) []string {
	var faults []string
	for _, fault := range compiled(policy).Faults() {
		faults = append(faults, fault.Error())
	}
	for i, score := range policy.Spec.Scoring {
		faults = append(faults, enum(fmt.Sprintf("spec.scoring[%d].name", i), string(score.Name),
			v1alpha1.ScoreLeastAllocated, v1alpha1.ScoreMostAllocated, v1alpha1.ScorePrice, v1alpha1.ScoreQueueDepth, v1alpha1.ScoreSticky,
			v1alpha1.ScorePreference)...)
	}
	if value := policy.Spec.Queueing; value != "" {
		faults = append(faults, enum("spec.queueing", string(value), v1alpha1.BestEffortFIFO, v1alpha1.StrictFIFO)...)
	}
	if value := policy.Spec.Preemption; value != "" {
		faults = append(faults, enum("spec.preemption", string(value), v1alpha1.PreemptNever, v1alpha1.PreemptLowerPriority)...)
	}
	if value := policy.Spec.HubFlavors; value != "" {
		faults = append(faults, enum("spec.hubFlavors", string(value),
			v1alpha1.HubFlavorsIgnore, v1alpha1.HubFlavorsRequire, v1alpha1.HubFlavorsPropagate)...)
	}
	return faults
}

// enum checks a value that must be one of the allowed values.
func enum[T ~string](field, value string, allowed ...T) []string {
	names := make([]string, len(allowed))
	for i := range allowed {
		names[i] = string(allowed[i])
	}
	if slices.Contains(names, value) {
		return nil
	}
	return []string{fmt.Sprintf("%s: it is %q, and has to be one of %s%s", field, value, strings.Join(names, ", "), hub.DidYouMean(value, names))}
}

// setDefaults sets the defaults of the trainer's CRDs on which a demand depends, as an API server does.
func setDefaults(spec *trainer.TrainingRuntimeSpec) {
	if spec.MLPolicy == nil {
		return
	}
	if mpi := spec.MLPolicy.MPI; mpi != nil {
		setDefault(&mpi.NumProcPerNode, 1)
		setDefault(&mpi.MPIImplementation, trainer.MPIImplementationOpenMPI)
		setDefault(&mpi.SSHAuthMountPath, "/root/.ssh")
		setDefault(&mpi.RunLauncherAsNode, false)
	}
	if flux := spec.MLPolicy.Flux; flux != nil {
		setDefault(&flux.NumProcPerNode, 1)
	}
}

func setDefault[T any](field **T, value T) {
	if *field == nil {
		*field = ptr.To(value)
	}
}
