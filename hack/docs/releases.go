// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// releaseResults has a line for each pair of Kubernetes releases with which the end-to-end tests have run: the versions of
// hub and workers, and how many tests have passed, were skipped, and have failed.
const releaseResults = "test/e2e-multicluster/releases.tsv"

// releases is the table of these results. It is an error if the control planes of the tests have other versions by now.
func releases() (string, error) {
	known, err := controlPlanes()
	if err != nil {
		return "", err
	}
	data, err := os.ReadFile(filepath.Join(os.Args[1], releaseResults))
	if err != nil {
		return "", err
	}
	if len(data) == 0 {
		return "There are no results yet.", nil
	}
	rows := [][]string{{"hub", "workers", "end-to-end tests"}}
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSpace(line), "\t")
		if len(fields) != 5 {
			return "", fmt.Errorf("%s: %q has %d fields, want 5", releaseResults, line, len(fields))
		}
		for _, version := range fields[:2] {
			if !slices.Contains(known, version) {
				return "", fmt.Errorf("%s is about Kubernetes %s, and test/controlplane builds %s: run make test-versions",
					releaseResults, version, strings.Join(known, ", "))
			}
		}
		words := fields[2] + " passed"
		for i, count := range fields[3:] {
			if count != "0" {
				words += ", " + count + []string{" skipped", " failed"}[i]
			}
		}
		rows = append(rows, []string{fields[0], fields[1], words})
	}
	return table(rows), nil
}

// controlPlanes returns the versions of Kubernetes that test/controlplane builds.
func controlPlanes() ([]string, error) {
	paths, err := filepath.Glob(filepath.Join(os.Args[1], "test/controlplane/releases/*.mod"))
	if err != nil {
		return nil, err
	}
	var versions []string
	for _, path := range append(paths, filepath.Join(os.Args[1], "test/controlplane/go.mod")) {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for line := range strings.Lines(string(data)) {
			if words := strings.Fields(line); len(words) == 2 && words[0] == "k8s.io/kubernetes" {
				versions = append(versions, words[1])
			}
		}
	}
	slices.Sort(versions)
	return versions, nil
}
