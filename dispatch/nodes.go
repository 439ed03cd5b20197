// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/hostports"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// NodeGroup is a number of nodes that are alike. A single node is a group with Count 1.
type NodeGroup struct {
	// Labels of the nodes, without kubernetes.io/hostname, see NewNodes.
	Labels map[string]string
	// Taints of the nodes, without PreferNoSchedule.
	Taints []corev1.Taint
	// Free is what each of the nodes has free: allocatable minus the requests of its pods, and one of "pods" for each
	// pod. 0 or less: the node has the resource, but none is free. A node that does not list "pods" takes any number. A
	// node that does not list a host port (package hostports) has it free. A node that does not list a claim
	// (v1alpha1.DeviceClaims) takes any number, and one with Never takes none, however free it is.
	Free Resources
	// Count of nodes.
	Count int
	// Added is the name of the expandable nodes if the nodes are not there, and the worker adds them when pods need them.
	// Empty: the nodes are there.
	Added string
}

// Never is what a node has free of claims that do not fit there even if nothing runs on it.
const Never = absent

// In columns of Nodes, absent is a resource that the node does not have, unlimited is "pods" on a node without "pods", or
// a claim on a node that does not list it.
const (
	absent    = math.MinInt64
	unlimited = math.MaxInt64
)

// Instead of a column, noColumn is of a resource that no node has, and ignoredColumn of one of which pods need nothing.
const (
	noColumn      = -1
	ignoredColumn = -2
)

// Nodes are the schedulable nodes of one worker, grouped, in a layout that a decision reads in one scan. They never
// change, so callers can keep and share them. A nil *Nodes is a worker without nodes.
type Nodes struct {
	names   []corev1.ResourceName // Sorted. The columns.
	omitted int                   // Resources without a column, because there are too many.
	classes []class               // Sorted by labels and taints.
	shape   shape                 // The shape of the classes.
	free    []int64               // One row per group, one column per name. The rows of a class follow each other.
	columns []int64               // The same by columns. A decision reads one column of most nodes.
	counts  []int64               // Nodes in each row, at least 1.
	class   []int                 // The class of each row.
	total   []int64               // Free per column over all nodes.
	largest []int64               // Per column, the most that one node has free.
	peaks   []int64               // The same per class: one row per class. Decisions read it first, so it is apart.
	quota   *queueQuota           // What limits jobs in the queues of the worker's Kueue. nil: nothing does.

	ignored []v1alpha1.ExtendedResourceName // Pods need nothing of them, see Ignoring.

	there *Nodes // Those that are there, see Present. nil: all are.
}

// class is a number of groups that differ only in what is free, so that pods are matched once against all of them.
type class struct {
	labels     map[string]string
	taints     []corev1.Taint
	added      string // As in NodeGroup.
	first, end int    // Rows.
}

// shape is a hash of the labels and taints of all classes. It is so long that no two shapes have the same hash in
// practice. The workers of a fleet often have the same kinds of nodes, so they share results by shape.
type shape [sha256.Size]byte

// row is a group while Nodes are built.
type row struct {
	class int
	free  []int64
	count int64
}

// NewNodes groups nodes. It takes groups of one node or more, in any order, and copies what it keeps. The caller must
// leave out nodes that take no pods (not ready, unschedulable).
//
// Nodes are alike if their labels, taints and free amounts are equal. The label kubernetes.io/hostname does not count,
// because it would make each node its own group. So a pod that selects a node by its host name fits nowhere, and a pod
// that excludes a node by its name may be judged to fit on it.
func NewNodes(groups []NodeGroup) *Nodes {
	n := &Nodes{}
	n.names, n.omitted = columns(groups)
	keys := make([]string, len(groups))
	byKey := map[string]int{} // Key of a class to the first group that has it.
	for i := range groups {
		keys[i] = classKey(&groups[i])
		if _, known := byKey[keys[i]]; !known {
			byKey[keys[i]] = i
		}
	}
	index := make(map[string]int, len(byKey))
	shape := sha256.New()
	for _, key := range slices.Sorted(maps.Keys(byKey)) {
		group := &groups[byKey[key]]
		labels := maps.Clone(group.Labels)
		delete(labels, corev1.LabelHostname)
		index[key] = len(n.classes)
		n.classes = append(n.classes, class{labels: labels, taints: hardTaints(group.Taints), added: group.Added})
		_, _ = fmt.Fprintf(shape, "%d %s", len(key), key)
	}
	n.shape = [sha256.Size]byte(shape.Sum(nil))
	rows := make([]row, 0, len(groups))
	for i := range groups {
		if groups[i].Count > 0 {
			rows = append(rows, row{class: index[keys[i]], free: n.amounts(groups[i].Free), count: int64(groups[i].Count)})
		}
	}
	n.setRows(rows)
	return n
}

