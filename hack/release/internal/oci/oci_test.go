// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package oci

import (
	"archive/tar"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/trainyard/trainyard/hack/release/internal/build"
)

var source = build.Source{
	Version:  "v0.1.0",
	Revision: "1ca39a2ac193c429392bcf73a2e1f3342b242f52",
	Time:     time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC),
}

func binaries(t *testing.T) []build.Binary {
	t.Helper()
	var all []build.Binary
	for _, arch := range []string{"amd64", "arm64"} {
		path := filepath.Join(t.TempDir(), "manager")
		if err := os.WriteFile(path, []byte("program for "+arch), 0o600); err != nil { // Its mode does not count.
			t.Fatal(err)
		}
		program := build.Program{Name: "manager", Summary: "Manages"}
		all = append(all, build.Binary{Program: program, Platform: build.Platform{OS: "linux", Arch: arch}, Path: path})
	}
	return all
}

func newIndex(t *testing.T) v1.ImageIndex {
	t.Helper()
	index, err := Index(source, binaries(t))
	if err != nil {
		t.Fatal(err)
	}
	return index
}

func digest(t *testing.T, index v1.ImageIndex) string {
	t.Helper()
	hash, err := index.Digest()
	if err != nil {
		t.Fatal(err)
	}
	return hash.String()
}

func TestIndexIsReproducible(t *testing.T) {
	first := digest(t, newIndex(t)) // The files of each index have other paths and times.
	if second := digest(t, newIndex(t)); first != second {
		t.Errorf("the same binaries give %s and %s", first, second)
	}
	other := source
	other.Revision = "another"
	index, err := Index(other, binaries(t))
	if err != nil {
		t.Fatal(err)
	}
	if digest(t, index) == first {
		t.Error("another commit gives the same digest")
	}
}

