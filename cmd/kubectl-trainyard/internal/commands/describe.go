// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/spf13/cobra"
	"k8s.io/kubectl/pkg/cmd/describe"
)

type describeOptions struct{ jobOptions }

func newDescribe(f *Factory, s streams) *cobra.Command {
	o := describeOptions{jobOptions{streams: s, factory: f}}
	cmd := &cobra.Command{
		Use:   "describe TRAINJOB",
		Short: "Print a TrainJob, and what has happened to it on the hub and on its worker",
		Long: `Print a TrainJob with its Events, as "kubectl describe" does. The Events of its copy on a worker are read through the gateway of the
hub, with your rights on the hub.

"kubectl trainyard explain" says where the job is and why.`,
		ValidArgsFunction: completer{f}.job,
		Args:              onlyArg("describe"),
		RunE:              namedJob.arguments(func(cmd *cobra.Command, args []string) error { return o.run(cmd, args[0]) }),
	}
	addManagerNamespace(cmd.Flags(), &o.managerNamespace)
	return cmd
}

func (o *describeOptions) run(cmd *cobra.Command, name string) error {
	_, kubectl, err := o.place(cmd.Context(), name)
	if err != nil {
		return err
	}
	kind := trainer.SchemeGroupVersion.WithResource("trainjobs").GroupResource().String()
	what, err := describe.NewDescribeFlags(kubectl, o.IOStreams).ToOptions(displayName, []string{kind, name})
	if err != nil {
		return err
	}
	return what.Run()
}
