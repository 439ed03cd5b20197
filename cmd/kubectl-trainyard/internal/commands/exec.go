// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"

	"github.com/spf13/cobra"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/remotecommand"
	clientexec "k8s.io/client-go/util/exec"
	"k8s.io/kubectl/pkg/cmd/exec"
)

const execExamples = `  # A shell on the first node of a job
  kubectl trainyard exec llama-finetune -it -- bash

  # What the GPUs of the second node do
  kubectl trainyard exec llama-finetune --node 1 -- nvidia-smi`

type execOptions struct {
	jobOptions
	stdin, tty bool
}

func newExec(f *Factory, s streams) *cobra.Command {
	o := execOptions{jobOptions: jobOptions{streams: s, factory: f}}
	cmd := &cobra.Command{
		Use:   "exec TRAINJOB -- COMMAND [ARGUMENT...]",
		Short: "Run a command in a container of a TrainJob",
		Long: `Run a command in a container of a TrainJob, as "kubectl exec" does, on whichever cluster it is. The exit code is the command's.

In a job that Trainyard has dispatched, it runs through the gateway of the hub, with your rights on the hub: to create pods/exec. The admin
of the worker has to allow it.`,
		Example:           execExamples,
		ValidArgsFunction: completer{f}.job,
		Args: func(cmd *cobra.Command, args []string) error {
			if at := cmd.ArgsLenAtDash(); at != 1 || len(args) == 1 {
				return errors.New("name one TrainJob, and after -- the command: " + displayName + " exec TRAINJOB -- COMMAND")
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, args []string) error {
			name, err := namedJob.name(args[0])
			if err != nil {
				return err
			}
			if err := validateNode(&o.Options); err != nil {
				return err
			}
			return o.run(cmd.Context(), name, args[1:])
		},
	}
	addNodeFlags(cmd, &o.Options)
	cmd.Flags().BoolVarP(&o.stdin, "stdin", "i", false, "pass standard input on to the command")
	cmd.Flags().BoolVarP(&o.tty, "tty", "t", false, "give the command a terminal")
	addManagerNamespace(cmd.Flags(), &o.managerNamespace)
	completeNode(cmd, f)
	return cmd
}

func (o *execOptions) run(ctx context.Context, name string, command []string) error {
	place, kubectl, err := o.place(ctx, name)
	if err != nil {
		return err
	}
	pod, container, err := place.Running(o.Options)
	if err != nil {
		return err
	}
	client, err := kubectl.KubernetesClientSet()
	if err != nil {
		return err
	}
	config, err := kubectl.ToRESTConfig()
	if err != nil {
		return err
	}
	run := exec.ExecOptions{
		StreamOptions: exec.StreamOptions{
			Namespace: o.Job.Namespace, PodName: pod, ContainerName: container, Stdin: o.stdin, TTY: o.tty, IOStreams: o.raw,
		},
		Command: command, Executor: &executor{ctx: ctx}, PodClient: client.CoreV1(), Config: config,
	}
	var ended clientexec.CodeExitError
	if err = run.Run(); errors.As(err, &ended) {
		return exitCode(ended.Code)
	} else if err != nil {
		return fmt.Errorf("run %q in container %q of pod %q: %w", command[0], container, pod, err)
	}
	return nil
}

// executor ends a command with ctx.
type executor struct {
	exec.DefaultRemoteExecutor
	ctx context.Context // kubectl's options have none.
}

// Execute runs the command on the URL.
func (e *executor) Execute(
	to *url.URL, config *rest.Config, stdin io.Reader, stdout, stderr io.Writer, tty bool, sizes remotecommand.TerminalSizeQueue,
) error {
	return e.ExecuteWithContext(e.ctx, to, config, stdin, stdout, stderr, tty, sizes)
}
