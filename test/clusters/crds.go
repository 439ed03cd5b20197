// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var crdResource = schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}

// InstallCRDs applies the CustomResourceDefinitions in files and directories, and waits until their kinds can be used.
// It skips other objects, and fails if there are no CustomResourceDefinitions. On a cluster with controllers prefer
// Options.CRDs.
func (c *Cluster) InstallCRDs(ctx context.Context, paths ...string) error {
	crds, err := readCRDs(paths...)
	if err != nil {
		return err
	}
	return c.applyCRDs(ctx, crds)
}

func (c *Cluster) applyCRDs(ctx context.Context, crds []*unstructured.Unstructured) error {
	if err := c.ApplyObjects(ctx, crds...); err != nil {
		return err
	}
	return c.waitCRDs(ctx, crds)
}

func (c *Cluster) waitCRDs(ctx context.Context, crds []*unstructured.Unstructured) error {
	for _, crd := range crds {
		err := c.waitFor(ctx, "CRD "+crd.GetName(), func(ctx context.Context) error { return c.probeCRD(ctx, crd.GetName()) })
		if err != nil {
			return err
		}
	}
	return nil
}

// crdsIn has what readCRDs has read, by path: a process starts several clusters with the same megabytes of YAML.
var crdsIn sync.Map

// readCRDs returns the CustomResourceDefinitions in files and directories, without the descriptions of their fields. No
// test reads descriptions, and the API server converts and stores them several times at each start.
func readCRDs(paths ...string) ([]*unstructured.Unstructured, error) {
	var crds []*unstructured.Unstructured
	for _, path := range paths {
		read, _ := crdsIn.LoadOrStore(path, sync.OnceValues(func() ([]*unstructured.Unstructured, error) {
			objects, err := ReadObjects(path)
			objects = slices.DeleteFunc(objects, func(o *unstructured.Unstructured) bool { return o.GetKind() != "CustomResourceDefinition" })
			for _, object := range objects {
				dropDescriptions(object.Object)
			}
			return objects, err
		}))
		found, err := read.(func() ([]*unstructured.Unstructured, error))()
		if err != nil {
			return nil, fmt.Errorf("read CRDs: %w", err)
		}
		crds = append(crds, found...)
	}
	if len(crds) == 0 {
		return nil, fmt.Errorf("no CustomResourceDefinition in %s", strings.Join(paths, ", "))
	}
	return crds, nil
}

// dropDescriptions deletes each description that is a text. A field may have that name: then it is a schema.
func dropDescriptions(value any) {
	switch value := value.(type) {
	case map[string]any:
		if _, text := value["description"].(string); text {
			delete(value, "description")
		}
		for _, each := range value {
			dropDescriptions(each)
		}
	case []any:
		for _, each := range value {
			dropDescriptions(each)
		}
	}
}

// probeCRD returns nil when a CRD is established and discovery lists its
// served versions, which comes a little later.
func (c *Cluster) probeCRD(ctx context.Context, name string) error {
	crd, err := c.dynamic.Resource(crdResource).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if !conditionTrue(crd, "Established") {
		return fmt.Errorf("%s is not established", name)
	}
	group, _, _ := unstructured.NestedString(crd.Object, "spec", "group")
	plural, _, _ := unstructured.NestedString(crd.Object, "spec", "names", "plural")
	versions, _, _ := unstructured.NestedSlice(crd.Object, "spec", "versions")
	for _, v := range versions {
		version, ok := v.(map[string]any)
		if !ok || version["served"] != true {
			continue
		}
		if err := c.probeResource(fmt.Sprintf("%s/%s", group, version["name"]), plural); err != nil {
			return err
		}
	}
	return nil
}

func (c *Cluster) probeResource(groupVersion, plural string) error {
	list, err := c.kubernetes.Discovery().ServerResourcesForGroupVersion(groupVersion)
	if err != nil {
		return err
	}
	for _, r := range list.APIResources {
		if r.Name == plural {
			return nil
		}
	}
	return fmt.Errorf("%s is not served in %s", plural, groupVersion)
}

// conditionTrue says whether an object has the condition with status True.
func conditionTrue(object *unstructured.Unstructured, kind string) bool {
	conditions, _, _ := unstructured.NestedSlice(object.Object, "status", "conditions")
	for _, c := range conditions {
		if condition, ok := c.(map[string]any); ok && condition["type"] == kind {
			return condition["status"] == "True"
		}
	}
	return false
}

// readFirstCRDs sets firstCRDs.
func (o *Options) readFirstCRDs(ctx context.Context) error {
	paths := o.CRDs
	if o.JobSet {
		crds, err := jobSetCRDs(ctx)
		if err != nil {
			return err
		}
		paths = append(paths[:len(paths):len(paths)], crds)
	}
	if len(paths) == 0 {
		return nil
	}
	crds, err := readCRDs(paths...)
	o.firstCRDs = append(o.firstCRDs, crds...)
	return err
}

// installFirstCRDs returns when the kinds can be used that have to be there before the controllers are.
func (c *Cluster) installFirstCRDs(ctx context.Context) error {
	if c.backend.hasFirstCRDs() {
		return c.waitCRDs(ctx, c.options.firstCRDs)
	}
	return c.applyCRDs(ctx, c.options.firstCRDs)
}
