// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/hack/release/internal/build"
)

// KrewFile is the name of krew's manifest of the plugin. krew wants it to be the plugin's name.
const KrewFile = "trainyard.yaml"

const krewDescription = `Shows where the TrainJobs of a hub cluster run and why, reads their logs from
the workers, simulates policies, and registers, drains and removes workers.

Needs a kubeconfig of the hub, where Trainyard's manager runs.
`

type krewPlugin struct {
	APIVersion string       `json:"apiVersion"`
	Kind       string       `json:"kind"`
	Metadata   krewMetadata `json:"metadata"`
	Spec       krewSpec     `json:"spec"`
}

type krewMetadata struct {
	Name string `json:"name"`
}

type krewSpec struct {
	Version          string         `json:"version"`
	Homepage         string         `json:"homepage"`
	ShortDescription string         `json:"shortDescription"`
	Description      string         `json:"description"`
	Platforms        []krewPlatform `json:"platforms"`
}

type krewPlatform struct {
	Selector krewSelector `json:"selector"`
	URI      string       `json:"uri"`
	SHA256   string       `json:"sha256"`
	Bin      string       `json:"bin"`
}

type krewSelector struct {
	MatchLabels map[string]string `json:"matchLabels"`
}

// WriteKrewManifest writes krew's manifest of the plugin into a folder that has the plugin's archives. downloads is the
// URL below which users download these archives.
func WriteKrewManifest(source build.Source, plugins []build.Binary, downloads, folder string) error {
	plugin := krewPlugin{
		APIVersion: "krew.googlecontainertools.github.com/v1alpha2",
		Kind:       "Plugin",
		Metadata:   krewMetadata{Name: strings.TrimSuffix(KrewFile, ".yaml")},
		Spec: krewSpec{
			Version:          source.SemVer(),
			Homepage:         "https://github.com/trainyard/trainyard",
			ShortDescription: "Show and move the TrainJobs of a Trainyard hub",
			Description:      krewDescription,
		},
	}
	for _, binary := range plugins {
		archive := ArchiveName(source, binary)
		sum, err := fileSum(filepath.Join(folder, archive))
		if err != nil {
			return fmt.Errorf("write %s: %w", KrewFile, err)
		}
		plugin.Spec.Platforms = append(plugin.Spec.Platforms, krewPlatform{
			Selector: krewSelector{MatchLabels: map[string]string{"os": binary.Platform.OS, "arch": binary.Platform.Arch}},
			URI:      strings.TrimSuffix(downloads, "/") + "/" + archive,
			SHA256:   sum,
			Bin:      binary.FileName(),
		})
	}
	data, err := yaml.Marshal(plugin)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(folder, KrewFile), data, 0o644)
}