func TestImage(t *testing.T) {
	folder := filepath.Join(t.TempDir(), "manager")
	if err := WriteLayout(newIndex(t), "v0.1.0", folder); err != nil {
		t.Fatal(err)
	}
	index, _, err := ReadLayout(folder)
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(index); err != nil {
		t.Fatal(err)
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	for i, arch := range []string{"amd64", "arm64"} {
		descriptor := manifest.Manifests[i]
		if descriptor.Platform.OS != "linux" || descriptor.Platform.Architecture != arch {
			t.Errorf("image %d is for %s, want linux/%s", i, descriptor.Platform, arch)
		}
		image, err := index.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		if config.Architecture != arch || config.OS != "linux" || !config.Created.Equal(source.Time) {
			t.Errorf("the image for %s is for %s/%s, from %s", arch, config.OS, config.Architecture, config.Created)
		}
		if config.Config.User != "65532:65532" || !cmp.Equal(config.Config.Entrypoint, []string{"/manager"}) {
			t.Errorf("the image starts %q as %q", config.Config.Entrypoint, config.Config.User)
		}
		if version := config.Config.Labels["org.opencontainers.image.version"]; version != "v0.1.0" {
			t.Errorf("the label of the version is %q", version)
		}
		checkFiles(t, image, arch)
	}
}

func checkFiles(t *testing.T, image v1.Image, arch string) {
	t.Helper()
	reader := mutate.Extract(image)
	defer reader.Close()
	modes, content := map[string]int64{}, map[string]string{}
	for files := tar.NewReader(reader); ; {
		header, err := files.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		data, err := io.ReadAll(files)
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || !header.ModTime.Equal(source.Time) {
			t.Errorf("%s belongs to %d, and is from %s", header.Name, header.Uid, header.ModTime)
		}
		name := strings.TrimSuffix(header.Name, "/")
		modes[name], content[name] = header.Mode, string(data)
	}
	want := map[string]int64{
		"etc": 0o755, "etc/ssl": 0o755, "etc/ssl/certs": 0o755, "etc/ssl/certs/ca-certificates.crt": 0o644, "manager": 0o755,
	}
	if diff := cmp.Diff(want, modes); diff != "" {
		t.Errorf("files and their modes, -want +got:\n%s", diff)
	}
	if content["manager"] != "program for "+arch {
		t.Errorf("the program for %s is %q", arch, content["manager"])
	}
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM([]byte(content["etc/ssl/certs/ca-certificates.crt"])) {
		t.Error("no certificate can be read")
	}
	if count := strings.Count(content["etc/ssl/certs/ca-certificates.crt"], "BEGIN CERTIFICATE"); count < 100 {
		t.Errorf("there are %d certificates, want those of Mozilla, which are more than 100", count)
	}
}

func TestPush(t *testing.T) {
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	defer server.Close()
	index := newIndex(t)
	folder := filepath.Join(t.TempDir(), "images", "manager")
	for range 2 { // The second layout replaces the first one.
		if err := WriteLayout(index, "v0.1.0", folder); err != nil {
			t.Fatal(err)
		}
	}
	written, label, err := ReadLayout(folder)
	if err != nil || label != "v0.1.0" {
		t.Fatalf("read a layout with tag %q: %v", label, err)
	}
	repository, err := Repository(strings.TrimPrefix(server.URL, "http://")+"/example/", "manager")
	if err != nil {
		t.Fatal(err)
	}
	if err := Push(t.Context(), written, repository.Tag(label)); err != nil {
		t.Fatal(err)
	}
	pushed, err := remote.Index(repository.Tag("v0.1.0"))
	if err != nil {
		t.Fatal(err)
	}
	if err := validate.Index(pushed); err != nil {
		t.Error(err)
	}
	if digest(t, pushed) != digest(t, index) {
		t.Errorf("the registry has %s, want %s", digest(t, pushed), digest(t, index))
	}
}

func TestReadLayoutWithoutImages(t *testing.T) {
	_, _, err := ReadLayout(filepath.Join(t.TempDir(), "none"))
	if err == nil || !strings.Contains(err.Error(), "make images") {
		t.Errorf("the error is %v, want one that says what to run", err)
	}
}

func TestRepository(t *testing.T) {
	repository, err := Repository("trainyard", "manager")
	if err != nil || repository.Tag("v1").Name() != "index.docker.io/trainyard/manager:v1" {
		t.Errorf("the default is %s, %v", repository, err)
	}
	_, err = Repository("Example Registry", "manager")
	if err == nil || !strings.Contains(err.Error(), `REGISTRY "Example Registry"`) {
		t.Errorf("the error is %v", err)
	}
}

// fakeDocker puts a docker on the PATH that does what a script says.
func fakeDocker(t *testing.T, script string) {
	t.Helper()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "docker"), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", folder+string(os.PathListSeparator)+os.Getenv("PATH"))
}

func TestEnginePlatform(t *testing.T) {
	fakeDocker(t, "echo linux/arm64")
	if platform, err := EnginePlatform(t.Context()); err != nil || platform.String() != "linux/arm64" {
		t.Errorf("the platform is %s, %v", platform, err)
	}
	fakeDocker(t, "echo Cannot connect to the daemon >&2; exit 1")
	_, err := EnginePlatform(t.Context())
	if err == nil || !strings.Contains(err.Error(), "Cannot connect to the daemon") {
		t.Errorf("without an engine: %v", err)
	}
}

func TestLoad(t *testing.T) {
	archive := filepath.Join(t.TempDir(), "archive.tar")
	fakeDocker(t, "cat > "+archive)
	tag, err := name.NewTag("trainyard/manager:v0.1.0")
	if err != nil {
		t.Fatal(err)
	}
	index := newIndex(t)
	if err := Load(t.Context(), index, build.Platform{OS: "linux", Arch: "arm64"}, tag); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(archive)
	if err != nil || !strings.Contains(string(data), `"RepoTags":["trainyard/manager:v0.1.0"]`) {
		t.Errorf("docker gets %d bytes without the tag, %v", len(data), err)
	}
	if err := Load(t.Context(), index, build.Platform{OS: "windows", Arch: "arm64"}, tag); err == nil {
		t.Error("there is an image for Windows")
	}
	fakeDocker(t, "echo no space left >&2; exit 1")
	err = Load(t.Context(), index, build.Platform{OS: "linux", Arch: "amd64"}, tag)
	if err == nil || !strings.Contains(err.Error(), "no space left") {
		t.Errorf("an engine that refuses: %v", err)
	}
}