// Ignoring returns the nodes for pods that need nothing of some resources, because a scheduler extender manages them and
// nodes do not list them. The names replace those of an earlier call. If that changes nothing, it returns the same nodes.
func (n *Nodes) Ignoring(names []v1alpha1.ExtendedResourceName) *Nodes {
	if n == nil || slices.Equal(n.ignored, names) {
		return n
	}
	ignoring := *n
	ignoring.ignored = names
	return &ignoring
}

// ignores says whether pods need nothing of a resource.
func ignores(n *Nodes, name corev1.ResourceName) bool {
	return n != nil && len(n.ignored) > 0 && slices.Contains(n.ignored, v1alpha1.ExtendedResourceName(name))
}

// maxColumns is how many different resources of a worker's nodes are counted. The time and memory of a decision grow
// with this number, so a worker must not be able to bring any number.
const maxColumns = 256

// columns returns the names of the resources that are counted, and how many are not. If there are too many, the
// resources of Kubernetes are counted first, then those that the most nodes have.
func columns(groups []NodeGroup) (names []corev1.ResourceName, omitted int) {
	nodes := map[corev1.ResourceName]int64{}
	for i := range groups {
		for name := range groups[i].Free {
			nodes[name] = addUpTo(nodes[name], int64(max(groups[i].Count, 0)))
		}
	}
	names = slices.Collect(maps.Keys(nodes))
	if omitted = len(names) - maxColumns; omitted > 0 {
		rank := func(name corev1.ResourceName) int64 {
			if IsExtended(name) {
				return nodes[name]
			}
			return math.MaxInt64
		}
		slices.SortFunc(names, func(a, b corev1.ResourceName) int { return cmp.Or(cmp.Compare(rank(b), rank(a)), cmp.Compare(a, b)) })
		names = names[:maxColumns]
	}
	slices.Sort(names)
	return names, max(omitted, 0)
}

// amounts returns the columns of one node.
func (n *Nodes) amounts(free Resources) []int64 {
	amounts := make([]int64, len(n.names))
	for i, name := range n.names {
		amount, has := free[name]
		switch {
		case has && amount == Never && v1alpha1.IsDeviceClaim(name):
			amounts[i] = absent
		case has:
			amounts[i] = max(amount, 0)
		case name == corev1.ResourcePods, v1alpha1.IsDeviceClaim(name):
			amounts[i] = unlimited
		case hostports.Is(name):
			amounts[i] = hostports.Capacity(name)
		default:
			amounts[i] = absent
		}
	}
	return amounts
}

// setRows sorts and merges rows, and computes all fields that depend on them.
func (n *Nodes) setRows(rows []row) {
	width := len(n.names)
	slices.SortFunc(rows, func(a, b row) int {
		return cmp.Or(cmp.Compare(a.class, b.class), slices.Compare(a.free, b.free))
	})
	n.free = make([]int64, 0, len(rows)*width)
	n.counts = make([]int64, 0, len(rows))
	n.class = make([]int, 0, len(rows))
	n.total = make([]int64, width)
	n.largest = slices.Repeat([]int64{absent}, width)
	n.peaks = slices.Repeat([]int64{absent}, width*len(n.classes))
	last := -1 // Index in rows of the last added row.
	for i, r := range rows {
		c, peak := &n.classes[r.class], n.peak(r.class)
		for col, amount := range r.free {
			n.total[col] = addUpTo(n.total[col], mulUpTo(max(amount, 0), r.count))
			n.largest[col] = max(n.largest[col], amount)
			peak[col] = max(peak[col], amount)
		}
		if last >= 0 && rows[last].class == r.class && slices.Equal(rows[last].free, r.free) {
			n.counts[len(n.counts)-1] = addUpTo(n.counts[len(n.counts)-1], r.count)
			continue
		}
		if last < 0 || rows[last].class != r.class {
			c.first = len(n.counts)
		}
		n.free = append(n.free, r.free...)
		n.counts = append(n.counts, r.count)
		n.class = append(n.class, r.class)
		c.end = len(n.counts)
		last = i
	}
	n.columns = make([]int64, 0, len(n.free))
	for col := range n.names {
		for r := range n.counts {
			n.columns = append(n.columns, n.row(r)[col])
		}
	}
	setPresent(n, rows)
}

