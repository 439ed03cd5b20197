// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/cmd/get"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const podsExamples = `  # The pods of a job, and the worker that runs them
  kubectl trainyard pods llama-finetune

  # With their nodes and addresses, and as they change
  kubectl trainyard pods llama-finetune -o wide -w`

type podsOptions struct {
	jobOptions
	get *get.GetOptions
}

func newPods(f *Factory, s streams) *cobra.Command {
	o := podsOptions{jobOptions: jobOptions{streams: s, factory: f}, get: get.NewGetOptions(displayName, s.IOStreams)}
	cmd := &cobra.Command{
		Use:   "pods TRAINJOB",
		Short: "Print the pods of a TrainJob",
		Long: `Print the pods of a TrainJob, as "kubectl get pods" does, on whichever cluster they are.

The pods of a job that Trainyard has dispatched are read through the gateway of the hub, with your rights on the hub. With a kubeconfig of
"kubectl trainyard kubeconfig", "kubectl get pods" prints them too, and those of all other jobs.`,
		Example:           podsExamples,
		ValidArgsFunction: completer{f}.job,
		Args:              onlyArg("pods"),
		RunE:              namedJob.arguments(func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) }),
	}
	o.get.PrintFlags.AddFlags(cmd)
	cmd.Flags().BoolVarP(&o.get.Watch, "watch", "w", false, "print the pods again when they change")
	addManagerNamespace(cmd.Flags(), &o.managerNamespace)
	return cmd
}

func (o *podsOptions) run(cmd *cobra.Command, name string) error {
	place, kubectl, err := o.place(cmd.Context(), name)
	if err != nil {
		return err
	}
	if why := place.WhyNone(); why != "" {
		if err := o.remark("%s", why); err != nil || !o.get.Watch {
			return err
		}
	}
	if columns := o.get.PrintFlags.HumanReadableFlags.ColumnLabels; place.Elsewhere && len(*columns) == 0 {
		*columns = []string{v1alpha1.LabelCluster}
	}
	o.get.LabelSelector = place.Selector
	resources := []string{"pods"}
	if err := o.get.Complete(kubectl, cmd, resources); err != nil {
		return err
	}
	if err := o.get.Validate(); err != nil {
		return err
	}
	return o.get.Run(kubectl, resources)
}
