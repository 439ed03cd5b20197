// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package build

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
)

// Program is a main package of the repository.
type Program struct {
	Name    string // Of the binary and of the image.
	Package string // Relative to the root: "./cmd/manager".
	Summary string // One sentence for people who look at the image.
}

// Products are the programs that a release has.
func Products() []Program {
	return []Program{
		{Name: "manager", Package: "./cmd/manager", Summary: "Dispatches the TrainJobs of a hub cluster to worker clusters"},
		{Name: "worker-agent", Package: "./cmd/worker-agent", Summary: "Runs and fences the TrainJobs of a worker cluster"},
		{Name: Plugin, Package: "./cmd/kubectl-trainyard", Summary: "Plugin of kubectl that shows the TrainJobs of a hub"},
	}
}

// TestPrograms are the programs that only tests run. They have images, and no release has them.
func TestPrograms() []Program {
	return []Program{
		{Name: "toy-train", Package: "./test/training", Summary: "Trains a toy model on several nodes"},
	}
}

// Plugin is the name of kubectl's plugin.
const Plugin = "kubectl-trainyard"

// Platform is what Go calls GOOS and GOARCH.
type Platform struct{ OS, Arch string }

// ParsePlatform reads "linux/amd64".
func ParsePlatform(s string) (Platform, error) {
	os, arch, found := strings.Cut(s, "/")
	if !found || os == "" || arch == "" || strings.Contains(arch, "/") {
		return Platform{}, fmt.Errorf("platform %q: want OS/ARCHITECTURE, for example linux/arm64", s)
	}
	return Platform{OS: os, Arch: arch}, nil
}

func (p Platform) String() string { return p.OS + "/" + p.Arch }

// Binary is a program compiled for a platform.
type Binary struct {
	Program  Program
	Platform Platform
	Path     string
}

// FileName is the name of the program on its platform.
func (b Binary) FileName() string {
	if b.Platform.OS == "windows" {
		return b.Program.Name + ".exe"
	}
	return b.Program.Name
}

const versionPackage = "github.com/trainyard/trainyard/cmd/internal/version"

// Compile builds programs for one platform into folder/OS_ARCH.
func Compile(ctx context.Context, s Source, programs []Program, platform Platform, folder string) ([]Binary, error) {
	folder = filepath.Join(folder, platform.OS+"_"+platform.Arch)
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return nil, err
	}
	var binaries []Binary
	for _, program := range programs {
		binary := Binary{Program: program, Platform: platform}
		binary.Path = filepath.Join(folder, binary.FileName())
		flags := fmt.Sprintf("-s -w -X %[1]s.release=%[2]s -X %[1]s.revision=%[3]s", versionPackage, s.Version, s.Revision)
		command := exec.CommandContext(ctx, "go", "build", "-trimpath", "-buildvcs=false", "-ldflags="+flags,
			"-o", binary.Path, program.Package)
		command.Dir, command.Env = s.Root, Environment(platform)
		if out, err := command.CombinedOutput(); err != nil {
			return nil, fmt.Errorf("build %s for %s: %w\n%s", program.Name, platform, err, out)
		}
		binaries = append(binaries, binary)
	}
	return binaries, nil
}

// Environment is the environment of this process without everything that could change a binary.
func Environment(platform Platform) []string {
	return append(os.Environ(),
		"GOOS="+platform.OS, "GOARCH="+platform.Arch, "GOAMD64=v1", "GOARM64=v8.0",
		"CGO_ENABLED=0", "GOFLAGS=", "GOEXPERIMENT=", "GOWORK=off", "GOFIPS140=off",
		"GOTOOLCHAIN="+runtime.Version()) // If a name has two values, the last value counts.
}
