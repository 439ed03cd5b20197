// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators

import (
	"cmp"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Table knows which resources are accelerators. It has the rows of Rows, and before them those that were added. It never
// changes, so callers share it.
type Table struct{ added []Row }

// Parse returns a Table with the rows of an admin, such as "example.com/npu=Device" or, with the label that names the
// product, "example.com/npu=Device:example.com/npu.model". The names may have a *, as those of Rows.
func Parse(texts []string) (Table, error) {
	var table Table
	for _, text := range texts {
		name, rest, _ := strings.Cut(text, "=")
		unit, label, hasLabel := strings.Cut(rest, ":")
		switch {
		case !isPattern(name):
			return Table{}, fmt.Errorf("%q is not RESOURCE=UNIT: %q must be the name of an extended resource, such as example.com/npu", text, name)
		case !slices.Contains([]Unit{Device, Share, Memory, Percent}, Unit(unit)):
			return Table{}, fmt.Errorf("%q is not RESOURCE=UNIT: the unit must be %s, %s, %s or %s", text, Device, Share, Memory, Percent)
		case hasLabel && len(validation.IsQualifiedName(label)) > 0:
			return Table{}, fmt.Errorf("%q is not RESOURCE=UNIT:LABEL: %q must be the key of a node's label", text, label)
		}
		row, _ := Table{}.Of(corev1.ResourceName(name)) // Another unit does not change what names the product.
		table.added = append(table.added, Row{Name: name, Vendor: row.Vendor, Unit: Unit(unit), Label: cmp.Or(label, row.Label)})
	}
	return table, nil
}

// isPattern says whether a text is the name of extended resources. In a pattern, * stands for some text.
func isPattern(name string) bool {
	plain := strings.ReplaceAll(name, "*", "x")
	return strings.Contains(name, "/") && !strings.HasPrefix(plain, corev1.ResourceDefaultNamespacePrefix) &&
		len(validation.IsQualifiedName(plain)) == 0
}

// Seen returns the Table of a manager as far as the status of its WorkerClusters shows it, for a reader that does not
// know what the admin has added. Of nodes with several resources, a status shows the unit of one (Main).
func Seen(workers []v1alpha1.WorkerCluster) Table {
	var table Table
	for i := range workers {
		for j := range workers[i].Status.NodeGroups {
			group := &workers[i].Status.NodeGroups[j]
			row, known := table.Of(group.Resource)
			// A manager that says no unit is an older one, and counted everything that it showed as a device.
			unit := cmp.Or(Unit(group.Unit), row.Unit, Device)
			if group.Resource != "" && (!known || row.Unit != unit) {
				row.Name, row.Unit = string(group.Resource), unit
				table.added = append(table.added, row)
			}
		}
	}
	return table
}

// Of returns the row of a resource. Without one, the resource is no accelerator.
func (t Table) Of(name corev1.ResourceName) (row Row, known bool) {
	if !strings.Contains(string(name), "/") {
		return Row{}, false
	}
	for i := range t.added {
		if t.added[i].matches(string(name)) {
			return t.added[i], true
		}
	}
	if v1alpha1.IsClaimed(name) || strings.HasPrefix(string(name), resourceapi.ResourceDeviceClassPrefix) {
		return Row{}, false // A node has the devices of a class under several names. The class says which one counts.
	}
	for i := range rows {
		if rows[i].matches(string(name)) {
			return rows[i], true
		}
	}
	return Row{}, false
}

func (r *Row) matches(name string) bool {
	if !strings.ContainsAny(r.Name, "*?") {
		return r.Name == name
	}
	matches, _ := path.Match(r.Name, name) // Its only error is a bad pattern, and no row has one.
	return matches
}

// UnitIn returns the unit in which a resource of a node, a worker or a pod is counted: Device, Share, or "" for a
// resource that is not counted. The amounts are those of all its resources.
func UnitIn[M ~map[corev1.ResourceName]V, V any](t Table, name corev1.ResourceName, amounts M) Unit {
	row, known := t.Of(name)
	if !known || row.Unit != Device && row.Unit != Share {
		return ""
	}
	if _, same := amounts[row.Same]; same {
		return ""
	}
	return row.Unit
}

// Main returns the resource for which a node is known: of those of which it has some, a device rather than a share, and
// the first by name. It returns "" for a node without accelerators.
func (t Table) Main(allocatable map[corev1.ResourceName]int64) (name corev1.ResourceName, unit Unit) {
	for _, other := range slices.Sorted(maps.Keys(allocatable)) {
		if allocatable[other] <= 0 {
			continue
		}
		if u := UnitIn(t, other, allocatable); u == Device || u == Share && unit == "" {
			if name, unit = other, u; u == Device {
				break
			}
		}
	}
	return name, unit
}

// Product returns what the labels of a node call the devices of a resource, or "". A node selector names a product in
// the same way.
func (t Table) Product(name corev1.ResourceName, labels map[string]string) string {
	row, _ := t.Of(name)
	return labels[row.labelOf(name)]
}

// labelOf is the label that names the product of a resource.
func (r Row) labelOf(name corev1.ResourceName) string {
	domain, _, _ := strings.Cut(string(name), "/")
	return strings.Replace(r.Label, "*", domain, 1)
}

// ProductIn returns what a group of nodes calls the devices of a resource, or "" if the nodes do not have it.
func (t Table) ProductIn(group *v1alpha1.NodeGroup, name corev1.ResourceName) string {
	if name == group.Resource {
		return group.Product
	}
	if _, has := group.Allocatable[name]; !has {
		return ""
	}
	return t.Product(name, group.Labels)
}

// IsProduct says whether a label of nodes names the product of some devices.
func (t Table) IsProduct(label string) bool {
	is := func(r Row) bool {
		matches, _ := path.Match(r.Label, label)
		return matches
	}
	return slices.ContainsFunc(t.added, is) || slices.ContainsFunc(rows[:], is)
}

// Counted is how much of a resource the nodes of a group have.
type Counted struct {
	Resource corev1.ResourceName
	Unit     Unit
	// Product is what the labels of the nodes call the devices, or empty.
	Product string
	// Each is what each node has.
	Each int64
	// Free has for each of FreeNodes what each of its nodes has free.
	Free []int64
}

// In returns what a group of nodes has of accelerators, sorted by name.
func (t Table) In(group *v1alpha1.NodeGroup) []Counted {
	var all []Counted
	for _, name := range slices.Sorted(maps.Keys(group.Allocatable)) {
		unit, each := UnitIn(t, name, group.Allocatable), group.Allocatable[name]
		if unit == "" || each.Value() <= 0 {
			continue
		}
		counted := Counted{Resource: name, Unit: unit, Product: t.ProductIn(group, name), Each: each.Value()}
		for _, row := range group.Free {
			free, amount := row.Free[name], row.GPUs // An older manager wrote nothing else.
			if name != group.Resource {
				amount = free.Value()
			}
			counted.Free = append(counted.Free, amount)
		}
		all = append(all, counted)
	}
	return all
}
