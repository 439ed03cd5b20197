// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package bundle

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"

	"github.com/trainyard/trainyard/hack/release/internal/build"
)

// WriteBillOfMaterials writes what a binary is made of: its modules with hashes and licences, as CycloneDX.
func WriteBillOfMaterials(ctx context.Context, source build.Source, b build.Binary, path string) error {
	err := runTool(ctx, source, "hack/tools/sbom", "github.com/CycloneDX/cyclonedx-gomod/cmd/cyclonedx-gomod", "bin", "-json", "-std", "-licenses",
		"-noserial", "-notimestamp", "-version", source.Version, "-output", path, b.Path)
	if err != nil {
		return fmt.Errorf("write the bill of materials of %s for %s: %w", b.Program.Name, b.Platform, err)
	}
	return nil
}

// CheckKrewManifest lets krew judge the manifest in a folder. It does not download the archives.
func CheckKrewManifest(ctx context.Context, source build.Source, folder string) error {
	manifest := filepath.Join(folder, KrewFile)
	err := runTool(ctx, source, "hack/tools/krew", "sigs.k8s.io/krew/cmd/validate-krew-manifest", "-skip-install", "-manifest", manifest)
	if err != nil {
		return fmt.Errorf("check %s: %w", manifest, err)
	}
	return nil
}

// runTool compiles a tool, given as the path of its package, in the module that pins it, and runs it in the root of the
// repository. The tool asks no module proxy: the modules of a binary are in Go's cache since the binary was built.
func runTool(ctx context.Context, source build.Source, module, tool string, args ...string) error {
	folder := filepath.Join(source.Root, "_output", "tools")
	// A bill of materials has the checksum of the tool that wrote it. So the tool must be the same on each machine.
	compile := exec.CommandContext(ctx, "go", "build", "-C", filepath.Join(source.Root, module),
		"-trimpath", "-buildvcs=false", "-o", folder+string(filepath.Separator), tool)
	compile.Env = build.Environment(build.Platform{OS: runtime.GOOS, Arch: runtime.GOARCH})
	if out, err := compile.CombinedOutput(); err != nil {
		return fmt.Errorf("build %s of %s: %w\n%s", tool, module, err, bytes.TrimSpace(out))
	}
	command := exec.CommandContext(ctx, filepath.Join(folder, path.Base(tool)), args...)
	command.Dir, command.Env = source.Root, append(os.Environ(), "GOPROXY=off")
	if out, err := command.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", path.Base(tool), err, bytes.TrimSpace(out))
	}
	return nil
}
