// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"

	"github.com/trainyard/trainyard/cmd/internal/version"
)

const (
	// displayName is how users call the plugin.
	displayName = "kubectl trainyard"
	// completionBinary is the name of the program that kubectl runs to complete the plugin's arguments.
	completionBinary = "kubectl_complete-trainyard"
)

// Exit codes.
const (
	exitOK          = 0
	exitError       = 1
	exitWaits       = 2   // simulate: a job would wait.
	exitStays       = 2   // drain --wait: jobs stay on the worker.
	exitLeft        = 2   // import multikueue: something is left to do before the cut-over.
	exitInterrupted = 130 // A shell's code for a process that ended with SIGINT.
)

// exitCode is an answer, not an error: Main prints nothing for it.
type exitCode int

// Error implements error.
func (c exitCode) Error() string { return fmt.Sprintf("exit code %d", int(c)) }

// Main runs the plugin and returns its exit code. binary is the name of the called program.
func Main(ctx context.Context, std genericiooptions.IOStreams, binary string, args []string) int {
	if strings.TrimSuffix(binary, ".exe") == completionBinary {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	s := newStreams(std)
	root := newRoot(NewFactory(), s)
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	_ = s.status.Done() // The last words of the terminal are no reason for another exit code.
	var code exitCode
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case errors.As(err, &code):
		return int(code)
	case err != nil:
		fmt.Fprintln(s.ErrOut, "error:", strings.TrimSpace(err.Error())) // A kubelet's message ends with a line break.
		return exitError
	}
	return exitOK
}

func newRoot(f *Factory, s streams) *cobra.Command {
	root := &cobra.Command{
		Use:               "kubectl-trainyard",
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: displayName},
		Short:             "Work with TrainJobs",
		Args:              noCommand,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // kubectl has it.
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SuggestionsMinimumDistance = 2
	root.SetIn(s.In)
	root.SetOut(s.Out)
	root.SetErr(s.ErrOut)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w\nSee '%s --help'", err, cmd.CommandPath())
	})
	f.AddFlags(root.PersistentFlags())
	completeFlag(root, "namespace", completer{f}.namespaces)
	completeFlag(root, "context", completer{f}.contexts)
	root.AddCommand(newClusters(f, s), newBoard(f, s), newExplain(f, s), newLogs(f, s), newPods(f, s), newDescribe(f, s), newExec(f, s),
		newKubeconfig(f, s), newQueue(f, s), newRetry(f, s), newRuntimes(f, s), newSimulate(f, s), newTrace(f, s), newVersion(s),
		newCordon(f, s), newUncordon(f, s), newDrain(f, s), newForget(f, s), newAdopt(f, s), newRelease(f, s),
		newImport(f, s), newJoin(f, s), newLeave(f, s))
	return root
}

// noCommand refuses what is no command, and names those that may be meant.
func noCommand(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	hint := fmt.Sprintf("See '%s --help'", cmd.CommandPath())
	if meant := cmd.SuggestionsFor(args[0]); len(meant) > 0 {
		hint = fmt.Sprintf("Do you mean %s?", strings.Join(meant, ", "))
	}
	return fmt.Errorf("unknown command %q for %q\n%s", args[0], cmd.CommandPath(), hint)
}

func onlyArg(command string) func(*cobra.Command, []string) error {
	return func(_ *cobra.Command, args []string) error {
		if len(args) != 1 {
			return errors.New("name one TrainJob: " + displayName + " " + command + " TRAINJOB")
		}
		return nil
	}
}

func newVersion(s streams) *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print what this plugin was built from",
		Args:  cobra.NoArgs,
		RunE: func(*cobra.Command, []string) error {
			_, err := fmt.Fprintln(s.Out, version.String())
			return err
		},
	}
}
