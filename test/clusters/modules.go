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
	"strings"
)

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
