// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"
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
