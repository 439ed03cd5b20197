// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package contract

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/contract/framework"
)

const (
	trainerModule = "github.com/kubeflow/trainer/v2"
	thisModule    = "github.com/trainyard/trainyard/test/contract"
	// virtual is the directory in which the copies are packages of this module. Only the overlay has it, not the disk.
	virtual = "upstream"
)

// change is a difference between a copy and its original.
type change struct {
	old *regexp.Regexp
	new string
}

var changes = []change{
	{regexp.MustCompile(`"` + trainerModule + `/test/integration/framework"`), `"` + thisModule + `/framework"`},
	{regexp.MustCompile(`"` + trainerModule + `/test/util"`), `"` + thisModule + `/` + virtual + `/util"`},
	{regexp.MustCompile(`"` + trainerModule + `/pkg/util/testing"`), `"` + thisModule + `/` + virtual + `/testing"`},
	// The containers of upstream's runtimes and of the JobSets that it expects have no image, except where a test gives
	// them one. The API server refuses such a pod, so our webhook refuses such a TrainJob.
	{regexp.MustCompile(`(\bContainers: +\[\]corev1\.Container\{\s*\{\s*)(Name: )`), `${1}Image: "test:fixture", ${2}`},
	// A test deletes a snapshot and waits until it sees that there is none. The controller makes a new one at once, so
	// there may be another snapshot by then.
	{
		regexp.MustCompile(`g\.Expect\(k8sClient\.Get\(ctx, snapshotKey, &corev1\.ConfigMap\{\}\)\)\.Should\(testingutil\.BeNotFoundError\(\)\)`),
		"got := &corev1.ConfigMap{}\n" +
			"g.Expect(client.IgnoreNotFound(k8sClient.Get(ctx, snapshotKey, got))).To(gomega.Succeed())\n" +
			"g.Expect(got.UID).NotTo(gomega.Equal(cm.UID))",
	},
	// Limits of Eventually, for a machine with other work. Checks that something stays unchanged keep upstream's five
	// seconds.
	{regexp.MustCompile(`\bTimeout( +)= 5 \* time\.Second\b`), `Timeout${1}= time.Minute`},
	{regexp.MustCompile(`(?s)(\bgomega\.Consistently\(.*?\}, )util\.\w+,`), `${1}5*util.ConsistentDuration,`},
	// Tests that run in a fixed order are reported one by one.
	{regexp.MustCompile(`\bginkgo\.Ordered,`), `ginkgo.Ordered, ginkgo.ContinueOnFailure,`},
}

// workspace is a directory with copies of upstream's suites.
type workspace struct {
	module  string // the directory of this module
	output  string // what is made goes here
	overlay string // the file that makes the copies packages of this module
	crds    string
	suites  []string
}

// prepare copies all suites that the trainer module has.
func prepare(t *testing.T) *workspace {
	t.Helper()
	upstream, err := clusters.ModuleDir(t.Context(), trainerModule)
	must(t, err)
	module, err := filepath.Abs(".")
	must(t, err)
	w := &workspace{module: module, output: filepath.Join(module, "../../_output/contract")}
	w.overlay, w.crds = filepath.Join(w.output, "overlay.json"), filepath.Join(w.output, "crds")
	must(t, os.RemoveAll(w.output))

	var files []string
	for _, pattern := range []string{"test/integration/*/*_test.go", "test/util/*.go", "pkg/util/testing/*.go"} {
		matches, err := filepath.Glob(filepath.Join(upstream, pattern))
		must(t, err)
		files = append(files, matches...)
	}
	w.copyFiles(t, files)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			w.suites = append(w.suites, filepath.Base(filepath.Dir(file)))
		}
	}
	w.suites = slices.Compact(slices.Sorted(slices.Values(w.suites)))
	w.generateCRDs(t)
	return w
}

// copyFiles writes the changed copies, and the overlay.
func (w *workspace) copyFiles(t *testing.T, files []string) {
	t.Helper()
	replace, used := map[string]string{}, make([]bool, len(changes))
	for _, file := range files {
		data, err := os.ReadFile(file)
		must(t, err)
		for i, c := range changes {
			used[i] = used[i] || c.old.Match(data)
			data = c.old.ReplaceAll(data, []byte(c.new))
		}
		relative := filepath.Join(filepath.Base(filepath.Dir(file)), filepath.Base(file))
		target := filepath.Join(w.output, relative)
		must(t, os.MkdirAll(filepath.Dir(target), 0o755))
		must(t, os.WriteFile(target, data, 0o600))
		replace[filepath.Join(w.module, virtual, relative)] = target
	}
	if i := slices.Index(used, false); i >= 0 {
		t.Fatalf("upstream has changed its suites: nothing matches %s in %d files", changes[i].old, len(files))
	}
	data, err := json.Marshal(map[string]any{"Replace": replace})
	must(t, err)
	must(t, os.WriteFile(w.overlay, data, 0o600))
}

// generateCRDs makes Volcano's CRDs from its Go types, because no Go module has the files.
func (w *workspace) generateCRDs(t *testing.T) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", "tool", "-modfile=hack/tools/go.mod", "controller-gen", "crd",
		"paths=volcano.sh/apis/pkg/apis/scheduling/v1beta1", "output:crd:dir="+w.crds)
	cmd.Dir = filepath.Join(w.module, "../..")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("generate CRDs of Volcano: %v: %s", err, out)
	}
}

// build compiles a suite and returns the path of its executable. It does not run vet, because go vet needs the
// directory on disk.
func (w *workspace) build(t *testing.T, suite string) string {
	t.Helper()
	path := filepath.Join(w.output, suite+".test")
	cmd := exec.CommandContext(t.Context(), "go", "test", "-c", "-vet=off", "-overlay", w.overlay, "-o", path, "./"+virtual+"/"+suite)
	cmd.Dir = w.module
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build suite %s: %v: %s", suite, err, out)
	}
	return path
}

// run runs a suite and returns the path of its report. The report has the failed tests. They are no error.
func (w *workspace) run(t *testing.T, suite string) string {
	t.Helper()
	executable := w.build(t, suite)
	log, err := os.Create(filepath.Join(w.output, suite+".log"))
	must(t, err)
	defer log.Close()
	report := filepath.Join(w.output, suite+".json")
	cmd := exec.CommandContext(t.Context(), executable, "-test.timeout=20m", "-ginkgo.no-color", "-ginkgo.json-report="+report)
	cmd.Dir, cmd.Stdout, cmd.Stderr = w.module, log, log
	cmd.Env = append(os.Environ(), framework.CRDsVariable+"="+w.crds)
	runErr := cmd.Run()
	if _, err := os.Stat(report); err != nil {
		t.Fatalf("suite %s made no report: %v, see %s", suite, runErr, log.Name())
	}
	return report
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(fmt.Errorf("prepare upstream's suites: %w", err))
	}
}
