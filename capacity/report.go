// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// newReport writes a snapshot into a report. Nodes that are alike become one row, whatever their names are.
func newReport(s *Snapshot) *v1alpha1.CapacityReport {
	w := newReportWriter(s)
	report := &v1alpha1.CapacityReport{Resources: w.resources, Labels: w.labels, Kueue: s.Quota, Uncounted: s.Uncounted}
	for _, key := range w.gangs {
		report.Gangs = append(report.Gangs, reportedGang(key, s.Gangs[key]))
	}
	groups := map[string]*groupWriter{}
	for _, node := range s.Nodes {
		group := w.group(node)
		key := groupKey(&group)
		if groups[key] == nil {
			groups[key] = &groupWriter{ReportedNodeGroup: group, rows: map[string]*v1alpha1.ReportedNodes{}}
		}
		groups[key].add(w.row(node))
	}
	for _, key := range slices.Sorted(maps.Keys(groups)) {
		report.NodeGroups = append(report.NodeGroups, groups[key].sorted())
	}
	return report
}

// reportWriter has the lists to whose positions a report refers.
type reportWriter struct {
	resources []corev1.ResourceName
	labels    []string
	gangs     []types.NamespacedName
	labelAt   map[label]int32
	gangAt    map[types.NamespacedName]int32
}

type label struct{ key, value string }

func compareLabels(a, b label) int {
	return cmp.Or(strings.Compare(a.key, b.key), strings.Compare(a.value, b.value))
}

func newReportWriter(s *Snapshot) *reportWriter {
	resources, labels := map[corev1.ResourceName]bool{}, map[label]bool{}
	for _, node := range s.Nodes {
		for name := range node.Allocatable {
			resources[name] = true
		}
		for name := range node.Used { // Used includes what gangs use.
			resources[name] = true
		}
		for key, value := range node.Labels {
			if key != corev1.LabelHostname {
				labels[label{key, value}] = true
			}
		}
	}
	sorted := slices.SortedFunc(maps.Keys(labels), compareLabels)
	w := &reportWriter{
		resources: slices.Sorted(maps.Keys(resources)), gangs: slices.SortedFunc(maps.Keys(s.Gangs), compareKeys),
		labels: make([]string, 0, len(sorted)), labelAt: positions(sorted),
	}
	for _, l := range sorted {
		w.labels = append(w.labels, l.key+"="+l.value)
	}
	w.gangAt = positions(w.gangs)
	return w
}

func positions[T comparable](list []T) map[T]int32 {
	at := make(map[T]int32, len(list))
	for i, item := range list {
		at[item] = int32(i)
	}
	return at
}

func compareKeys(a, b types.NamespacedName) int {
	return cmp.Or(strings.Compare(a.Namespace, b.Namespace), strings.Compare(a.Name, b.Name))
}

func (w *reportWriter) amounts(r Resources) v1alpha1.Amounts {
	amounts := make(v1alpha1.Amounts, len(w.resources))
	for i, name := range w.resources {
		amounts[i] = r[name]
	}
	return amounts
}

// group returns the group of a node, without rows.
func (w *reportWriter) group(node *NodeState) v1alpha1.ReportedNodeGroup {
	group := v1alpha1.ReportedNodeGroup{
		Labels: make([]int32, 0, len(node.Labels)),
		Taints: HardTaints(node.Taints), Schedulable: node.Schedulable, Allocatable: w.amounts(node.Allocatable),
	}
	for key, value := range node.Labels {
		if key != corev1.LabelHostname {
			group.Labels = append(group.Labels, w.labelAt[label{key, value}])
		}
	}
	slices.Sort(group.Labels)
	return group
}

func (w *reportWriter) row(node *NodeState) v1alpha1.ReportedNodes {
	row := v1alpha1.ReportedNodes{Nodes: int32(node.Count), Used: w.amounts(node.Used)} //nolint:gosec // A cluster has fewer nodes.
	for key, used := range node.Gangs {
		if at, known := w.gangAt[key]; known {
			row.Gangs = append(row.Gangs, v1alpha1.ReportedUse{Gang: at, Used: w.amounts(used)})
		}
	}
	slices.SortFunc(row.Gangs, func(a, b v1alpha1.ReportedUse) int { return cmp.Compare(a.Gang, b.Gang) })
	return row
}

type groupWriter struct {
	v1alpha1.ReportedNodeGroup
	rows map[string]*v1alpha1.ReportedNodes
}

func (g *groupWriter) add(row v1alpha1.ReportedNodes) {
	key := rowKey(&row)
	if same := g.rows[key]; same != nil {
		same.Nodes += row.Nodes
		return
	}
	g.rows[key] = &row
}

func (g *groupWriter) sorted() v1alpha1.ReportedNodeGroup {
	for _, key := range slices.Sorted(maps.Keys(g.rows)) {
		g.Rows = append(g.Rows, *g.rows[key])
	}
	return g.ReportedNodeGroup
}

// groupKey and rowKey return texts that are equal only for equal groups or rows.
func groupKey(g *v1alpha1.ReportedNodeGroup) string {
	key := appendNumbers(nil, g.Labels)
	key = appendNumbers(strconv.AppendBool(key, g.Schedulable), g.Allocatable)
	for i := range g.Taints {
		key = append(append(key, g.Taints[i].ToString()...), '\n')
	}
	return string(key)
}

func rowKey(r *v1alpha1.ReportedNodes) string {
	key := appendNumbers(nil, r.Used)
	for i := range r.Gangs {
		key = strconv.AppendInt(key, int64(r.Gangs[i].Gang), 10)
		key = appendNumbers(append(key, ':'), r.Gangs[i].Used)
	}
	return string(key)
}

