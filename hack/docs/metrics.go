// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"go/ast"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

// The sections of docs/metrics.md.
const (
	waitingMetrics = "metrics of the waiting list"
	jobMetrics     = "metrics of jobs"
	workerMetrics  = "metrics of workers"
	agentMetrics   = "metrics of the agent"
)

// metricSections has the section of each package whose metrics are not about jobs.
var metricSections = map[string]string{
	"controllers/hub/credentials":       workerMetrics,
	"controllers/hub/drift":             workerMetrics,
	"controllers/hub/failover":          workerMetrics,
	"controllers/hub/garbagecollection": workerMetrics,
	"controllers/hub/placement":         waitingMetrics,
	"controllers/worker/trainjob":       agentMetrics,
	"executionlease/hub":                workerMetrics,
	"executionlease/worker":             agentMetrics,
	"gateway":                           workerMetrics,
	"remote":                            workerMetrics,
}

// metrics is a section of docs/metrics.md: a table of the metrics that some packages make.
func metrics(name string) section {
	return section{"docs/metrics.md", name, "the calls of package prometheus", func() (string, error) {
		rows := [][]string{{"metric", "labels", "what it is"}}
		err := goDirectories(func(directory string) error {
			if cmp.Or(metricSections[directory], jobMetrics) != name {
				return nil
			}
			found, err := metricsIn(directory)
			rows = append(rows, found...)
			return err
		})
		return table(rows), err
	}}
}

// metricsIn returns a row for each metric that a package makes.
func metricsIn(directory string) (rows [][]string, err error) {
	files, err := parsed(directory)
	for _, file := range files {
		ast.Inspect(file, func(node ast.Node) bool {
			if call, ok := node.(*ast.CallExpr); ok {
				if row := metricOf(call); row != nil {
					rows = append(rows, row)
				}
			}
			return true
		})
	}
	return rows, err
}

// metricOf returns the row of the metric of Trainyard that a call of package prometheus makes, nil if it makes none.
func metricOf(call *ast.CallExpr) []string {
	made := selected(call.Fun, "prometheus")
	if !strings.HasPrefix(made, "New") || len(call.Args) == 0 {
		return nil
	}
	var name, help, labels ast.Expr
	if options, ok := call.Args[0].(*ast.CompositeLit); ok {
		fields := fieldsIn(options)
		name, help = fields["Name"], fields["Help"]
		if len(call.Args) > 1 {
			labels = call.Args[1]
		}
	} else if made == "NewDesc" {
		name, help, labels = call.Args[0], call.Args[1], call.Args[2]
	}
	if name == nil || !strings.HasPrefix(text(name), "trainyard_") { // A package may write metrics of libraries, too.
		return nil
	}
	words := strings.TrimSuffix(text(help), ".")
	if strings.HasPrefix(made, "NewHistogram") {
		words = "histogram: " + words
	}
	return []string{"`" + text(name) + "`", strings.Join(texts(labels), ", "), words}
}

const dashboardTable = "config/monitoring/dashboards/dashboards.yaml"

// dashboards lists the Grafana dashboards.
func dashboards() (string, error) {
	var all []struct{ Name, Process, Title, About string }
	text, err := os.ReadFile(filepath.Join(os.Args[1], dashboardTable))
	if err == nil {
		err = yaml.Unmarshal(text, &all)
	}
	rows := [][]string{{"dashboard", "ConfigMap", "what it shows"}}
	for _, d := range all {
		rows = append(rows, []string{d.Title, "`config/monitoring/" + d.Process + "`: `trainyard-dashboard-" + d.Name + "`", strings.TrimSuffix(d.About, ".")})
	}
	return table(rows), err
}
