// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/trainyard/trainyard/hack/release/internal/build"
	"github.com/trainyard/trainyard/hack/release/internal/bundle"
	"github.com/trainyard/trainyard/hack/release/internal/oci"
)

type options struct {
	root, version, registry, downloads string
	platforms                          []string
	test                               bool
}

// output is a folder below the folder that git ignores.
func output(source build.Source, folders ...string) string {
	return filepath.Join(append([]string{source.Root, "_output"}, folders...)...)
}

// readSource reads the commit, and checks the options that all commands have.
func readSource(ctx context.Context, o options) (build.Source, error) {
	root, err := filepath.Abs(o.root)
	if err != nil {
		return build.Source{}, err
	}
	if _, err := oci.Repository(o.registry, "manager"); err != nil {
		return build.Source{}, err
	}
	return build.ReadSource(ctx, root, o.version)
}

// built is the image of a program for all platforms.
type built struct {
	image    bundle.Image
	index    v1.ImageIndex
	binaries []build.Binary
}

// buildImages writes one OCI layout for each program, and bills of materials beside them.
func buildImages(ctx context.Context, out io.Writer, o options) ([]built, error) {
	source, err := readSource(ctx, o)
	if err != nil {
		return nil, err
	}
	programs, folder := build.Products(), output(source, "images")
	if o.test {
		programs, folder = build.TestPrograms(), output(source, "test-images")
	}
	if err := os.RemoveAll(folder); err != nil {
		return nil, err
	}
	binaries := map[string][]build.Binary{}
	for _, text := range o.platforms {
		platform, err := build.ParsePlatform(text)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "Compiling %s for %s\n", source.Version, platform)
		compiled, err := build.Compile(ctx, source, programs, platform, output(source, "binaries"))
		if err != nil {
			return nil, err
		}
		for _, binary := range compiled {
			binaries[binary.Program.Name] = append(binaries[binary.Program.Name], binary)
		}
	}
	var images []built
	for _, program := range programs {
		image, err := buildImage(ctx, source, o.registry, binaries[program.Name], folder)
		if err != nil {
			return nil, err
		}
		fmt.Fprintf(out, "%s:%s@%s\n", image.image.Repository, source.Tag(), image.image.Digest)
		images = append(images, image)
	}
	fmt.Fprintf(out, "The OCI layouts and the bills of materials are in %s\n", folder)
	return images, loadImages(ctx, out, source, images)
}

func buildImage(
	ctx context.Context, source build.Source, registry string, binaries []build.Binary, folder string,
) (built, error) {
	program := binaries[0].Program.Name
	index, err := oci.Index(source, binaries)
	if err != nil {
		return built{}, err
	}
	if err := oci.WriteLayout(index, source.Tag(), filepath.Join(folder, program)); err != nil {
		return built{}, err
	}
	for _, binary := range binaries {
		path := filepath.Join(folder, billOfMaterials(binary))
		if err := bundle.WriteBillOfMaterials(ctx, source, binary, path); err != nil {
			return built{}, err
		}
	}
	digest, err := index.Digest()
	if err != nil {
		return built{}, err
	}
	repository := strings.TrimSuffix(registry, "/") + "/" + program
	image := bundle.Image{Program: program, Repository: repository, Digest: digest.String()}
	return built{image: image, index: index, binaries: binaries}, nil
}

func billOfMaterials(b build.Binary) string {
	return fmt.Sprintf("%s_%s_%s.cdx.json", b.Program.Name, b.Platform.OS, b.Platform.Arch)
}

// loadImages loads the images of the engine's own platform, if there is an engine.
func loadImages(ctx context.Context, out io.Writer, source build.Source, images []built) error {
	engine, err := oci.EnginePlatform(ctx)
	if err != nil {
		fmt.Fprintf(out, "Loaded nothing into Docker: %v\n"+
			"Start a Docker engine and repeat the command, or go on with the OCI layouts.\n", err)
		return nil
	}
	for _, image := range images {
		var tags []name.Tag
		for _, tag := range []string{source.Tag(), "latest"} {
			parsed, err := name.NewTag(image.image.Repository + ":" + tag)
			if err != nil {
				return err
			}
			tags = append(tags, parsed)
		}
		if err := oci.Load(ctx, image.index, engine, tags...); err != nil {
			return err
		}
		fmt.Fprintf(out, "Loaded %s and %s into Docker, for %s\n", tags[0], tags[1], engine)
	}
	return nil
}

// pushImages pushes what buildImages has written.
func pushImages(ctx context.Context, out io.Writer, o options) error {
	source, err := readSource(ctx, o)
	if err != nil {
		return err
	}
	for _, program := range build.Products() {
		index, tag, err := oci.ReadLayout(output(source, "images", program.Name))
		if err != nil {
			return err
		}
		repository, err := oci.Repository(o.registry, program.Name)
		if err != nil {
			return err
		}
		if err := oci.Push(ctx, index, repository.Tag(tag)); err != nil {
			return err
		}
		digest, err := index.Digest()
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "Pushed %s@%s\n", repository.Tag(tag), digest)
	}
	return nil
}
