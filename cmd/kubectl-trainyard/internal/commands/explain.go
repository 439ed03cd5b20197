// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/printing"
	"github.com/trainyard/trainyard/views/explanation"
)

const explainExamples = `  # Where a job is and why, or why it waits
  kubectl trainyard explain llama-finetune

  # The same, with the state of each worker
  kubectl trainyard explain llama-finetune -o wide

  # Whether each worker would take a job like it now
  kubectl get trainjob llama-finetune -o yaml | kubectl trainyard simulate -f -

  # What is on record, for programs
  kubectl trainyard explain llama-finetune -o jsonpath='{.spec.cluster}'`

type explainOptions struct {
	streams
	factory *Factory
	output  *printing.Flags
}

func newExplain(f *Factory, s streams) *cobra.Command {
	o := explainOptions{streams: s, factory: f, output: printing.NewFlags()}
	cmd := &cobra.Command{
		Use:   "explain TRAINJOB",
		Short: "Say where a TrainJob runs and why, or why it waits",
		Long: `Say on which worker a TrainJob is, and why it is there. If the TrainJob waits, say why each of the workers does not take it, what would
make it fit, and how many jobs come before it. If the job has a copy that makes no progress, say why, and what to do.

This needs the rights to get TrainJobs and Dispatches. The position is printed only with the rights to list Dispatches and
TrainJobs in all namespaces, the policy only with the rights to list DispatchPolicies and get Namespaces, and warnings only with the
right to list Events. -o json and the other formats
print the Dispatch.`,
		Example:           explainExamples,
		ValidArgsFunction: completer{f}.job,
		Args:              onlyArg("explain"),
		RunE: namedJob.arguments(func(cmd *cobra.Command, args []string) error {
			if err := o.output.Check(); err != nil {
				return err
			}
			return o.run(cmd.Context(), args[0])
		}),
	}
	addOutput(cmd, o.output)
	return cmd
}

func (o *explainOptions) run(ctx context.Context, name string) error {
	h, observation, err := o.factory.observe(ctx, name)
	if err != nil {
		return err
	}
	if !o.output.ForPeople() {
		if observation.Dispatch == nil {
			return fmt.Errorf("TrainJob %q has no Dispatch to print; leave out --output to see why", name)
		}
		observation.Dispatch.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("Dispatch"))
		return o.output.PrintObjects(o.Out, []runtime.Object{observation.Dispatch})
	}
	observation.Complete(ctx, h)
	if observation.State() == explanation.Waiting {
		if list, err := readList(ctx, h, ""); err == nil {
			observation.Place, observation.Length = list.Find(observation.Job.GetUID())
		}
	}
	return explanation.Describe(o.Out, observation, o.output.Wide())
}
