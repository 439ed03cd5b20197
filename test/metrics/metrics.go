// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// Package metrics compares docs/metrics.md with what a process has: with its registry, which knows each metric, and with
// what it serves. test/monitoring holds alerts and dashboards against docs/metrics.md, so they read what exists.
//
//	metrics.CheckRegistry(t, metrics.Jobs, metrics.Workers)
//	metrics.CheckServed(t, body)
package metrics

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
)

// Section is a heading of docs/metrics.md with a table of metrics.
type Section string

// The sections with tables.
const (
	Waiting Section = "The fleet and the waiting list"
	Jobs    Section = "The way of a job"
	Workers Section = "Workers and what is lost"
	Agent   Section = "The agent"
	// Other metrics are not Trainyard's.
	Other Section = "Other metrics"
)

var row = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]*) \\|")

// documented returns the labels of the metrics in a section by name, as "a, b": sorted.
func documented(t *testing.T, section Section) map[string]string {
	t.Helper()
	module, err := clusters.ModuleDir(t.Context(), "github.com/trainyard/trainyard")
	check.Must(t, err)
	text, err := os.ReadFile(filepath.Join(module, "docs", "metrics.md"))
	check.Must(t, err)
	_, after, _ := strings.Cut(string(text), "\n## "+string(section)+"\n")
	body, _, _ := strings.Cut(after, "\n## ")
	all := map[string]string{}
	for _, match := range row.FindAllStringSubmatch(body, -1) {
		all[match[1]] = sorted(strings.FieldsFunc(match[2], func(r rune) bool { return r == ',' || r == ' ' }))
	}
	if len(all) == 0 {
		t.Fatalf("docs/metrics.md has no metrics in the section %q", section)
	}
	return all
}

// documentedOurs returns the metrics of Trainyard in all sections.
func documentedOurs(t *testing.T) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, section := range []Section{Waiting, Jobs, Workers, Agent} {
		maps.Copy(all, documented(t, section))
	}
	return all
}

func sorted(labels []string) string { return strings.Join(slices.Sorted(slices.Values(labels)), ", ") }

var described = regexp.MustCompile(`fqName: "(\w+)".*variableLabels: {([^}]*)}`)

// CheckRegistry checks that sections of docs/metrics.md have the metrics of Trainyard that the program of the test can
// serve, each with its labels, and no other. Programs share packages, so a metric that is in another section counts too.
func CheckRegistry(t *testing.T, sections ...Section) {
	t.Helper()
	want, ours := map[string]string{}, documentedOurs(t)
	for _, section := range sections {
		maps.Copy(want, documented(t, section))
	}
	got := map[string]string{}
	for _, desc := range descriptions(t) {
		match := described.FindStringSubmatch(desc.String())
		if match == nil {
			t.Fatalf("%s cannot be read", desc)
		}
		name, labels := match[1], sorted(strings.FieldsFunc(match[2], func(r rune) bool { return r == ',' }))
		_, here := want[name]
		if documented, elsewhere := ours[name]; !here && elsewhere && documented == labels {
			continue
		}
		if strings.HasPrefix(name, "trainyard_") {
			got[name] = labels
		}
	}
	check.Diff(t, want, got, "docs/metrics.md differs from the registry: make generate writes its tables (-docs +registry)")
}

func descriptions(t *testing.T) (all []*prometheus.Desc) {
	t.Helper()
	registry, is := metrics.Registry.(prometheus.Collector)
	if !is {
		t.Fatalf("the registry is a %T, which does not describe its metrics", metrics.Registry)
	}
	described := make(chan *prometheus.Desc)
	go func() {
		defer close(described)
		registry.Describe(described)
	}()
	for desc := range described {
		all = append(all, desc)
	}
	return all
}

// CheckServed checks what a process serves at /metrics: each metric of Trainyard is in docs/metrics.md with its labels,
// and so are the other metrics that alerts and dashboards read.
func CheckServed(t *testing.T, body string) {
	t.Helper()
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(body))
	check.Must(t, err)
	ours, others := documentedOurs(t), documented(t, Other)
	for name := range others {
		if families[name] == nil {
			t.Errorf("docs/metrics.md has %s, and the process does not serve it", name)
		}
	}
	seen := 0
	for name, family := range families {
		want, known := others[name]
		if strings.HasPrefix(name, "trainyard_") {
			want, known = ours[name]
			seen++
			if !known {
				t.Errorf("the process serves %s, and docs/metrics.md does not have it", name)
			}
		}
		if !known {
			continue
		}
		for _, metric := range family.Metric {
			var labels []string
			for _, pair := range metric.Label {
				labels = append(labels, pair.GetName())
			}
			check.Equal(t, want, sorted(labels), "labels of %s", name)
		}
	}
	if seen == 0 {
		t.Error("the process serves no metrics of Trainyard")
	}
}
