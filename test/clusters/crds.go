// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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

const (
	rootModule    = "github.com/trainyard/trainyard"
	trainerModule = "github.com/kubeflow/trainer/v2"
)

// ModuleFile is a file or directory in the repository, or in a module that the repository requires.
type ModuleFile struct{ Module, Path string }

// What many tests install. A hub has TrainerCRDs and HubCRDs, a worker TrainerCRDs and WorkerCRDs; JobSetCRDs are for
// clusters on which Options.JobSet is off.
var (
	TrainerCRDs = ModuleFile{trainerModule, "manifests/base/crds"}
	JobSetCRDs  = ModuleFile{jobSetModule, "config/components/crd/bases"}
	HubCRDs     = ModuleFile{rootModule, "config/crd/bases"}
	WorkerCRDs  = ModuleFile{rootModule, "config/crd/worker"}
)

// ModulePaths returns the paths of files in modules, for ReadObjects and Options.CRDs.
func ModulePaths(ctx context.Context, files ...ModuleFile) ([]string, error) {
	var paths []string
	for _, file := range files {
		dir, err := ModuleDir(ctx, file.Module)
		if err != nil {
			return nil, err
		}
		paths = append(paths, filepath.Join(dir, file.Path))
	}
	return paths, nil
}

// ModuleDir returns the directory in the module cache of a module that the repository requires, in the required
// version. It downloads the module if necessary. So manifests of third parties need no copy in the repository.
func ModuleDir(ctx context.Context, module string) (string, error) {
	root, err := repositoryRoot()
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	dir, err := listModule(ctx, root, module)
	if err == nil && dir == "" {
		if _, err = runGo(ctx, root, "mod", "download", module); err == nil {
			dir, err = listModule(ctx, root, module)
		}
	}
	if err == nil && dir == "" {
		err = errors.New("not in the module cache after a download")
	}
	if err != nil {
		return "", fmt.Errorf("find module %s: %w", module, err)
	}
	return dir, nil
}

func listModule(ctx context.Context, root, module string) (string, error) {
	return runGo(ctx, root, "list", "-m", "-f", "{{.Dir}}", module)
}

func runGo(ctx context.Context, dir string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("go %s: %w: %s", strings.Join(args, " "), err, bytes.TrimSpace(stderr.Bytes()))
	}
	return string(bytes.TrimSpace(out)), nil
}

// repositoryRoot returns the directory of the root module, going up from the
// working directory, past modules nested in it.
func repositoryRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	return rootAbove(start)
}

func rootAbove(start string) (string, error) {
	for dir := start; ; dir = filepath.Dir(dir) {
		data, err := os.ReadFile(filepath.Join(dir, "go.mod"))
		if err == nil && moduleName(data) == rootModule {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%s is not inside the module %s", start, rootModule)
		}
	}
}

func moduleName(goMod []byte) string {
	for line := range strings.Lines(string(goMod)) {
		if name, ok := strings.CutPrefix(strings.TrimSpace(line), "module "); ok {
			return strings.TrimSpace(name)
		}
	}
	return ""
}
