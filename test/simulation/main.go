// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Simulation compares how Trainyard, MultiKueue and chance place jobs on GPU clusters, in virtual time:
//
//	go -C test/simulation run .                       a fleet of 40 workers at 85 % load, about a minute
//	go -C test/simulation run . --load 1.1 --seeds 5  more than the fleet can do
//	go -C test/simulation run . --trace $PWD/cluster_job_log --trace-format philly
//
// Trainyard's rows are decided by packages dispatch and dispatch/queue, as in the manager. docs/simulation.md says what
// is modelled and has results.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // A second Ctrl-C ends at once.
	if err := newCommand().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "simulation:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := defaultOptions()
	command := &cobra.Command{
		Use:   "simulation",
		Short: "Compare how Trainyard, MultiKueue and chance place jobs on GPU clusters, in virtual time",
		Long: `simulation lets several systems dispatch the same jobs to the same imagined workers, and reports utilisation, waits by size of
the jobs, fragmentation, preemptions, and how fast Trainyard decided.`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return run(command.Context(), o, command.OutOrStdout(), command.ErrOrStderr())
		},
	}
	o.addFlags(command.Flags())
	command.AddCommand(newSampleCommand())
	return command
}
