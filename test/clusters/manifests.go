// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/discovery/cached/memory"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/restmapper"
)

// ParseObjects returns the objects of a YAML stream. It skips empty documents.
func ParseObjects(data []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		object := &unstructured.Unstructured{}
		switch err := decoder.Decode(&object.Object); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, err
		case len(object.Object) > 0:
			objects = append(objects, object)
		}
	}
}

// ReadObjects returns the objects in YAML files, and in the YAML files of directories except kustomization.yaml. It
// does not read subdirectories, and does not run kustomize. Kubectl does both.
func ReadObjects(paths ...string) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	for _, path := range paths {
		files, err := yamlFiles(path)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			data, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			parsed, err := ParseObjects(data)
			if err != nil {
				return nil, fmt.Errorf("parse %s: %w", file, err)
			}
			objects = append(objects, parsed...)
		}
	}
	return objects, nil
}

// yamlFiles returns path if it is a file, or else the YAML files in it, sorted.
func yamlFiles(path string) ([]string, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	entries, err := os.ReadDir(path)
	if err != nil {
		return nil, err
	}
	var files []string
	for _, e := range entries {
		if slices.Contains([]string{".yaml", ".yml"}, filepath.Ext(e.Name())) && e.Name() != "kustomization.yaml" {
			files = append(files, filepath.Join(path, e.Name()))
		}
	}
	return files, nil
}

// fieldManager is the name under which this package applies objects.
const fieldManager = "trainyard-clusters"

// Apply applies the objects of YAML streams in their order, with server-side apply. An object without a namespace goes
// to "default" if its kind is namespaced. Apply takes over fields that others manage.
func (c *Cluster) Apply(ctx context.Context, streams ...string) error {
	for _, stream := range streams {
		objects, err := ParseObjects([]byte(stream))
		if err != nil {
			return fmt.Errorf("parse manifest: %w", err)
		}
		if err := c.ApplyObjects(ctx, objects...); err != nil {
			return err
		}
	}
	return nil
}

// ApplyFiles is Apply for files and directories, as in ReadObjects.
func (c *Cluster) ApplyFiles(ctx context.Context, paths ...string) error {
	objects, err := ReadObjects(paths...)
	if err != nil {
		return err
	}
	return c.ApplyObjects(ctx, objects...)
}

// ApplyKustomization is Apply for what kubectl makes of a directory with a kustomization.
func (c *Cluster) ApplyKustomization(ctx context.Context, dir string) error {
	if err := Inputs(filepath.Dir(dir)); err != nil { // A kustomization may name its neighbours.
		return err
	}
	stream, err := c.Kubectl(ctx, "kustomize", dir)
	if err != nil {
		return err
	}
	return c.Apply(ctx, string(stream))
}

// ApplyTrainerRuntimes is ApplyFiles for files and directories with runtimes of the trainer module.
func (c *Cluster) ApplyTrainerRuntimes(ctx context.Context, names ...string) error {
	runtimes, err := ModulePaths(ctx, ModuleFile{trainerModule, "manifests/base/runtimes"})
	if err != nil {
		return err
	}
	var paths []string
	for _, name := range names {
		paths = append(paths, filepath.Join(runtimes[0], name))
	}
	return c.ApplyFiles(ctx, paths...)
}

// ApplyObjects is Apply for objects.
func (c *Cluster) ApplyObjects(ctx context.Context, objects ...*unstructured.Unstructured) error {
	mapper := restmapper.NewDeferredDiscoveryRESTMapper(memory.NewMemCacheClient(c.kubernetes.Discovery()))
	for _, object := range objects {
		var answer error
		err := c.waitFor(ctx, "an answer to the apply", func(ctx context.Context) error {
			if answer = c.applyObject(ctx, mapper, object); unanswered(answer) {
				return answer
			}
			return nil
		})
		if err = cmp.Or(err, answer); err != nil {
			return fmt.Errorf("apply %s %q to cluster %q: %w", object.GetKind(), object.GetName(), c.Name, err)
		}
	}
	return nil
}

func (c *Cluster) applyObject(ctx context.Context, mapper meta.RESTMapper, object *unstructured.Unstructured) error {
	resource, err := c.resourceFor(mapper, object)
	if err != nil {
		return err
	}
	_, err = resource.Apply(ctx, object.GetName(), object, metav1.ApplyOptions{FieldManager: fieldManager, Force: true})
	return err
}

// unanswered says whether a request had no answer in time: an API server on a busy machine gives up after half a
// minute.
func unanswered(err error) bool {
	return apierrors.IsTimeout(err) || apierrors.IsServerTimeout(err) || apierrors.IsTooManyRequests(err) ||
		utilnet.IsTimeout(err) || utilnet.IsProbableEOF(err) || utilnet.IsConnectionReset(err) || utilnet.IsConnectionRefused(err)
}

// resourceFor returns the client for an object. The mapper asks the server
// again by itself when it does not know a kind.
func (c *Cluster) resourceFor(mapper meta.RESTMapper, object *unstructured.Unstructured) (dynamic.ResourceInterface, error) {
	gvk := object.GroupVersionKind()
	mapping, err := mapper.RESTMapping(gvk.GroupKind(), gvk.Version)
	if err != nil {
		return nil, err
	}
	client := c.dynamic.Resource(mapping.Resource)
	if mapping.Scope.Name() == meta.RESTScopeNameRoot {
		return client, nil
	}
	namespace := object.GetNamespace()
	if namespace == "" {
		namespace = metav1.NamespaceDefault
	}
	return client.Namespace(namespace), nil
}
