// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	kyaml "sigs.k8s.io/kustomize/kyaml/yaml"

	"github.com/trainyard/trainyard/hack/release/internal/build"
)

// ErrNoChart means that the repository has no chart.
var ErrNoChart = errors.New("there is no charts/trainyard")

// WriteChart packages charts/trainyard into a folder, with the version of the release and its images by digest. It
// returns ErrNoChart if the repository has none.
func WriteChart(ctx context.Context, source build.Source, images []Image, folder string) error {
	chart, err := stageChart(source.Root, images)
	if err != nil {
		return err
	}
	version := strings.TrimPrefix(source.SemVer(), "v")
	err = runTool(ctx, source, "test/controlplane", "helm.sh/helm/v4/cmd/helm", "package", chart,
		"--version", version, "--app-version", source.Tag(), "--destination", folder)
	if err != nil {
		return fmt.Errorf("package charts/trainyard: %w", err)
	}
	// helm gives each file the time at which it packages the chart.
	archive := filepath.Join(folder, "trainyard-"+version+".tgz")
	packed, err := os.ReadFile(archive)
	if err != nil {
		return err
	}
	normal, err := withTime(packed, source.Time)
	if err != nil {
		return fmt.Errorf("read %s: %w", archive, err)
	}
	return os.WriteFile(archive, normal, 0o644)
}

// stageChart copies the chart, and sets the images in the values of the copy. It returns the folder of the copy.
func stageChart(root string, images []Image) (string, error) {
	original, staged := filepath.Join(root, "charts", "trainyard"), filepath.Join(root, "_output", "chart", "trainyard")
	if _, err := os.Stat(filepath.Join(original, "Chart.yaml")); errors.Is(err, fs.ErrNotExist) {
		return "", ErrNoChart
	}
	if err := os.RemoveAll(staged); err != nil {
		return "", err
	}
	if err := os.CopyFS(staged, os.DirFS(original)); err != nil {
		return "", fmt.Errorf("copy charts/trainyard: %w", err)
	}
	path := filepath.Join(staged, "values.yaml")
	values, err := kyaml.ReadFile(path)
	if err != nil {
		return "", err
	}
	if found, err := setImages(values, images); err != nil || found == 0 {
		return "", fmt.Errorf("set %d images in the values of charts/trainyard: %w", found, cmp.Or(err, errNoImages))
	}
	return staged, kyaml.WriteFile(values, path)
}

var errNoImages = errors.New("no repository is that of an image of the release")

// setImages sets repository and digest of each image in the values, and keeps their comments. An image is an object
// with a repository such as trainyard/manager. It returns how many images there are.
func setImages(values *kyaml.RNode, images []Image) (int, error) {
	found := 0
	if values.YNode().Kind != kyaml.MappingNode {
		return 0, nil
	}
	err := values.VisitFields(func(field *kyaml.MapNode) error {
		inner, err := setImages(field.Value, images)
		found += inner
		return err
	})
	if err != nil {
		return 0, err
	}
	for _, image := range images {
		field := values.Field("repository")
		if field == nil || field.Value.YNode().Value != "trainyard/"+image.Program {
			continue
		}
		field.Value.YNode().Value = image.Repository
		digest := values.Field("digest")
		if digest == nil {
			return 0, fmt.Errorf("the image trainyard/%s has no field digest", image.Program)
		}
		digest.Value.YNode().Value = image.Digest
		return found + 1, nil
	}
	return found, nil
}

// withTime packs a compressed tar file again, with another time of all files.
func withTime(packed []byte, modified time.Time) ([]byte, error) {
	compressed, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	var entries []entry
	for reader := tar.NewReader(compressed); ; {
		header, err := reader.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, err
		}
		if header.Typeflag != tar.TypeReg {
			continue
		}
		data, err := io.ReadAll(reader)
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry{name: header.Name, mode: fs.FileMode(header.Mode).Perm(), data: data})
	}
	var normal bytes.Buffer
	err = packTar(&normal, entries, modified)
	return normal.Bytes(), err
}
