// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package registration

import (
	"fmt"
	"io/fs"
	"sync"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/api/types"
	"sigs.k8s.io/kustomize/kyaml/filesys"

	"github.com/trainyard/trainyard/config"
)

// built are the objects of the folders that were built. A build costs more than all requests of a join.
var built sync.Map

// manifests returns the objects of a folder of config, as "kubectl kustomize" prints them. The caller may change them.
func manifests(folder string) ([]*unstructured.Unstructured, error) {
	objects, ok := built.Load(folder)
	if !ok {
		fresh, err := build(folder)
		if err != nil {
			return nil, err
		}
		objects, _ = built.LoadOrStore(folder, fresh)
	}
	var copies []*unstructured.Unstructured
	for _, object := range objects.([]*unstructured.Unstructured) {
		copies = append(copies, object.DeepCopy())
	}
	return copies, nil
}

func build(folder string) ([]*unstructured.Unstructured, error) {
	disk := filesys.MakeFsInMemory()
	err := fs.WalkDir(config.Files, ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := config.Files.ReadFile(path)
		if err != nil {
			return err
		}
		return disk.WriteFile("/"+path, data)
	})
	if err != nil {
		return nil, fmt.Errorf("read the manifests in this program: %w", err)
	}
	options := krusty.MakeDefaultOptions()
	options.LoadRestrictions = types.LoadRestrictionsRootOnly
	options.Reorder = krusty.ReorderOptionLegacy // Namespaces and CRDs first, webhooks last.
	result, err := krusty.MakeKustomizer(options).Run(disk, "/"+folder)
	if err != nil {
		return nil, fmt.Errorf("build config/%s: %w", folder, err)
	}
	var objects []*unstructured.Unstructured
	for _, resource := range result.Resources() {
		data, err := resource.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("build config/%s: %w", folder, err)
		}
		object := &unstructured.Unstructured{}
		if err := object.UnmarshalJSON(data); err != nil {
			return nil, fmt.Errorf("decode an object of config/%s: %w", folder, err)
		}
		objects = append(objects, object)
	}
	return objects, nil
}
