// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"bytes"
	"context"
	"encoding/pem"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/google/go-containerregistry/pkg/authn"
	"github.com/google/go-containerregistry/pkg/name"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/match"
	"github.com/google/go-containerregistry/pkg/v1/partial"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"golang.org/x/crypto/x509roots/fallback/bundle"

	"github.com/trainyard/trainyard/hack/release/internal/build"
)

// Repository checks the name of a program's image: REGISTRY and the name of the program.
func Repository(registry, program string) (name.Repository, error) {
	repository, err := name.NewRepository(strings.TrimSuffix(registry, "/") + "/" + program)
	if err != nil {
		return name.Repository{}, fmt.Errorf("REGISTRY %q: want what stands before the program in the name of an image, "+
			"for example ghcr.io/example: %w", registry, err)
	}
	return repository, nil
}

// WriteLayout writes an index, with a tag, as OCI layout into a folder, in place of what is there.
func WriteLayout(index v1.ImageIndex, tag, folder string) error {
	if err := os.RemoveAll(folder); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(folder), 0o755); err != nil {
		return err
	}
	path, err := layout.Write(folder, empty.Index)
	if err != nil {
		return fmt.Errorf("write the OCI layout %s: %w", folder, err)
	}
	named := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": tag})
	if err := path.AppendIndex(index, named); err != nil {
		return fmt.Errorf("write the OCI layout %s: %w", folder, err)
	}
	return nil
}

// ReadLayout returns the index that WriteLayout has written into a folder, and its tag.
func ReadLayout(folder string) (index v1.ImageIndex, tag string, err error) {
	all, err := layout.ImageIndexFromPath(folder)
	if err != nil {
		return nil, "", fmt.Errorf("read the OCI layout %s, which make images writes: %w", folder, err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		return nil, "", err
	}
	if len(manifest.Manifests) != 1 {
		return nil, "", fmt.Errorf("read the OCI layout %s: it has %d images, want 1", folder, len(manifest.Manifests))
	}
	descriptor := manifest.Manifests[0]
	index, err = all.ImageIndex(descriptor.Digest)
	return index, descriptor.Annotations["org.opencontainers.image.ref.name"], err
}

// Push writes an index with all its images into a registry, with the credentials of the user's Docker configuration.
func Push(ctx context.Context, index v1.ImageIndex, tag name.Tag) error {
	err := remote.WriteIndex(tag, index, remote.WithContext(ctx), remote.WithAuthFromKeychain(authn.DefaultKeychain))
	if err != nil {
		return fmt.Errorf("push %s: %w", tag, err)
	}
	return nil
}

// EnginePlatform asks the Docker engine for its platform.
func EnginePlatform(ctx context.Context) (build.Platform, error) {
	command := exec.CommandContext(ctx, "docker", "version", "--format", "{{.Server.Os}}/{{.Server.Arch}}")
	out, err := command.Output()
	if err != nil {
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			lines := strings.Split(strings.TrimSpace(string(exit.Stderr)), "\n")
			return build.Platform{}, errors.New("docker version says: " + lines[len(lines)-1])
		}
		return build.Platform{}, err
	}
	return build.ParsePlatform(strings.TrimSpace(string(out)))
}

// Load gives the image for a platform to the Docker engine, with all tags.
func Load(ctx context.Context, index v1.ImageIndex, platform build.Platform, tags ...name.Tag) error {
	images, err := partial.FindImages(index, match.Platforms(v1.Platform{OS: platform.OS, Architecture: platform.Arch}))
	if err != nil {
		return err
	}
	if len(images) == 0 {
		return fmt.Errorf("load %s: there is no image for %s, the platform of the Docker engine", tags[0], platform)
	}
	references := map[name.Reference]v1.Image{}
	for _, tag := range tags {
		references[tag] = images[0]
	}
	reader, writer := io.Pipe()
	command := exec.CommandContext(ctx, "docker", "load", "--quiet")
	command.Stdin = reader
	go func() { _ = writer.CloseWithError(tarball.MultiRefWrite(references, writer)) }()
	if out, err := command.CombinedOutput(); err != nil {
		_ = reader.CloseWithError(err) // Ends the goroutine, if docker has not read all.
		return fmt.Errorf("load %s: %w: %s", tags[0], err, strings.TrimSpace(string(out)))
	}
	return nil
}

// certificates returns the certificate authorities that Mozilla trusts, as one PEM file. It leaves out authorities
// whose certificates Mozilla trusts only if they were issued before a date: a PEM file cannot say that.
func certificates() ([]byte, error) {
	var file bytes.Buffer
	for root := range bundle.Roots() {
		if root.Constraint != nil {
			continue
		}
		if err := pem.Encode(&file, &pem.Block{Type: "CERTIFICATE", Bytes: root.Certificate}); err != nil {
			return nil, err
		}
	}
	return file.Bytes(), nil
}
