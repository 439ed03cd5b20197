// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"archive/zip"
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/hack/release/internal/build"
)

var modified = time.Date(2026, 2, 3, 4, 5, 6, 0, time.UTC)

// newSource makes a repository with a licence.
func newSource(t *testing.T) build.Source {
	t.Helper()
	root := t.TempDir()
	write(t, filepath.Join(root, "LICENSE"), "the licence")
	return build.Source{Root: root, Version: "v0.1.0", Time: modified}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, path string) []byte {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func plugin(t *testing.T, platform build.Platform) build.Binary {
	t.Helper()
	path := filepath.Join(t.TempDir(), "binary")
	b := build.Binary{Program: build.Program{Name: build.Plugin}, Platform: platform, Path: path}
	write(t, b.Path, "for "+platform.String())
	return b
}

// unpackTar returns mode and content of each file.
func unpackTar(t *testing.T, data []byte) map[string]string {
	t.Helper()
	files := map[string]string{}
	for reader := tar.NewReader(bytes.NewReader(data)); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return files
		}
		if err != nil {
			t.Fatal(err)
		}
		content, err := io.ReadAll(reader)
		if err != nil {
			t.Fatal(err)
		}
		if !header.ModTime.Equal(modified) {
			t.Errorf("%s is from %s", header.Name, header.ModTime)
		}
		files[header.Name] = fmt.Sprintf("%o %s", header.Mode, content)
	}
}

func gunzip(t *testing.T, data []byte) []byte {
	t.Helper()
	reader, err := gzip.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(reader)
	if err != nil {
		t.Fatal(err)
	}
	return all
}

