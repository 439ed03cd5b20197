// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

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
		fmt.Fprintln(os.Stderr, "worker-agent:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	o := defaultOptions()
	cmd := &cobra.Command{
		Use:   "worker-agent",
		Short: "Run the TrainJobs of one cluster",
		Long: `worker-agent turns the TrainJobs of the cluster that it runs on into JobSets and brings their status back, in place of the
Kubeflow Trainer's controller. TrainJobs whose spec.managedBy names somebody else are left alone.

It also answers the admission webhooks of config/webhook, if it has certificates for them: given ones (--webhook-cert-dir), or its own
(--webhook-service), which is for an agent that runs in the cluster behind that Service. With neither it serves none.

The cluster needs the CRDs of Kubeflow Trainer and JobSet, and JobSet's controller.`,
		Args:          cobra.NoArgs,
		Version:       version.String(),
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := o.validate(); err != nil {
				return err
			}
			return run(cmd.Context(), o)
		},
	}
	o.addFlags(cmd.Flags())
	return cmd
}
