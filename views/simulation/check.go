// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/config"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/internal/hub"
)

// prepare finds faults that an API server or the hub's manager would refuse in the files' objects, and sets defaults.
func prepare(files *Files) error {
	if err := files.duplicates(); err != nil {
		return err
	}
	jobs, at := Of[*trainer.TrainJob](files)
	for i, job := range jobs {
		if job.Spec.RuntimeRef.Name == "" {
			return fmt.Errorf("%s: spec.runtimeRef.name: it is required", at[i])
		}
	}
	policies, at := Of[*v1alpha1.DispatchPolicy](files)
	for i, policy := range policies {
		faults, err := policyFaults(policy)
		if err != nil {
			return err
		}
		if len(faults) > 0 {
			return fmt.Errorf("%s: %s", at[i], strings.Join(faults, "\n"+at[i]+": "))
		}
	}
	cluster, _ := Of[*trainer.ClusterTrainingRuntime](files)
	for _, runtime := range cluster {
		setDefaults(&runtime.Spec)
	}
	namespaced, _ := Of[*trainer.TrainingRuntime](files)
	for _, runtime := range namespaced {
		setDefaults(&runtime.Spec)
	}
	return nil
}

// policyFaults returns what the hub's manager and, as far as it is about names of values, its API server would refuse.
func policyFaults(policy *v1alpha1.DispatchPolicy) ([]string, error) {
	var faults []string
	for _, fault := range compiled(policy, accelerators.Table{}).Faults() {
		faults = append(faults, fault.Error())
	}
	schema, err := config.SpecOf("dispatchpolicies")
	if err != nil {
		return nil, err
	}
	object, err := runtime.DefaultUnstructuredConverter.ToUnstructured(policy)
	if err != nil {
		return nil, fmt.Errorf("encode DispatchPolicy %q: %w", policy.Name, err)
	}
	return append(faults, valueFaults("spec", object["spec"], schema)...), nil
}

// valueFaults finds values that are not among those that a schema lists.
func valueFaults(path string, value any, schema *apiextensionsv1.JSONSchemaProps) (faults []string) {
	switch value := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if field, ok := schema.Properties[name]; ok {
				faults = append(faults, valueFaults(path+"."+name, value[name], &field)...)
			}
		}
	case []any:
		for i := range value {
			faults = append(faults, valueFaults(fmt.Sprintf("%s[%d]", path, i), value[i], schema.Items.Schema)...)
		}
	case string:
		var names []string
		for _, allowed := range schema.Enum {
			names = append(names, strings.Trim(string(allowed.Raw), `"`))
		}
		if names != nil && !slices.Contains(names, value) {
			faults = append(faults, fmt.Sprintf("%s: it is %q, and has to be one of %s%s", path, value, strings.Join(names, ", "), hub.DidYouMean(value, names)))
		}
	}
	return faults
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