func appendNumbers[T int32 | int64](key []byte, numbers []T) []byte {
	for _, number := range numbers {
		key = append(strconv.AppendInt(key, int64(number), 10), ' ')
	}
	return append(key, '\n')
}

func reportedGang(key types.NamespacedName, jobs map[string]GangPods) v1alpha1.ReportedGang {
	gang := v1alpha1.ReportedGang{Namespace: key.Namespace, Name: key.Name}
	for _, job := range slices.Sorted(maps.Keys(jobs)) {
		gang.Pods = append(gang.Pods, v1alpha1.ReportedPods{Job: job, Bound: jobs[job].Bound, Succeeded: jobs[job].Succeeded})
	}
	return gang
}

// HardTaints returns the taints that keep pods off a node, sorted, without their times.
func HardTaints(taints []corev1.Taint) []corev1.Taint {
	var hard []corev1.Taint
	for _, taint := range taints {
		if taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute {
			hard = append(hard, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
		}
	}
	slices.SortFunc(hard, func(a, b corev1.Taint) int { return strings.Compare(a.ToString(), b.ToString()) })
	return hard
}

// snapshotOf returns the snapshot of a report, without the nodes' names. Its error says what in the report is invalid.
func snapshotOf(report *v1alpha1.CapacityReport) (*Snapshot, error) {
	if err := check(report); err != nil {
		return nil, err
	}
	s := &Snapshot{Gangs: make(map[types.NamespacedName]map[string]GangPods, len(report.Gangs)), Quota: report.Kueue, Uncounted: report.Uncounted,
		Abridged: report.Abridged}
	for i := range report.Gangs {
		gang := &report.Gangs[i]
		jobs := make(map[string]GangPods, len(gang.Pods))
		for _, pods := range gang.Pods {
			jobs[pods.Job] = GangPods{Bound: pods.Bound, Succeeded: pods.Succeeded}
		}
		s.Gangs[types.NamespacedName{Namespace: gang.Namespace, Name: gang.Name}] = jobs
	}
	for i := range report.NodeGroups {
		nodes, err := nodesOf(report, &report.NodeGroups[i])
		if err != nil {
			return nil, fmt.Errorf("nodeGroups[%d]: %w", i, err)
		}
		s.Nodes = append(s.Nodes, nodes...)
	}
	return s, nil
}

func nodesOf(report *v1alpha1.CapacityReport, group *v1alpha1.ReportedNodeGroup) ([]*NodeState, error) {
	labels := make(map[string]string, len(group.Labels))
	for _, at := range group.Labels {
		if at < 0 || int(at) >= len(report.Labels) {
			return nil, fmt.Errorf("there is no label at position %d", at)
		}
		key, value, _ := strings.Cut(report.Labels[at], "=")
		labels[key] = value
	}
	allocatable, err := amountsOf(report, group.Allocatable)
	if err != nil {
		return nil, err
	}
	maps.DeleteFunc(allocatable, func(name corev1.ResourceName, _ int64) bool { return hostports.Is(name) }) // No node lists them.
	for _, name := range report.Resources {
		if _, has := allocatable[name]; !has && v1alpha1.IsDeviceClaim(name) {
			allocatable[name] = 0
		}
	}
	nodes := make([]*NodeState, 0, len(group.Rows))
	for i := range group.Rows {
		row := &group.Rows[i]
		node := &NodeState{
			Labels: labels, Taints: group.Taints, Schedulable: group.Schedulable, Allocatable: allocatable, Count: int(row.Nodes),
		}
		if row.Nodes < 1 {
			return nil, fmt.Errorf("rows[%d]: %d nodes", i, row.Nodes)
		}
		if node.Used, err = amountsOf(report, row.Used); err != nil {
			return nil, fmt.Errorf("rows[%d]: %w", i, err)
		}
		if node.Gangs, err = gangsOfRow(report, row); err != nil {
			return nil, fmt.Errorf("rows[%d]: %w", i, err)
		}
		nodes = append(nodes, node)
	}
	return nodes, nil
}

func gangsOfRow(report *v1alpha1.CapacityReport, row *v1alpha1.ReportedNodes) (map[types.NamespacedName]Resources, error) {
	if len(row.Gangs) == 0 {
		return nil, nil
	}
	gangs := make(map[types.NamespacedName]Resources, len(row.Gangs))
	for _, use := range row.Gangs {
		if use.Gang < 0 || int(use.Gang) >= len(report.Gangs) {
			return nil, fmt.Errorf("there is no gang at position %d", use.Gang)
		}
		gang := &report.Gangs[use.Gang]
		key := types.NamespacedName{Namespace: gang.Namespace, Name: gang.Name}
		if _, has := gangs[key]; has {
			return nil, fmt.Errorf("gang %s is there twice", key)
		}
		used, err := amountsOf(report, use.Used)
		if err != nil {
			return nil, err
		}
		gangs[key] = used
	}
	return gangs, nil
}

func amountsOf(report *v1alpha1.CapacityReport, amounts v1alpha1.Amounts) (Resources, error) {
	if len(amounts) != len(report.Resources) {
		return nil, fmt.Errorf("%d amounts of %d resources", len(amounts), len(report.Resources))
	}
	resources := make(Resources, len(amounts))
	for i, amount := range amounts {
		switch {
		case amount < 0:
			return nil, fmt.Errorf("%d of %s is negative", amount, report.Resources[i])
		case amount > 0:
			resources[report.Resources[i]] = amount
		}
	}
	return resources, nil
}
