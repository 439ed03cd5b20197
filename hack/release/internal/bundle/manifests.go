// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"slices"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/hack/release/internal/build"
)

// Image is the image of a program, as manifests name it.
type Image struct {
	Program    string
	Repository string // Registry and name: ghcr.io/example/manager.
	Digest     string // Of the index, so that a node chooses its own platform.
}

// manifests are the kustomizations that an admin applies, and the files that have their objects in a release.
var manifests = []struct{ kustomization, file string }{
	{kustomization: "hub", file: "trainyard-hub.yaml"},
	{kustomization: "worker", file: "trainyard-worker.yaml"},
	{kustomization: "worker-agent", file: "trainyard-worker-agent.yaml"},
}

// WriteManifests renders config/ with the images by their digests, into a folder. It fails if a manifest has another
// image.
func WriteManifests(root string, images []Image, folder string) error {
	for _, m := range manifests {
		rendered, err := render(root, m.kustomization, images)
		if err != nil {
			return fmt.Errorf("render config/%s: %w", m.kustomization, err)
		}
		if err := os.WriteFile(filepath.Join(folder, m.file), rendered, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// render renders a kustomization of config/, wrapped in a kustomization that names the images.
func render(root, kustomization string, images []Image) ([]byte, error) {
	// A kustomization names its resources by relative paths, so the new one has to be in the repository.
	folder := filepath.Join(root, "_output", "kustomize", kustomization)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	overlay := types.Kustomization{
		TypeMeta:  types.TypeMeta{APIVersion: types.KustomizationVersion, Kind: types.KustomizationKind},
		Resources: []string{"../../../config/" + kustomization},
	}
	for _, image := range images {
		overlay.Images = append(overlay.Images,
			types.Image{Name: "trainyard/" + image.Program, NewName: image.Repository, Digest: image.Digest})
	}
	data, err := yaml.Marshal(overlay)
	if err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(folder, "kustomization.yaml"), data, 0o644); err != nil {
		return nil, err
	}
	resources, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), folder)
	if err != nil {
		return nil, err
	}
	for _, resource := range resources.Resources() {
		object, err := resource.Map()
		if err != nil {
			return nil, err
		}
		for _, name := range imagesOf(object) {
			if !slices.ContainsFunc(images, func(i Image) bool { return name == i.Repository+"@"+i.Digest }) {
				return nil, fmt.Errorf("%s names the image %q, which the release does not have", resource.CurId(), name)
			}
		}
	}
	return resources.AsYaml()
}

// imagesOf returns the images of all containers in an object, at any depth.
func imagesOf(value any) []string {
	var found []string
	switch value := value.(type) {
	case map[string]any:
		for key, child := range value {
			if containers, ok := child.([]any); ok && (key == "containers" || key == "initContainers") {
				for _, container := range containers {
					if fields, ok := container.(map[string]any); ok {
						if image, ok := fields["image"].(string); ok {
							found = append(found, image)
						}
					}
				}
				continue
			}
			found = append(found, imagesOf(child)...)
		}
	case []any:
		for _, child := range value {
			found = append(found, imagesOf(child)...)
		}
	}
	return found
}

// WriteBillOfMaterials writes what a binary is made of: its modules with hashes and licences, as CycloneDX.
func WriteBillOfMaterials(ctx context.Context, source build.Source, b build.Binary, path string) error {
	err := runTool(ctx, source, "hack/tools/sbom", "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod", "bin", "-json", "-std", "-licenses",
		"-noserial", "-notimestamp", "-version", source.Version, "-output", path, b.Path)
	if err != nil {
		return fmt.Errorf("write the bill of materials of %s for %s: %w", b.Program.Name, b.Platform, err)
	}
	return nil
}

// CheckKrewManifest lets krew judge the manifest in a folder. It does not download the archives.
func CheckKrewManifest(ctx context.Context, source build.Source, folder string) error {
	manifest := filepath.Join(folder, KrewFile)
	err := runTool(ctx, source, "hack/tools/krew", "sigs.k8s.io/krew/cmd/validate-krew-manifest", "-skip-install", "-manifest", manifest)
	if err != nil {
		return fmt.Errorf("check %s: %w", manifest, err)
	}
	return nil
}

// runTool compiles a tool, given as the path of its package, in the module that pins it, and runs it in the root of the
// repository. The tool asks no module proxy: the modules of a binary are in Go's cache since the binary was built.
func runTool(ctx context.Context, source build.Source, module, tool string, args ...string) error {
	folder := filepath.Join(source.Root, "_output", "tools")
	// A bill of materials has the checksum of the tool that wrote it. So the tool must be the same on each machine.
	compile := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(source.Root, module),
		"-trimpath", "-buildvcs=false", "-o", folder+string(filepath.Separator), tool)
	compile.Env = build.Environment(build.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH})
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s of %s: %w\n%s", tool, module, err, bytes.TrimSpace(out))
	}
	command := exec.CommandContext(ctx, filepath.Join(folder, path.Base(tool)), args...)
	command.Dir, command.Env = source.Root, append(os.Environ(), "GOPROXY=off")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", path.Base(tool), err, bytes.TrimSpace(out))
	}
	return nil
}
