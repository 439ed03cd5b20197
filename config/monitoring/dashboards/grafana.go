// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
)

// dashboard is an item of the table.
type dashboard struct {
	// Name is unique. Process is the folder of the process whose metrics it shows: hub or worker.
	Name, Process string
	Title, About  string
	// Variables are labels. The dashboard can be limited to some of their values.
	Variables []variable
	Rows      []row
}

// variable is a label that users select by, and a metric that has all its values.
type variable struct{ Label, Metric string }

type row struct {
	Title  string
	Panels []panel
}

type panel struct {
	Title, About string
	// Kind is a panel of Grafana: timeseries, or stat for the present value.
	Kind string
	// Unit is Grafana's name of the unit: short, s, percentunit, bytes.
	Unit string
	// Stacked series add up.
	Stacked bool
	Queries []query
}

// query is an expression of Prometheus, and how its series are called: "{{cluster}}" is the value of a label.
type query struct{ Expr, Legend string }

func (d *dashboard) check() error {
	if d.Name == "" || d.Title == "" || d.About == "" || namespaces[d.Process] == "" {
		return fmt.Errorf("dashboard %q needs a name, a title, an about, and the process hub or worker", d.Name)
	}
	for _, row := range d.Rows {
		for i := range row.Panels {
			if err := row.Panels[i].check(); err != nil {
				return fmt.Errorf("dashboard %q, panel %q: %w", d.Name, row.Panels[i].Title, err)
			}
		}
	}
	return nil
}

func (p *panel) check() error {
	if p.Kind != "timeseries" && p.Kind != "stat" {
		return fmt.Errorf("the kind is %q: must be timeseries or stat", p.Kind)
	}
	if p.Title == "" || p.Unit == "" || len(p.Queries) == 0 {
		return errors.New("needs a title, a unit and a query")
	}
	return nil
}

type object = map[string]any

// source is the data source that the user has selected at the top of the dashboard.
var source = object{"type": "prometheus", "uid": "${datasource}"}

// The grid of Grafana has 24 columns. A row of panels has four stats, or two series of lines.
const (
	columns    = 24
	statWidth  = 6
	statHeight = 4
	lineWidth  = 12
	lineHeight = 8
)

// json is the dashboard as Grafana imports it.
func (d *dashboard) json() (string, error) {
	var panels []object
	id, x, y, height := 0, 0, 0, 0
	place := func(p object, width, tall int) {
		if x+width > columns {
			x, y = 0, y+height
		}
		id++
		p["id"], p["gridPos"] = id, object{"x": x, "y": y, "w": width, "h": tall}
		panels, x, height = append(panels, p), x+width, tall
	}
	for _, row := range d.Rows {
		x = columns // A row begins a line.
		place(object{"type": "row", "title": row.Title, "collapsed": false, "panels": []any{}}, columns, 1)
		for i := range row.Panels {
			if p := &row.Panels[i]; p.Kind == "stat" {
				place(p.object(), statWidth, statHeight)
			} else {
				place(p.object(), lineWidth, lineHeight)
			}
		}
	}
	var text bytes.Buffer
	encoder := json.NewEncoder(&text)
	encoder.SetEscapeHTML(false)
	encoder.SetIndent("", " ")
	err := encoder.Encode(object{
		"uid": "trainyard-" + d.Name, "title": "Trainyard / " + d.Title, "description": d.About, "tags": []string{"trainyard"},
		"schemaVersion": 39, "timezone": "browser", "refresh": "30s", "time": object{"from": "now-6h", "to": "now"},
		"links":      []object{{"type": "dashboards", "title": "Trainyard", "tags": []string{"trainyard"}, "asDropdown": true, "keepTime": true, "includeVars": true}},
		"templating": object{"list": d.variables()}, "panels": panels,
	})
	return text.String(), err
}

func (d *dashboard) variables() []object {
	all := []object{{"type": "datasource", "name": "datasource", "label": "Data source", "query": "prometheus"}}
	for _, v := range d.Variables {
		values := "label_values(" + v.Metric + ", " + v.Label + ")"
		all = append(all, object{
			"type": "query", "name": v.Label, "label": v.Label, "datasource": source, "query": object{"query": values, "refId": v.Label},
			"definition": values, "refresh": 2, "sort": 1, "multi": true, "includeAll": true, "allValue": ".*",
			"current": object{"text": []string{"All"}, "value": []string{"$__all"}},
		})
	}
	return all
}

func (p *panel) object() object {
	var targets []object
	for i, q := range p.Queries {
		targets = append(targets, object{
			"refId": string(rune('A' + i)), "datasource": source, "expr": q.Expr, "legendFormat": q.Legend, "instant": p.Kind == "stat", "range": p.Kind != "stat",
		})
	}
	defaults := object{"unit": p.Unit, "min": 0}
	var options object
	if p.Kind == "stat" {
		options = object{"reduceOptions": object{"calcs": []string{"lastNotNull"}}, "colorMode": "none", "graphMode": "none"}
	} else {
		custom := object{"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
		if p.Stacked {
			custom["stacking"], custom["fillOpacity"] = object{"mode": "normal", "group": "A"}, 40
		}
		defaults["custom"] = custom
		options = object{"legend": object{"displayMode": "table", "placement": "bottom", "calcs": []string{"lastNotNull", "max"}},
			"tooltip": object{"mode": "multi", "sort": "desc"}}
	}
	return object{
		"type": p.Kind, "title": p.Title, "description": p.About, "datasource": source, "targets": targets,
		"fieldConfig": object{"defaults": defaults, "overrides": []any{}}, "options": options,
	}
}
