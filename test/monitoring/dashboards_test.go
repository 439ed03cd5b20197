// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"encoding/json"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sigs.k8s.io/yaml"
)

// dashboard is what Grafana reads of a dashboard, as far as the tests look at it.
type dashboard struct {
	UID        string `json:"uid"`
	Templating struct {
		List []struct {
			Name  string          `json:"name"`
			Query json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
	Panels []struct {
		ID      int    `json:"id"`
		Title   string `json:"title"`
		Type    string `json:"type"`
		GridPos struct{ X, Y, W, H int }
		Targets []struct {
			Expr         string `json:"expr"`
			LegendFormat string `json:"legendFormat"`
		} `json:"targets"`
	} `json:"panels"`
}

// readDashboards returns the dashboards in the ConfigMaps of a process by name: of hub or worker.
func readDashboards(t *testing.T, process string) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(root, "config/monitoring", process, "dashboard_*.yaml"))
	if err != nil || len(files) == 0 {
		t.Fatal("no dashboards", err)
	}
	kustomization, err := os.ReadFile(filepath.Join(root, "config/monitoring", process, "kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]dashboard{}
	for _, file := range files {
		if !strings.Contains(string(kustomization), "- "+filepath.Base(file)+"\n") {
			t.Errorf("%s is not in the kustomization", file)
		}
		var object struct {
			Metadata struct{ Labels map[string]string }
			Data     map[string]string
		}
		text, err := os.ReadFile(file)
		if err == nil {
			err = yaml.Unmarshal(text, &object)
		}
		if err != nil || len(object.Data) != 1 || object.Metadata.Labels["grafana_dashboard"] != "1" {
			t.Fatalf("%s has %d files and the labels %v, error %v", file, len(object.Data), object.Metadata.Labels, err)
		}
		for name, text := range object.Data {
			var d dashboard
			if err := json.Unmarshal([]byte(text), &d); err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			all[strings.TrimSuffix(name, ".json")] = d
		}
	}
	return all
}

// variables are what Grafana puts in the place of its variables when all values are selected.
var variables = regexp.MustCompile(`\$(__rate_interval|[a-z]+)`)

func selected(expression string) string {
	return variables.ReplaceAllStringFunc(expression, func(name string) string {
		if name == "$__rate_interval" {
			return "5m"
		}
		return ".*"
	})
}

var legendLabel = regexp.MustCompile(`{{(\w+)}}`)

// TestDashboards checks that each expression shows something for metrics with the labels that the process has, and that
// its legend names labels of the result.
func TestDashboards(t *testing.T) {
	for _, process := range []string{"hub", "worker"} {
		documented := readMetrics(t, process)
		for name, d := range readDashboards(t, process) {
			if d.UID != name {
				t.Errorf("%s has the uid %q", name, d.UID)
			}
			for _, p := range d.Panels {
				for _, target := range p.Targets {
					t.Run(name+"/"+p.Title, func(t *testing.T) {
						for _, fault := range faults(t, documented, selected(target.Expr), target.LegendFormat) {
							t.Errorf("%s\n%s", fault, target.Expr)
						}
					})
				}
			}
		}
	}
}

// faults are what is wrong with an expression and its legend.
func faults(t *testing.T, documented map[string][]string, expression, legend string) (all []string) {
	t.Helper()
	series, faults := seriesFor(t, documented, expression)
	if len(faults) > 0 {
		return faults
	}
	result := evaluate(t, expression, series)
	if len(result) == 0 {
		return []string{"nothing is shown for\n" + strings.Join(series, "\n")}
	}
	for _, label := range legendLabel.FindAllStringSubmatch(legend, -1) {
		if result[0].Metric.Get(label[1]) == "" {
			all = append(all, "the legend has the label "+label[1]+", and the result has "+result[0].Metric.String())
		}
	}
	if n := len(legendLabel.FindAllString(legend, -1)); n != result[0].Metric.Len() {
		all = append(all, "series with other labels are called the same: the legend is "+legend+", and the result has "+result[0].Metric.String())
	}
	return all
}

// TestFaults checks that the other tests notice what is wrong.
func TestFaults(t *testing.T) {
	documented := map[string][]string{"good": {"cluster"}, "other": {"state"}}
	for name, tc := range map[string]struct{ expression, legend, want string }{
		"Right":         {expression: `sum by (cluster) (rate(good[5m]))`, legend: "{{cluster}}"},
		"NoMetric":      {expression: `sum(bad)`, want: "bad is no metric"},
		"NoLabel":       {expression: `sum by (state) (good)`, legend: "{{state}}", want: "good has no label state"},
		"NoMatcher":     {expression: `good{state="a"}`, legend: "{{cluster}}", want: "good has no label state"},
		"NothingJoined": {expression: `good + on (cluster) other`, legend: "{{cluster}}", want: "other has no label cluster"},
		"Nothing":       {expression: `good < 0`, legend: "{{cluster}}", want: "nothing is shown"},
		"Legend":        {expression: `sum(good)`, legend: "{{cluster}}", want: "the legend has the label cluster"},
		"Same":          {expression: `good`, legend: "all", want: "are called the same"},
	} {
		t.Run(name, func(t *testing.T) {
			got := faults(t, documented, tc.expression, tc.legend)
			if tc.want == "" && len(got) > 0 || tc.want != "" && !strings.Contains(strings.Join(got, "\n"), tc.want) {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}

// TestVariables checks that each variable of a dashboard is used, and has the values of a label that exists.
func TestVariables(t *testing.T) {
	values := regexp.MustCompile(`label_values\((\w+), (\w+)\)`)
	for _, process := range []string{"hub", "worker"} {
		documented := readMetrics(t, process)
		for name, d := range readDashboards(t, process) {
			var expressions, declared []string
			for _, p := range d.Panels {
				for _, target := range p.Targets {
					expressions = append(expressions, target.Expr)
				}
			}
			for _, v := range d.Templating.List[1:] { // The first is the data source.
				declared = append(declared, "$"+v.Name)
				match := values.FindStringSubmatch(string(v.Query))
				if match == nil || match[2] != v.Name || !slices.Contains(documented[match[1]], v.Name) {
					t.Errorf("%s: the variable %s has the values of %s", name, v.Name, v.Query)
				}
				if !strings.Contains(strings.Join(expressions, "\n"), "$"+v.Name) {
					t.Errorf("%s: no panel uses the variable %s", name, v.Name)
				}
			}
			for _, used := range variables.FindAllString(strings.Join(expressions, "\n"), -1) {
				if used != "$__rate_interval" && !slices.Contains(declared, used) {
					t.Errorf("%s: a panel uses %s, which is no variable", name, used)
				}
			}
		}
	}
}

// TestPanelsLieBesideEachOther checks that no panel covers another, and that each has an ID of its own.
func TestPanelsLieBesideEachOther(t *testing.T) {
	for _, process := range []string{"hub", "worker"} {
		for name, d := range readDashboards(t, process) {
			taken, ids := map[[2]int]string{}, map[int]bool{}
			for _, p := range d.Panels {
				if ids[p.ID] || p.GridPos.W <= 0 || p.GridPos.X+p.GridPos.W > 24 {
					t.Errorf("%s: panel %s has the ID %d and the place %v", name, p.Title, p.ID, p.GridPos)
				}
				ids[p.ID] = true
				for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
					for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
						if other, is := taken[[2]int{x, y}]; is {
							t.Fatalf("%s: %s covers %s", name, p.Title, other)
						}
						taken[[2]int{x, y}] = p.Title
					}
				}
			}
		}
	}
}
