// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"os"
	"path"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/trainyard/trainyard/hack/release/internal/build"
)

// user is the user and the group of the program, without a name. The manifests in config/ have the same number.
const user = "65532:65532"

// Index returns the images of one program as one index. binaries has a binary for each of its platforms.
func Index(source build.Source, binaries []build.Binary) (v1.ImageIndex, error) {
	certificates, err := certificates()
	if err != nil {
		return nil, err
	}
	trust, err := layer(source.Time, file{path: "etc/ssl/certs/ca-certificates.crt", mode: 0o644, data: certificates})
	if err != nil {
		return nil, err
	}
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, binary := range binaries {
		image, err := newImage(source, binary, trust)
		if err != nil {
			return nil, fmt.Errorf("make the image of %s for %s: %w", binary.Program.Name, binary.Platform, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add:        image,
			Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: binary.Platform.OS, Architecture: binary.Platform.Arch}},
		})
	}
	if len(binaries) > 0 {
		index = mutate.Annotations(index, labels(source, binaries[0].Program)).(v1.ImageIndex)
	}
	return index, nil
}

func newImage(source build.Source, binary build.Binary, trust v1.Layer) (v1.Image, error) {
	program, err := os.ReadFile(binary.Path)
	if err != nil {
		return nil, err
	}
	code, err := layer(source.Time, file{path: binary.Program.Name, mode: 0o755, data: program})
	if err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	image, err = mutate.Append(image,
		mutate.Addendum{Layer: trust, History: history(source, "Certificate authorities that Mozilla trusts")},
		mutate.Addendum{Layer: code, History: history(source, binary.Program.Name+" "+source.Version)})
	if err != nil {
		return nil, err
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture = binary.Platform.OS, binary.Platform.Arch
	config.Created = v1.Time{Time: source.Time}
	config.Config = v1.Config{
		User:       user,
		Entrypoint: []string{"/" + binary.Program.Name},
		Env:        []string{"PATH=/"},
		WorkingDir: "/",
		Labels:     labels(source, binary.Program),
	}
	return mutate.ConfigFile(image, config)
}

func history(source build.Source, what string) v1.History {
	return v1.History{Created: v1.Time{Time: source.Time}, CreatedBy: "make images", Comment: what}
}

// labels are the annotations that the OCI image specification defines.
func labels(source build.Source, program build.Program) map[string]string {
	const prefix = "org.opencontainers.image."
	return map[string]string{
		prefix + "title":       program.Name,
		prefix + "description": program.Summary,
		prefix + "version":     source.Version,
		prefix + "revision":    source.Revision,
		prefix + "created":     source.Time.Format(time.RFC3339),
		prefix + "source":      "https://github.com/trainyard/trainyard",
		prefix + "licenses":    "Apache-2.0",
		prefix + "vendor":      "The Trainyard Authors",
	}
}

type file struct {
	path string
	mode int64
	data []byte
}

// layer makes a layer of one file and of the folders above it. They belong to root: the program cannot change them.
func layer(created time.Time, f file) (v1.Layer, error) {
	var folders []string
	for folder := path.Dir(f.path); folder != "."; folder = path.Dir(folder) {
		folders = append([]string{folder + "/"}, folders...)
	}
	var archive bytes.Buffer
	writer := tar.NewWriter(&archive)
	for _, folder := range folders {
		header := &tar.Header{Typeflag: tar.TypeDir, Name: folder, Mode: 0o755, ModTime: created}
		if err := writer.WriteHeader(header); err != nil {
			return nil, err
		}
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: f.path, Mode: f.mode, Size: int64(len(f.data)), ModTime: created}
	if err := writer.WriteHeader(header); err != nil {
		return nil, err
	}
	if _, err := writer.Write(f.data); err != nil {
		return nil, err
	}
	if err := writer.Close(); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(archive.Bytes())), nil }
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer), tarball.WithCompressedCaching)
}
