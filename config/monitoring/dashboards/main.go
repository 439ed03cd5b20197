// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

// The program dashboards writes the Grafana dashboards of config/monitoring from the table in dashboards.yaml: a ConfigMap
// for each, with the label by which the sidecar of Grafana's chart finds it. make generate runs it, before the chart is
// made of the ConfigMaps.
package main

import (
	"log"
	"os"
	"path/filepath"
	"strings"

	"sigs.k8s.io/yaml"
)

//go:generate go run . ..

const tableFile = "dashboards/dashboards.yaml"

// namespaces are where the two processes run, by the folder of their monitoring.
var namespaces = map[string]string{"hub": "trainyard-system", "worker": "kubeflow-system"}

func main() {
	log.SetFlags(0)
	if len(os.Args) != 2 {
		log.Fatal("usage: dashboards FOLDER")
	}
	if err := generate(os.Args[1]); err != nil {
		log.Fatalf("dashboards: %v", err)
	}
}

// generate writes the ConfigMaps into the folders below root.
func generate(root string) error {
	text, err := os.ReadFile(filepath.Join(root, tableFile))
	if err != nil {
		return err
	}
	var table []dashboard
	if err := yaml.UnmarshalStrict(text, &table); err != nil {
		return err
	}
	for i := range table {
		d := &table[i]
		if err := d.check(); err != nil {
			return err
		}
		text, err := d.configMap()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(root, d.Process, "dashboard_"+d.Name+".yaml"), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// configMap is written by hand because the file has comments, and its JSON keeps its lines.
func (d *dashboard) configMap() (string, error) {
	text, err := d.json()
	if err != nil {
		return "", err
	}
	return `# Copyright The Trainyard Authors.
# SPDX-License-Identifier: Apache-2.0

# make generate writes this file from ` + tableFile + `.
apiVersion: v1
kind: ConfigMap
metadata:
  name: trainyard-dashboard-` + d.Name + `
  namespace: ` + namespaces[d.Process] + `
  labels:
    grafana_dashboard: "1"
data:
  trainyard-` + d.Name + `.json: |
    ` + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ") + "\n", nil
}