func TestArchives(t *testing.T) {
	source := newSource(t)
	folders := []string{t.TempDir(), t.TempDir()}
	for _, folder := range folders {
		for _, os := range []string{"linux", "windows"} {
			if err := WriteArchive(source, plugin(t, build.Platform{OS: os, Arch: "arm64"}), folder); err != nil {
				t.Fatal(err)
			}
		}
		if err := WriteChecksums(folder); err != nil {
			t.Fatal(err)
		}
	}
	sums := string(read(t, filepath.Join(folders[0], ChecksumsFile)))
	if diff := cmp.Diff(sums, string(read(t, filepath.Join(folders[1], ChecksumsFile)))); diff != "" {
		t.Errorf("the same files give other archives:\n%s", diff)
	}
	linux := read(t, filepath.Join(folders[0], "kubectl-trainyard_v0.1.0_linux_arm64.tar.gz"))
	want := map[string]string{"LICENSE": "644 the licence", "kubectl-trainyard": "755 for linux/arm64"}
	if diff := cmp.Diff(want, unpackTar(t, gunzip(t, linux))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	windows := read(t, filepath.Join(folders[0], "kubectl-trainyard_v0.1.0_windows_arm64.zip"))
	files, err := zip.NewReader(bytes.NewReader(windows), int64(len(windows)))
	if err != nil {
		t.Fatal(err)
	}
	if len(files.File) != 2 || files.File[1].Name != "kubectl-trainyard.exe" || files.File[1].Mode() != 0o755 {
		t.Errorf("the archive for Windows has %v", files.File)
	}
	wantSums := fmt.Sprintf(
		"%x  kubectl-trainyard_v0.1.0_linux_arm64.tar.gz\n%x  kubectl-trainyard_v0.1.0_windows_arm64.zip\n",
		sha256.Sum256(linux), sha256.Sum256(windows))
	if diff := cmp.Diff(wantSums, sums); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestPackFolder(t *testing.T) {
	folder, archive := t.TempDir(), filepath.Join(t.TempDir(), "layout.tar")
	write(t, filepath.Join(folder, "oci-layout"), "{}")
	write(t, filepath.Join(folder, "blobs", "sha256", "abc"), "blob")
	if err := PackFolder(folder, archive, modified); err != nil {
		t.Fatal(err)
	}
	want := map[string]string{"oci-layout": "644 {}", "blobs/sha256/abc": "644 blob"}
	if diff := cmp.Diff(want, unpackTar(t, read(t, archive))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestChartHasTheTimeOfTheCommit(t *testing.T) {
	pack := func(times time.Time) []byte {
		var packed bytes.Buffer
		entries := []entry{{name: "trainyard/Chart.yaml", mode: 0o644, data: []byte("name: trainyard")}}
		if err := packTar(&packed, entries, times); err != nil {
			t.Fatal(err)
		}
		return packed.Bytes()
	}
	normal, err := withTime(pack(modified.Add(time.Hour)), modified)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(normal, pack(modified)) {
		t.Error("the time at which the chart was packaged is still in it")
	}
}

func TestChartHasTheImagesOfTheRelease(t *testing.T) {
	root := t.TempDir()
	chart := filepath.Join(root, "charts", "trainyard")
	write(t, filepath.Join(chart, "Chart.yaml"), "name: trainyard\n")
	write(t, filepath.Join(chart, "templates", "deployment.yaml"), "{{ .Values }}\n")
	write(t, filepath.Join(chart, "values.yaml"), `manager:
  # How many pods.
  replicas: 2
  image:
    repository: trainyard/manager
    tag: ""
    # A digest, instead of a tag.
    digest: ""
proxy:
  image:
    repository: example/proxy
    digest: ""
`)
	staged, err := stageChart(root, []Image{
		{Program: "manager", Repository: "ghcr.io/example/manager", Digest: "sha256:12"},
		{Program: "kubectl-trainyard", Repository: "ghcr.io/example/kubectl-trainyard", Digest: "sha256:34"},
	})
	if err != nil {
		t.Fatal(err)
	}
	want := `manager:
  # How many pods.
  replicas: 2
  image:
    repository: ghcr.io/example/manager
    tag: ""
    # A digest, instead of a tag.
    digest: "sha256:12"
proxy:
  image:
    repository: example/proxy
    digest: ""
`
	if diff := cmp.Diff(want, string(read(t, filepath.Join(staged, "values.yaml")))); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if template := string(read(t, filepath.Join(staged, "templates", "deployment.yaml"))); template != "{{ .Values }}\n" {
		t.Errorf("the template is %q", template)
	}
	if _, err := stageChart(root, nil); err == nil || !strings.Contains(err.Error(), "no repository") {
		t.Errorf("a chart without the images of the release: %v", err)
	}
}

func TestNoChart(t *testing.T) {
	if err := WriteChart(t.Context(), newSource(t), nil, t.TempDir()); !errors.Is(err, ErrNoChart) {
		t.Errorf("a repository without chart: %v", err)
	}
}

func TestKrewManifest(t *testing.T) {
	source, folder := newSource(t), t.TempDir()
	windows := plugin(t, build.Platform{OS: "windows", Arch: "amd64"})
	if err := WriteKrewManifest(source, []build.Binary{windows}, "https://example.com", folder); err == nil {
		t.Error("the manifest names an archive that does not exist")
	}
	if err := WriteArchive(source, windows, folder); err != nil {
		t.Fatal(err)
	}
	if err := WriteKrewManifest(source, []build.Binary{windows}, "https://example.com/v0.1.0/", folder); err != nil {
		t.Fatal(err)
	}
	var manifest krewPlugin
	if err := yaml.UnmarshalStrict(read(t, filepath.Join(folder, KrewFile)), &manifest); err != nil {
		t.Fatal(err)
	}
	archive := "kubectl-trainyard_v0.1.0_windows_amd64.zip"
	want := []krewPlatform{{
		Selector: krewSelector{MatchLabels: map[string]string{"os": "windows", "arch": "amd64"}},
		URI:      "https://example.com/v0.1.0/" + archive,
		SHA256:   fmt.Sprintf("%x", sha256.Sum256(read(t, filepath.Join(folder, archive)))),
		Bin:      "kubectl-trainyard.exe",
	}}
	if diff := cmp.Diff(want, manifest.Spec.Platforms); diff != "" || manifest.Spec.Version != "v0.1.0" {
		t.Errorf("version %s, -want +got:\n%s", manifest.Spec.Version, diff)
	}
}

// repository is the root of this repository.
const repository = "../../../.."

func TestManifestsOfTheRepository(t *testing.T) {
	sum := "sha256:" + strings.Repeat("ab", 32)
	images := []Image{
		{Program: "manager", Repository: "ghcr.io/example/manager", Digest: sum},
		{Program: "worker-agent", Repository: "ghcr.io/example/worker-agent", Digest: sum},
	}
	folder := t.TempDir()
	if err := WriteManifests(repository, images, folder); err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{
		"trainyard-hub.yaml":          {"image: ghcr.io/example/manager@" + sum, "kind: CustomResourceDefinition"},
		"trainyard-worker.yaml":       {"kind: ServiceAccount", "kind: ValidatingAdmissionPolicy"},
		"trainyard-worker-agent.yaml": {"image: ghcr.io/example/worker-agent@" + sum, "kind: MutatingWebhookConfiguration"},
	} {
		for _, line := range want {
			if !strings.Contains(string(read(t, filepath.Join(folder, file))), line) {
				t.Errorf("%s lacks %s", file, line)
			}
		}
	}
	err := WriteManifests(repository, images[:1], t.TempDir())
	if err == nil || !strings.Contains(err.Error(), `"trainyard/worker-agent:latest", which the release does not have`) {
		t.Errorf("an image that the release lacks: %v", err)
	}
}
