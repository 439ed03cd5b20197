// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Manager is the process of Trainyard's hub. It dispatches the TrainJobs that have its spec.managedBy: it places them
// on workers, creates their copies there, and brings their status back.
//
// Any number of replicas can run. The one with the lease works. The others keep caches filled and take over.
//
// controllers.go puts the controllers together, and perworker.go those of which each worker has its own. options.go has
// the flags, caches.go what the hub's caches hold, events.go how fast Events are written, and namespaces.go which
// namespaces are protected.
//
// Exit codes: 0 after SIGTERM or SIGINT if everything has stopped within 25 s, 1 for everything else, with one line on
// standard error that says why.
package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trainyard/trainyard/cmd/internal/version"
)

func main() {
	if err := newCommand().ExecuteContext(ctrl.SetupSignalHandler()); err != nil {
		fmt.Fprintln(os.Stderr, "manager:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := defaultOptions()
	command := &cobra.Command{
		Use:   "manager",
		Short: "Dispatch the TrainJobs of a hub cluster to worker clusters",
		Long: `manager places the TrainJobs of the hub whose spec.managedBy it owns on workers with room for them, creates their copies there,
and brings the status back. Workers are registered as WorkerClusters.

The hub needs the CRDs of Kubeflow Trainer and of Trainyard.`,
		Args:          cobra.NoArgs,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(command *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return run(command.Context(), o)
		},
	}
	o.addFlags(command.Flags())
	return command
}
