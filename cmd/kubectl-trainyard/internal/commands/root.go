// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package commands

import (
	"context"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/cli-runtime/pkg/genericiooptions"
)

const (
	// displayName is how users call the plugin.
	displayName = "kubectl trainyard"
	// completionBinary is the name under which kubectl looks for a program that completes the plugin's arguments.
	completionBinary = "kubectl_complete-trainyard"
)

// Exit codes.
const (
	exitOK          = 0
	exitError       = 1
	exitInterrupted = 130 // As a shell says of what ended with SIGINT.
)

// Main runs the plugin and returns its exit code. binary is the name under which it was called.
func Main(ctx context.Context, streams genericiooptions.IOStreams, binary string, args []string) int {
	if strings.TrimSuffix(binary, ".exe") == completionBinary {
		args = append([]string{cobra.ShellCompRequestCmd}, args...)
	}
	root := newRoot(NewFactory(streams))
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case ctx.Err() != nil:
		return exitInterrupted
	case err != nil:
		fmt.Fprintln(streams.ErrOut, "error:", strings.TrimSpace(err.Error())) // A kubelet's words end with a line.
		return exitError
	}
	return exitOK
}

func newRoot(f *Factory) *cobra.Command {
	root := &cobra.Command{
		Use:               "kubectl-trainyard",
		Annotations:       map[string]string{cobra.CommandDisplayNameAnnotation: displayName},
		Short:             "Work with TrainJobs",
		Args:              cobra.NoArgs,
		SilenceUsage:      true,
		SilenceErrors:     true,
		CompletionOptions: cobra.CompletionOptions{DisableDefaultCmd: true}, // kubectl has it.
		RunE:              func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	root.SetIn(f.Streams.In)
	root.SetOut(f.Streams.Out)
	root.SetErr(f.Streams.ErrOut)
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return fmt.Errorf("%w\nSee '%s --help'", err, cmd.CommandPath())
	})
	f.addFlags(root)
	root.AddCommand(newLogs(f), newVersion(f))
	return root
}