// Groups returns the nodes as groups. Each group occurs once, in an order that depends only on the content.
func (n *Nodes) Groups() []NodeGroup {
	if n == nil {
		return nil
	}
	groups := make([]NodeGroup, 0, len(n.counts))
	for i := range n.classes {
		c := &n.classes[i]
		for r := c.first; r < c.end; r++ {
			free := Resources{}
			for col, amount := range n.row(r) {
				if amount != unlimited && (amount != absent || v1alpha1.IsDeviceClaim(n.names[col])) {
					free[n.names[col]] = amount
				}
			}
			groups = append(groups, NodeGroup{
				Labels: maps.Clone(c.labels), Taints: slices.Clone(c.taints), Free: free, Count: int(n.counts[r]), Added: c.added,
			})
		}
	}
	return groups
}

// Count returns the number of nodes, those included that the worker would have to add.
func (n *Nodes) Count() int {
	if n == nil {
		return 0
	}
	var count int64
	for _, c := range n.counts {
		count = addUpTo(count, c)
	}
	return int(count)
}

// Free returns how much of a resource is free on all nodes together: cpu in millicores, all others in units. Nodes that
// the worker would have to add count too, but not those of Present. It returns the largest number for a resource that is
// ignored, for a claim that is not counted, and if only the quota of a queue limits some jobs, and no job looks at the nodes.
func (n *Nodes) Free(name corev1.ResourceName) int64 {
	if n.boundless() || ignores(n, name) {
		return math.MaxInt64
	}
	if col := n.column(name); col >= 0 {
		return n.total[col]
	}
	if v1alpha1.IsDeviceClaim(name) {
		return math.MaxInt64
	}
	return 0
}

// column of a resource, or noColumn.
func (n *Nodes) column(name corev1.ResourceName) int {
	if n == nil {
		return noColumn
	}
	if at, found := slices.BinarySearch(n.names, name); found {
		return at
	}
	return noColumn
}

// columnsOf appends the columns of sorted names, noColumn or ignoredColumn. It walks both lists once, because every
// decision calls it.
func (n *Nodes) columnsOf(names []corev1.ResourceName, cols []int) []int {
	at := 0
	for _, name := range names {
		for n != nil && at < len(n.names) && n.names[at] < name {
			at++
		}
		switch {
		case ignores(n, name):
			cols = append(cols, ignoredColumn)
		case n != nil && at < len(n.names) && n.names[at] == name:
			cols = append(cols, at)
		default:
			cols = append(cols, noColumn)
		}
	}
	return cols
}

func (n *Nodes) row(i int) []int64 {
	width := len(n.names)
	return n.free[i*width : (i+1)*width : (i+1)*width]
}

// amountsOf returns what each row has free in a column.
func (n *Nodes) amountsOf(col int) []int64 {
	height := len(n.counts)
	return n.columns[col*height : (col+1)*height : (col+1)*height]
}

// peak returns per column the most that one node of a class has free.
func (n *Nodes) peak(class int) []int64 {
	width := len(n.names)
	return n.peaks[class*width : (class+1)*width : (class+1)*width]
}

// hardTaints returns the taints that keep pods off a node, sorted.
func hardTaints(taints []corev1.Taint) []corev1.Taint {
	var hard []corev1.Taint
	for _, taint := range taints {
		if taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute {
			// The time of a taint does not matter here.
			hard = append(hard, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
		}
	}
	slices.SortFunc(hard, func(a, b corev1.Taint) int { return strings.Compare(a.ToString(), b.ToString()) })
	return hard
}

// classKey returns labels and taints as a text that is equal only for equal ones. Neither contains a newline. The keys of
// nodes that are not there come after all others.
func classKey(group *NodeGroup) string {
	var b strings.Builder
	if group.Added != "" {
		b.WriteByte(0xff)
		b.WriteString(group.Added)
		b.WriteByte('\n')
	}
	for _, key := range slices.Sorted(maps.Keys(group.Labels)) {
		if key != corev1.LabelHostname {
			b.WriteString(key)
			b.WriteByte('=')
			b.WriteString(group.Labels[key])
			b.WriteByte('\n')
		}
	}
	b.WriteByte('\n')
	for _, taint := range hardTaints(group.Taints) {
		b.WriteString(taint.ToString())
		b.WriteByte('\n')
	}
	return b.String()
}
