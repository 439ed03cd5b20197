// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// result is how a test has ended.
type result int

const (
	// missing: it has not run, as where the clusters did not start.
	missing result = iota
	passed
	failed
)

// String names the result for people.
func (r result) String() string { return [...]string{"did not run", "passed", "failed"}[r] }

// workshop builds broken programs, and runs tests with them.
type workshop struct {
	root     string
	logs     string
	patience time.Duration
	// dir is temporary: bin/ for the programs, and the compiled tests.
	dir string
}

func newWorkshop(root, logs string, patience time.Duration) (*workshop, error) {
	dir, err := os.MkdirTemp("", "broken-")
	if err != nil {
		return nil, err
	}
	w := &workshop{root: root, logs: logs, patience: patience, dir: dir}
	if err := errors.Join(os.MkdirAll(logs, 0o750), os.Mkdir(w.bin(), 0o750)); err != nil {
		return nil, err
	}
	for _, name := range []string{"controlplane", "kubectl", "jobset-manager", "kwok", "kueue"} {
		if err := os.Symlink(filepath.Join(root, "bin", name), filepath.Join(w.bin(), name)); err != nil {
			return nil, err
		}
	}
	return w, nil
}

func (w *workshop) bin() string { return filepath.Join(w.dir, "bin") }

func (w *workshop) close() { _ = os.RemoveAll(w.dir) }

// try breaks a promise, and runs its tests.
func (w *workshop) try(p promise) (map[string]result, error) {
	if err := w.build(p); err != nil {
		return nil, err
	}
	test, err := w.compiled(p.in)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(test, "-test.v", "-test.run", "^("+strings.Join(p.seenBy, "|")+")$", "-patience", w.patience.String())
	cmd.Dir = filepath.Join(w.root, "test", "faults", p.in)
	cmd.Env = append(os.Environ(), "TRAINYARD_BIN="+w.bin())
	output, _ := cmd.CombinedOutput() // That it fails is what is wanted.
	if err := os.WriteFile(filepath.Join(w.logs, p.name+".log"), output, 0o640); err != nil {
		return nil, err
	}
	results := map[string]result{}
	for _, test := range p.seenBy {
		switch text := string(output); {
		case strings.Contains(text, "--- FAIL: "+test+" "):
			results[test] = failed
		case strings.Contains(text, "--- PASS: "+test+" "):
			results[test] = passed
		}
	}
	return results, nil
}

// build builds manager and agent with the promise's edits.
func (w *workshop) build(p promise) error {
	replace := map[string]string{}
	for i, e := range p.edits {
		path := filepath.Join(w.root, e.file)
		from := path
		if replace[path] != "" {
			from = replace[path] // Another edit of the same file.
		}
		source, err := os.ReadFile(from)
		if err != nil {
			return err
		}
		edited, err := e.apply(string(source))
		if err != nil {
			return err
		}
		replace[path] = filepath.Join(w.dir, fmt.Sprintf("%d-%s", i, filepath.Base(e.file)))
		if err := os.WriteFile(replace[path], []byte(edited), 0o640); err != nil {
			return err
		}
	}
	overlay, err := json.Marshal(map[string]any{"Replace": replace})
	if err != nil {
		return err
	}
	file := filepath.Join(w.dir, "overlay.json")
	if err := os.WriteFile(file, overlay, 0o640); err != nil {
		return err
	}
	return w.command(w.root, "go", "build", "-overlay", file, "-o", w.bin()+"/", "./cmd/...")
}

// compiled is the test program of a package of the fault tests.
func (w *workshop) compiled(in string) (string, error) {
	program := filepath.Join(w.dir, strings.ReplaceAll("faults-"+in, "/", "-")+".test")
	if _, err := os.Stat(program); err == nil {
		return program, nil
	}
	dir := filepath.Join(w.root, "test", "faults")
	return program, w.command(dir, "go", "test", "-c", "-o", program, "./"+in)
}

func (w *workshop) command(dir, name string, args ...string) error {
	cmd := exec.Command(name, args...)
	cmd.Dir = dir
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, output)
	}
	return nil
}
