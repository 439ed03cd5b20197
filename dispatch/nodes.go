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
)

// NodeGroup is a number of nodes that are alike. A node is a group with Count 1.
type NodeGroup struct {
	// Labels of the nodes. kubernetes.io/hostname is left out, see NewNodes.
	Labels map[string]string
	// Taints of the nodes. PreferNoSchedule is left out.
	Taints []corev1.Taint
	// Free is what each of the nodes has free: allocatable minus the requests of its pods, and one of "pods" for each pod. An
	// amount of 0 or less says that the node has the resource, and none of it is free. A node that does not list "pods" takes
	// any number of them.
	Free Resources
	// Count of nodes.
	Count int
}

// In the columns of Nodes, absent stands for a resource that the node does not have, and unlimited for "pods" that it does
// not list.
const (
	absent    = math.MinInt64
	unlimited = math.MaxInt64
)

// Nodes are the schedulable nodes of one worker, grouped, and laid out so that a decision reads them in one go. They never
// change, so that they can be kept and shared. A nil *Nodes is a worker without nodes.
type Nodes struct {
	names   []corev1.ResourceName // Sorted. The columns.
	omitted int                   // How many resources have no column, because there are too many.
	classes []class               // Sorted by labels and taints.
	shape   shape                 // Of the classes.
	free    []int64               // One row per group, one column per name. The rows of a class follow each other.
	columns []int64               // The same by columns: what a decision reads of most nodes is one amount.
	counts  []int64               // Nodes in each row, at least 1.
	class   []int                 // Of each row.
	total   []int64               // Free per column over all nodes.
	largest []int64               // Per column what the node with the most has free.
	peaks   []int64               // The same for each class: one row per class. Read first, so it is apart from the classes.
}

// class is a number of groups that differ in what is free only, so that pods are matched once against all of them.
type class struct {
	labels     map[string]string
	taints     []corev1.Taint
	first, end int // Rows.
}

// shape stands for the labels and taints of all classes: a hash, of a length that makes two shapes with the same impossible in
// practice. The workers of a fleet often have nodes of the same kinds, and then what has been found out about one holds for all.
type shape [sha256.Size]byte

// row is a group while Nodes are built.
type row struct {
	class int
	free  []int64
	count int64
}

// NewNodes groups nodes. It takes one group per node as well as larger ones, in any order, and copies what it keeps. Nodes
// that take no pods (not ready, unschedulable) must have been left out by the caller.
//
// Nodes are alike if labels, taints and free amounts are equal, without kubernetes.io/hostname, which would make each a group
// of its own. So a pod that selects a node by its host name fits nowhere, and one that excludes a node by its name may be
// judged to fit on it.
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
		n.classes = append(n.classes, class{labels: labels, taints: hardTaints(group.Taints)})
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

// maxColumns is how many different resources of a worker's nodes are counted. A decision takes time and memory in
// proportion, so a worker must not bring as many as it likes.
const maxColumns = 256

// columns returns the names of the resources of the nodes that are counted, and how many are not. Of too many those of
// Kubernetes are counted, then those that the most nodes have.
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
		case has:
			amounts[i] = max(amount, 0)
		case name == corev1.ResourcePods:
			amounts[i] = unlimited
		default:
			amounts[i] = absent
		}
	}
	return amounts
}

// setRows sorts and merges rows, and fills in everything that follows from them.
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
	last := -1 // Index in rows of the row that was added last.
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
}

// Groups returns the nodes by groups, each once and in an order that depends on their content only.
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
				if amount != absent && amount != unlimited {
					free[n.names[col]] = amount
				}
			}
			groups = append(groups, NodeGroup{
				Labels: maps.Clone(c.labels), Taints: slices.Clone(c.taints), Free: free, Count: int(n.counts[r]),
			})
		}
	}
	return groups
}

// Count returns the number of nodes.
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

// Free returns what the nodes together have free of a resource: cpu in millicores, all others in units.
func (n *Nodes) Free(name corev1.ResourceName) int64 {
	if col := n.column(name); col >= 0 {
		return n.total[col]
	}
	return 0
}

// column of a resource, or -1.
func (n *Nodes) column(name corev1.ResourceName) int {
	if n == nil {
		return -1
	}
	if at, found := slices.BinarySearch(n.names, name); found {
		return at
	}
	return -1
}

// columnsOf appends the columns of sorted names, or -1. It goes along both lists once: it is in the path of every
// decision.
func (n *Nodes) columnsOf(names []corev1.ResourceName, cols []int) []int {
	at := 0
	for _, name := range names {
		for n != nil && at < len(n.names) && n.names[at] < name {
			at++
		}
		if n != nil && at < len(n.names) && n.names[at] == name {
			cols = append(cols, at)
		} else {
			cols = append(cols, -1)
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

// peak returns per column what the node of a class with the most has free.
func (n *Nodes) peak(class int) []int64 {
	width := len(n.names)
	return n.peaks[class*width : (class+1)*width : (class+1)*width]
}

// hardTaints returns the taints that keep pods off a node, sorted.
func hardTaints(taints []corev1.Taint) []corev1.Taint {
	var hard []corev1.Taint
	for _, taint := range taints {
		if taint.Effect == corev1.TaintEffectNoSchedule || taint.Effect == corev1.TaintEffectNoExecute {
			// Since when there is a taint makes no difference here.
			hard = append(hard, corev1.Taint{Key: taint.Key, Value: taint.Value, Effect: taint.Effect})
		}
	}
	slices.SortFunc(hard, func(a, b corev1.Taint) int { return strings.Compare(a.ToString(), b.ToString()) })
	return hard
}

// classKey returns labels and taints as text that is equal only for equal ones. Neither can have a newline in it.
func classKey(group *NodeGroup) string {
	var b strings.Builder
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
