// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Releases of the Kubeflow Trainer whose TrainJobs have different fields, the oldest first. The repository requires the
// last minor release of these.
const (
	Trainer20 = "v2.0.0"
	Trainer21 = "v2.1.0"
	Trainer22 = "v2.2.0"
	Trainer23 = "v2.3.0"
)

// ReleaseCRDs returns the directory with the CRDs of a release of the Kubeflow Trainer. It downloads the release if
// necessary.
func ReleaseCRDs(ctx context.Context, version string) (string, error) {
	// Outside any module, so that the release is none of its requirements.
	out, err := runGo(ctx, os.TempDir(), "mod", "download", "-json", trainerModule+"@"+version)
	if err != nil {
		return "", fmt.Errorf("download Kubeflow Trainer %s: %w", version, err)
	}
	var module struct{ Dir string }
	if err := json.Unmarshal([]byte(out), &module); err != nil {
		return "", fmt.Errorf("download Kubeflow Trainer %s: read the answer of go: %w", version, err)
	}
	return filepath.Join(module.Dir, TrainerCRDs.Path), nil
}
