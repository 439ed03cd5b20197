// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"

	"github.com/spf13/cobra"
	utilerrors "k8s.io/apimachinery/pkg/util/errors"
	genericapiserver "k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/cli"
	"k8s.io/component-base/cli/globalflag"
	"k8s.io/component-base/compatibility"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/version/verflag"
	"k8s.io/kubernetes/cmd/kube-apiserver/app"
	"k8s.io/kubernetes/cmd/kube-apiserver/app/options"
)

// runAPIServer runs kube-apiserver with upstream's flags, and with --openapi. To make the OpenAPI documents of
// Kubernetes' own kinds takes a third of the CPU time and a quarter of the memory of a start.
func runAPIServer() int {
	server := options.NewServerRunOptions()
	openAPI := true
	command := &cobra.Command{
		Use:          "kube-apiserver",
		Args:         cobra.NoArgs,
		SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			return serve(cmd.Context(), server, openAPI)
		},
	}
	flags := server.Flags()
	verflag.AddFlags(flags.FlagSet("global"))
	globalflag.AddGlobalFlags(flags.FlagSet("global"), command.Name(), logs.SkipLoggingConfigurationFlags())
	for _, set := range flags.FlagSets {
		command.Flags().AddFlagSet(set)
	}
	command.Flags().BoolVar(&openAPI, "openapi", openAPI, "Serve OpenAPI documents of Kubernetes' own kinds, not only of custom resources.")
	command.SetContext(genericapiserver.SetupSignalContext())
	return cli.Run(command)
}

// serve runs the API server until the context ends.
func serve(ctx context.Context, server *options.ServerRunOptions, openAPI bool) error {
	components := server.GenericServerRunOptions.ComponentGlobalsRegistry
	if err := components.Set(); err != nil {
		return err
	}
	if err := logsapi.ValidateAndApply(server.Logs, components.FeatureGateFor(compatibility.DefaultKubeComponent)); err != nil {
		return err
	}
	rest.SetDefaultWarningHandler(rest.NoWarnings{}) // The server's own requests are not to warn in its log.
	completed, err := server.Complete(ctx)
	if err != nil {
		return err
	}
	if errs := completed.Validate(); len(errs) > 0 {
		return utilerrors.NewAggregate(errs)
	}
	config, err := app.NewConfig(completed)
	if err != nil {
		return err
	}
	config.KubeAPIs.ControlPlane.Generic.SkipOpenAPIInstallation = !openAPI
	ready, err := config.Complete()
	if err != nil {
		return err
	}
	chain, err := app.CreateServerChain(ready)
	if err != nil {
		return err
	}
	prepared, err := chain.PrepareRun()
	if err != nil {
		return err
	}
	return prepared.Run(ctx)
}
