// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/parser"
)

// sections are those of docs/metrics.md with the metrics of a process. cmd/manager and cmd/worker-agent test that these
// sections have what the processes have.
var sections = map[string][]string{
	"hub":    {"The fleet and the waiting list", "The way of a job", "Workers and what is lost", "Other metrics"},
	"worker": {"The agent", "Other metrics"},
}

var metricRow = regexp.MustCompile("(?m)^\\| `(\\w+)` \\| ([^|]*) \\|(.*)$")

// readMetrics returns the labels of the metrics of a process, by name. A histogram has its three metrics.
func readMetrics(t *testing.T, process string) map[string][]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(root, "docs/metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string][]string{}
	for _, section := range sections[process] {
		_, after, found := strings.Cut(string(text), "\n## "+section+"\n")
		body, _, _ := strings.Cut(after, "\n## ")
		rows := metricRow.FindAllStringSubmatch(body, -1)
		if !found || len(rows) == 0 {
			t.Fatalf("docs/metrics.md has no metrics in the section %s", section)
		}
		for _, row := range rows {
			names := strings.FieldsFunc(row[2], func(r rune) bool { return r == ',' || r == ' ' })
			if !strings.HasPrefix(row[3], " histogram: ") {
				all[row[1]] = names
				continue
			}
			all[row[1]+"_bucket"] = append(slices.Clone(names), "le")
			all[row[1]+"_count"], all[row[1]+"_sum"] = names, names
		}
	}
	return all
}

// found are labels that Prometheus adds.
var found = []string{"pod"}

// seriesFor makes series for which an expression shows something, with all labels that its metrics have. The faults are
// metrics and labels in it that do not exist.
func seriesFor(t *testing.T, documented map[string][]string, expression string) (series, faults []string) {
	t.Helper()
	parsed, err := parser.NewParser(parser.Options{}).ParseExpr(expression)
	if err != nil {
		t.Fatal(err)
	}
	parser.Inspect(parsed, func(node parser.Node, path []parser.Node) error {
		selector, is := node.(*parser.VectorSelector)
		if !is {
			return nil
		}
		names, is := documented[selector.Name]
		if !is {
			faults = append(faults, selector.Name+" is no metric of the process")
			return nil
		}
		names = append(slices.Clone(names), found...)
		for _, label := range append(matched(selector), grouped(path)...) {
			if !slices.Contains(names, label) {
				faults = append(faults, selector.Name+" has no label "+label)
			}
		}
		series = append(series, seriesOf(selector, names)...)
		return nil
	})
	slices.Sort(series)
	return slices.Compact(series), faults
}

func matched(selector *parser.VectorSelector) (all []string) {
	for _, m := range selector.LabelMatchers {
		if m.Name != model.MetricNameLabel {
			all = append(all, m.Name)
		}
	}
	return all
}

// grouped are the labels by which what is around a metric groups and joins.
func grouped(path []parser.Node) (all []string) {
	for _, node := range path {
		switch node := node.(type) {
		case *parser.AggregateExpr:
			if !node.Without {
				all = append(all, node.Grouping...)
			}
		case *parser.BinaryExpr:
			if node.VectorMatching != nil && node.VectorMatching.On {
				all = append(all, node.VectorMatching.MatchingLabels...)
			}
		}
	}
	return all
}

// seriesOf returns the series of a metric that a selector selects: one, or the buckets of a histogram. They grow.
func seriesOf(selector *parser.VectorSelector, names []string) (series []string) {
	var pairs []string
	for _, name := range names {
		if name == "le" {
			continue
		}
		pairs = append(pairs, name+`="`+valueFor(selector, name)+`"`)
	}
	if !slices.Contains(names, "le") {
		return []string{selector.Name + "{" + strings.Join(pairs, ",") + "} 1+1x30"}
	}
	for _, bound := range []string{"1", "20", "+Inf"} {
		series = append(series, selector.Name+"{"+strings.Join(append(slices.Clone(pairs), `le="`+bound+`"`), ",")+"} 0+5x30")
	}
	return series
}

// valueFor returns a value of a label that all matchers of a selector take.
func valueFor(selector *parser.VectorSelector, label string) string {
	candidates := []string{"some"}
	for _, m := range selector.LabelMatchers {
		candidates = append(candidates, m.Value)
		candidates = append(candidates, strings.Split(m.Value, "|")...)
	}
	for _, value := range candidates {
		if !slices.ContainsFunc(selector.LabelMatchers, func(m *labels.Matcher) bool { return m.Name == label && !m.Matches(value) }) {
			return value
		}
	}
	return "none"
}

// TestAlertsReadWhatExists checks that each metric in an alert is one of its process, with the labels that the alert
// names.
func TestAlertsReadWhatExists(t *testing.T) {
	for _, process := range []string{"hub", "worker"} {
		documented := readMetrics(t, process)
		for name, r := range readRules(t, process) {
			if _, faults := seriesFor(t, documented, r.Expr); len(faults) > 0 {
				t.Errorf("%s: %s", name, strings.Join(faults, ", "))
			}
		}
	}
}
