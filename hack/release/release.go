// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Release builds the container images and the files of a release from the commit that is checked out. It needs Go and
// git, and no registry. make images, make push-images and make release run it by hack/release.sh.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/trainyard/trainyard/hack/release/internal/build"
	"github.com/trainyard/trainyard/hack/release/internal/bundle"
)

// linuxPlatforms are the platforms of images.
var linuxPlatforms = []string{"linux/amd64", "linux/arm64"}

// pluginPlatforms are the platforms of people, in the order of krew's manifest.
var pluginPlatforms = []build.Platform{
	{OS: "darwin", Arch: "amd64"}, {OS: "darwin", Arch: "arm64"},
	{OS: "linux", Arch: "amd64"}, {OS: "linux", Arch: "arm64"},
	{OS: "windows", Arch: "amd64"}, {OS: "windows", Arch: "arm64"},
}

// buildRelease writes everything that a release has into an empty folder.
func buildRelease(ctx context.Context, out io.Writer, o options) error {
	source, err := readSource(ctx, o)
	if err != nil {
		return err
	}
	o.version, o.platforms = source.Version, linuxPlatforms
	folder := output(source, "release")
	if err := errors.Join(os.RemoveAll(folder), os.MkdirAll(folder, 0o755)); err != nil {
		return err
	}
	images, err := buildImages(ctx, out, o)
	if err != nil {
		return err
	}
	var names []bundle.Image
	var binaries []build.Binary
	for _, image := range images {
		names = append(names, image.image)
		binaries = append(binaries, image.binaries...)
		if err := addImage(source, image, folder); err != nil {
			return err
		}
	}
	if err := bundle.WriteManifests(source.Root, names, folder); err != nil {
		return err
	}
	if err := addBinaries(ctx, out, source, binaries, folder, o.downloads); err != nil {
		return err
	}
	switch err := bundle.WriteChart(ctx, source, names, folder); {
	case errors.Is(err, bundle.ErrNoChart):
		fmt.Fprintf(out, "The release has no chart: %v\n", err)
	case err != nil:
		return err
	}
	if err := bundle.WriteChecksums(folder); err != nil {
		return err
	}
	fmt.Fprintf(out, "The release %s is in %s\n", source.Version, folder)
	if source.Dirty() {
		fmt.Fprintln(out, "Do not publish it: files differ from the commit.")
	}
	return nil
}

// addImage adds the OCI layout of an image, as an archive, and its bills of materials.
func addImage(source build.Source, image built, folder string) error {
	program := image.image.Program
	archive := fmt.Sprintf("%s_%s_image.tar", program, source.Version)
	layout := output(source, "images", program)
	if err := bundle.PackFolder(layout, filepath.Join(folder, archive), source.Time); err != nil {
		return err
	}
	for _, binary := range image.binaries {
		name := billOfMaterials(binary)
		data, err := os.ReadFile(output(source, "images", name))
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(folder, name), data, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// addBinaries adds archives of the programs. The programs of the images are compiled already. It compiles the plugin
// for the other platforms of people.
func addBinaries(
	ctx context.Context, out io.Writer, source build.Source, compiled []build.Binary, folder, downloads string,
) error {
	var program build.Program
	plugins := map[build.Platform]build.Binary{}
	for _, binary := range compiled {
		if binary.Program.Name == build.Plugin {
			program, plugins[binary.Platform] = binary.Program, binary
			continue
		}
		if err := bundle.WriteArchive(source, binary, folder); err != nil {
			return err
		}
	}
	var all []build.Binary
	for _, platform := range pluginPlatforms {
		binary, found := plugins[platform]
		if !found {
			fmt.Fprintf(out, "Compiling %s for %s\n", build.Plugin, platform)
			more, err := build.Compile(ctx, source, []build.Program{program}, platform, output(source, "binaries"))
			if err != nil {
				return err
			}
			binary = more[0]
		}
		if err := bundle.WriteArchive(source, binary, folder); err != nil {
			return err
		}
		all = append(all, binary)
	}
	if downloads == "" {
		downloads = "https://github.com/trainyard/trainyard/releases/download/" + source.Version
	}
	if err := bundle.WriteKrewManifest(source, all, downloads, folder); err != nil {
		return err
	}
	return bundle.CheckKrewManifest(ctx, source, folder)
}

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
