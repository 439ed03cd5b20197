// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Release builds the container images and the files of a release from the commit that is checked out. It needs Go and
// git, and no registry. make images, make push-images and make release run it by hack/release.sh.
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
	err := newCommand().ExecuteContext(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "release:", err)
		os.Exit(1)
	}
}

func newCommand() *cobra.Command {
	var o options
	command := &cobra.Command{
		Use:           "release",
		Short:         "Build images and the files of a release",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	flags := command.PersistentFlags()
	flags.StringVar(&o.root, "root", "../..", "the folder of the repository")
	flags.StringVar(&o.version, "version", os.Getenv("VERSION"),
		"the version of images and binaries; what git describe says if empty")
	flags.StringVar(&o.registry, "registry", orDefault(os.Getenv("REGISTRY"), "trainyard"),
		"what stands before the program in the name of an image, for example ghcr.io/example")

	images := &cobra.Command{
		Use:   "images",
		Short: "Write the images as OCI layouts, and load them into Docker if an engine answers",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			_, err := buildImages(command.Context(), command.OutOrStdout(), o)
			return err
		},
	}
	images.Flags().StringSliceVar(&o.platforms, "platforms", linuxPlatforms,
		"the platforms of the images")
	images.Flags().BoolVar(&o.test, "test", false, "build the images of the programs that only tests run")

	push := &cobra.Command{
		Use:   "push",
		Short: "Push the images that the command images has written to the registry",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return pushImages(command.Context(), command.OutOrStdout(), o)
		},
	}

	release := &cobra.Command{
		Use:   "release",
		Short: "Write the files of a release, with all images",
		Args:  cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			return buildRelease(command.Context(), command.OutOrStdout(), o)
		},
	}
	release.Flags().StringVar(&o.downloads, "downloads", os.Getenv("DOWNLOADS"),
		"the URL below which users download the archives of the plugin; GitHub's for the version if empty")
	command.AddCommand(images, push, release)
	return command
}

func orDefault(value, other string) string {
	if value == "" {
		return other
	}
	return value
}
