// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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

// ReleaseDocument returns an OpenAPI document with the schema of a CRD of a release, as an API server publishes it, and the
// kind of the CRD.
func ReleaseDocument(ctx context.Context, version, plural string) (document []byte, kind string, err error) {
	dir, err := ReleaseCRDs(ctx, version)
	if err != nil {
		return nil, "", err
	}
	objects, err := ReadObjects(filepath.Join(dir, "trainer.kubeflow.org_"+plural+".yaml"))
	if err != nil {
		return nil, "", err
	}
	kind, _, _ = unstructured.NestedString(objects[0].Object, "spec", "names", "kind")
	versions, _, _ := unstructured.NestedSlice(objects[0].Object, "spec", "versions")
	schema, _, err := unstructured.NestedMap(versions[0].(map[string]any), "schema", "openAPIV3Schema")
	if err != nil {
		return nil, "", err
	}
	const group = "io.kubeflow.trainer.v1alpha1."
	document, err = json.Marshal(map[string]any{"openapi": "3.0.0", "components": map[string]any{"schemas": map[string]any{
		group + kind: schema, group + kind + "List": map[string]any{"type": "object"},
	}}})
	return document, kind, err
}
