// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	jobsetplugin "github.com/kubeflow/trainer/v2/pkg/runtime/framework/plugins/jobset"
	"k8s.io/utils/ptr"
	jobsetapply "sigs.k8s.io/jobset/client-go/applyconfiguration/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/dependencies"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// defaultAccount is the ServiceAccount that each namespace has.
const defaultAccount = "default"

// dependenciesOf returns the objects of some kinds that the pods of a job name and that something reads, each one once.
// It applies what Kubeflow Trainer writes into the JobSet only when it builds it: the environment and the Secrets of the
// TrainJob. So it changes jobSet. needed are those without which pods do not run, or images may not be pulled. What the framework makes itself beside the JobSet is not among them.
func dependenciesOf(
	job *trainer.TrainJob, info *trainerruntime.Info, jobSet *jobsetapply.JobSetSpecApplyConfiguration, kinds []v1alpha1.DependencyKind,
) (named, needed []v1alpha1.Dependency, err error) {
	builder := jobsetplugin.NewBuilder(jobsetapply.JobSet(job.Name, job.Namespace).WithSpec(jobSet))
	for _, step := range builder.Initializer(job).Trainer(info, job).Spec.ReplicatedJobs {
		pod, err := podSpec(step.Template.Spec.Template.Spec)
		if err != nil {
			return nil, nil, fmt.Errorf("read pod template of replicated job %q: %w", ptr.Deref(step.Name, ""), err)
		}
		for _, reference := range dependencies.OfPod(ptr.Deref(step.Name, ""), pod) {
			one := v1alpha1.Dependency{Kind: string(reference.Kind), Name: reference.Name}
			if reference.Need == dependencies.Unused || !slices.Contains(kinds, one.Of()) ||
				reference.Kind == dependencies.ServiceAccount && reference.Name == defaultAccount {
				continue
			}
			if !slices.Contains(named, one) {
				named = append(named, one)
			}
			if reference.Need != dependencies.Optional && !slices.Contains(needed, one) {
				needed = append(needed, one)
			}
		}
	}
	if len(named) > v1alpha1.MaxDependencies {
		return nil, nil, tooLarge("the pods name %d ConfigMaps, Secrets and ServiceAccounts, and at most %d "+
			"can be brought to a worker: name fewer, or leave spec.propagate.dependencies out of the job's DispatchPolicy",
			len(named), v1alpha1.MaxDependencies)
	}
	return named, needed, nil
}
