// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"os"
	"path/filepath"
	"strings"
)

// staleFormat prints a line for each package that Go's build cache lacks. go list calls a program stale, too, if it
// only has to be linked again.
const staleFormat = `{{if and .Stale (ne .StaleReason "not installed but available in build cache")}}` +
	`{{.ImportPath}}{{"\t"}}{{.Name}}{{"\t"}}{{.Dir}}{{"\t"}}{{join .GoFiles "\t"}}{{"\t"}}{{join .CgoFiles "\t"}}{{end}}`

// total is what a build has to compile.
type total struct {
	sources  map[string]int64 // bytes of source by package
	programs map[string]bool  // packages main
}

// stale returns what is to be compiled. It returns nil if go list fails: go build says why, or has ended.
func stale(ctx context.Context, a arguments) *total {
	args := append([]string{"list", "-deps", "-f", staleFormat}, a.shared...)
	output, err := goCommand(ctx, a.dir, args...).Output()
	if err != nil {
		return nil
	}
	t := &total{sources: map[string]int64{}, programs: map[string]bool{}}
	for line := range strings.Lines(string(output)) {
		words := strings.Split(strings.TrimSpace(line), "\t")
		switch {
		case len(words) < 3:
		case words[1] == "main":
			t.programs[words[0]] = true
		default:
			t.sources[words[0]] = size(words[2], words[3:])
		}
	}
	return t
}

// size returns the bytes of files in a directory.
func size(dir string, files []string) int64 {
	var sum int64
	for _, file := range files {
		if info, err := os.Stat(filepath.Join(dir, file)); err == nil && file != "" {
			sum += info.Size()
		}
	}
	return sum
}
