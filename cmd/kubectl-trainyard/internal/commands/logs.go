// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/joblogs"
)

const logsExamples = `  # What the first node of a job has printed
  kubectl trainyard logs llama-finetune

  # What it prints, from its start to the end of the job, restarts included
  kubectl trainyard logs llama-finetune -f

  # The last ten lines of each node
  kubectl trainyard logs llama-finetune --all-nodes --tail 10

  # What the download of the model says
  kubectl trainyard logs llama-finetune --step model-initializer`

type logsOptions struct{ jobOptions }

func newLogs(f *Factory, s streams) *cobra.Command {
	o := logsOptions{jobOptions{streams: s, factory: f, Options: joblogs.Options{Tail: -1}}}
	cmd := &cobra.Command{
		Use:   "logs TRAINJOB",
		Short: "Print the log of a TrainJob",
		Long: `Print what a step of a TrainJob has printed on one node, or on all of them, in its latest try.

With --follow, wait for the step to start, go on when a container, a pod or the whole job is restarted, and end with the job. The
exit code is 0 then, also if the job has failed; standard error says how the job has ended.

The pods of a job that Trainyard has dispatched are on its worker. They are read through the gateway of the hub, with your rights on the
hub; "kubectl trainyard kubeconfig" says which credentials that takes. With the context of the worker, no gateway is needed.

This needs the rights to get TrainJobs, to list pods and to get pods/log; with --follow also to list and watch TrainJobs and pods.`,
		Example:           logsExamples,
		ValidArgsFunction: completer{f}.job,
		Args:              onlyArg("logs"),
		RunE: namedJob.arguments(func(cmd *cobra.Command, args []string) error {
			if err := validateLogs(cmd, &o.Options); err != nil {
				return err
			}
			return o.run(cmd.Context(), args[0])
		}),
	}
	addLogsFlags(cmd, &o.Options)
	addManagerNamespace(cmd.Flags(), &o.managerNamespace)
	completeNode(cmd, f)
	return cmd
}

func completeNode(cmd *cobra.Command, f *Factory) {
	completeFlag(cmd, "step", completer{f}.steps)
	completeFlag(cmd, "container", completer{f}.containers)
}

func addLogsFlags(cmd *cobra.Command, o *joblogs.Options) {
	addNodeFlags(cmd, o)
	flags := cmd.Flags()
	flags.BoolVar(&o.AllNodes, "all-nodes", false, "print the logs of all nodes, with [STEP-NODE] before each line")
	flags.BoolVarP(&o.Follow, "follow", "f", false, "wait for the step to start, and print until the job has ended")
	flags.BoolVarP(&o.Previous, "previous", "p", false, "print the log of the try before: of the container, or of the "+
		"pod that was replaced")
	flags.DurationVar(&o.Since, "since", 0, "print only what is newer than this, such as 5s, 2m or 3h")
	flags.Int64Var(&o.Tail, "tail", o.Tail, "print only so many `lines` at the end; -1: all")
	flags.BoolVar(&o.Timestamps, "timestamps", false, "print the time of each line before it")
}

// addNodeFlags adds the flags that select one container of a job.
func addNodeFlags(cmd *cobra.Command, o *joblogs.Options) {
	flags := cmd.Flags()
	flags.StringVar(&o.Step, "step", "", "`step`: dataset-initializer, model-initializer, launcher, trainer, or what the runtime has (default: launcher if there is one, else trainer)")
	flags.Int32Var(&o.Node, "node", 0, "`node` of the step, counted from 0")
	flags.StringVarP(&o.Container, "container", "c", "", "`container` of the pod (default: the one of the step)")
}

// validateLogs checks the flags before any request to a cluster.
func validateLogs(cmd *cobra.Command, o *joblogs.Options) error {
	switch {
	case o.Follow && o.Previous:
		return errors.New("--previous prints the log of something that has ended: use it without --follow")
	case o.AllNodes && cmd.Flags().Changed("node"):
		return errors.New("--node is one node and --all-nodes are all: use one of the two")
	case o.Tail < -1:
		return fmt.Errorf("--tail is %d: must be a number of lines, or -1 for all", o.Tail)
	case o.Since < 0 || cmd.Flags().Changed("since") && o.Since < time.Second:
		return fmt.Errorf("--since is %s: must be a second or more", o.Since)
	}
	return validateNode(o)
}

func validateNode(o *joblogs.Options) error {
	if o.Node < 0 {
		return fmt.Errorf("--node is %d: nodes are counted from 0", o.Node)
	}
	return nil
}

func (o *logsOptions) run(ctx context.Context, name string) error {
	clients, err := o.clients(name)
	if err != nil {
		return err
	}
	return joblogs.Print(ctx, clients, joblogs.Streams{Out: o.raw.Out, ErrOut: o.ErrOut}, o.Options)
}
