// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity/devices"
)

// ReportLimit is how many bytes of JSON a CapacityReport may have. etcd takes 1.5 MiB, metadata included.
const ReportLimit = 1_000_000

// abridgements make a snapshot smaller, in this order: the first one loses least. None of them makes more devices or
// amounts seem free.
var abridgements = []struct {
	// name is empty if the snapshot says itself what is left out.
	name v1alpha1.Abridgement
	by   func(*Snapshot) *Snapshot
	// quota: it is of no use if no quota is counted.
	quota bool
}{
	{"", withoutClaims, false},
	{v1alpha1.AbridgedFinishedGangs, withoutFinishedGangs, false},
	{v1alpha1.AbridgedNodeLabels, withoutNodeLabels, false},
	{v1alpha1.AbridgedGangs, withoutGangsOnNodes, false},
	{v1alpha1.AbridgedAmounts, withMostUsed, false},
	{v1alpha1.AbridgedWorkloads, withoutWorkloads, true},
	{v1alpha1.AbridgedNodes, func(s *Snapshot) *Snapshot { return &Snapshot{Quota: s.Quota, Uncounted: s.Uncounted} }, false},
	{v1alpha1.AbridgedQuota, withoutQuota, true},
}

// NewReport writes a snapshot into a CapacityReport of at most limit bytes of JSON. If the report is too large, it
// leaves data out, and says which. Equal snapshots give equal reports. The caller sets RenewTime and metadata.
func NewReport(s *Snapshot, limit int) (*v1alpha1.CapacityReport, error) {
	report := newReport(s)
	var abridged []v1alpha1.Abridgement
	for _, step := range abridgements {
		if step.quota && s.Quota == nil {
			continue
		}
		data, err := json.Marshal(report)
		if err != nil {
			return nil, fmt.Errorf("encode capacity report: %w", err)
		}
		if len(data) <= limit {
			break
		}
		s = step.by(s)
		if step.name != "" {
			abridged = append(abridged, step.name)
		}
		report = newReport(s)
		report.Abridged = abridged
	}
	return report, nil
}

// withoutClaims leaves out kinds of claims, and says so.
func withoutClaims(s *Snapshot) *Snapshot {
	if !slices.ContainsFunc(s.Nodes, (*NodeState).hasClaims) {
		return s
	}
	abridged := eachNode(s, func(n *NodeState) { *n = *n.WithoutClaims() })
	const why = "kinds of claims are not counted: the CapacityReport has no room for them"
	abridged.Uncounted = append([]string{why}, s.Uncounted[:min(len(s.Uncounted), devices.MaxFaults-1)]...)
	return abridged
}

func (n *NodeState) hasClaims() bool {
	for name := range n.Allocatable {
		if v1alpha1.IsDeviceClaim(name) {
			return true
		}
	}
	return false
}

// WithoutClaims returns the node without the kinds of claims that are counted. Their names are long, and they make kinds of
// nodes that are alike otherwise.
func (n *NodeState) WithoutClaims() *NodeState {
	if !n.hasClaims() { // Most workers have none.
		return n
	}
	without := func(amounts Resources) Resources {
		left := maps.Clone(amounts)
		maps.DeleteFunc(left, func(name corev1.ResourceName, _ int64) bool { return v1alpha1.IsDeviceClaim(name) })
		return left
	}
	shown := *n
	shown.Allocatable, shown.Used, shown.Gangs = without(n.Allocatable), without(n.Used), maps.Clone(n.Gangs)
	for gang, used := range shown.Gangs {
		shown.Gangs[gang] = without(used)
	}
	return &shown
}

// withoutFinishedGangs leaves out gangs without bound pods.
func withoutFinishedGangs(s *Snapshot) *Snapshot {
	abridged := &Snapshot{Nodes: s.Nodes, Quota: s.Quota, Uncounted: s.Uncounted, Gangs: map[types.NamespacedName]map[string]GangPods{}}
	for key, jobs := range s.Gangs {
		for _, pods := range jobs {
			if pods.Bound > 0 {
				abridged.Gangs[key] = jobs
				break
			}
		}
	}
	return abridged
}

// withoutNodeLabels leaves out labels that only one node has.
func withoutNodeLabels(s *Snapshot) *Snapshot {
	nodes := map[label]int{}
	for _, node := range s.Nodes {
		for key, value := range node.Labels {
			nodes[label{key, value}] += node.Count
		}
	}
	return eachNode(s, func(node *NodeState) {
		node.Labels = maps.Clone(node.Labels)
		maps.DeleteFunc(node.Labels, func(key, value string) bool { return nodes[label{key, value}] == 1 })
	})
}

// withoutGangsOnNodes leaves out which resources gangs use on which nodes.
func withoutGangsOnNodes(s *Snapshot) *Snapshot {
	return eachNode(s, func(node *NodeState) { node.Gangs = nil })
}

// withMostUsed treats nodes that differ only in what is used: each gets the most that is used on one of them.
func withMostUsed(s *Snapshot) *Snapshot {
	w := newReportWriter(s)
	most := map[string]Resources{}
	key := func(node *NodeState) string {
		group := w.group(node)
		return groupKey(&group)
	}
	for _, node := range s.Nodes {
		most[key(node)] = largest(most[key(node)], node.Used)
	}
	return eachNode(s, func(node *NodeState) { node.Used = most[key(node)] })
}

// withoutWorkloads leaves out which jobs have reserved which part of the quota. What is reserved in all stays.
func withoutWorkloads(s *Snapshot) *Snapshot {
	abridged := *s
	if s.Quota != nil {
		quota := *s.Quota
		quota.Workloads = nil
		abridged.Quota = &quota
	}
	return &abridged
}

// withoutQuota leaves out all queues.
func withoutQuota(s *Snapshot) *Snapshot {
	abridged := *s
	if s.Quota != nil {
		abridged.Quota = &v1alpha1.KueueQuota{}
	}
	return &abridged
}

// largest returns the larger of two amounts for each resource.
func largest(a, b Resources) Resources {
	result := maps.Clone(a)
	if result == nil {
		result = make(Resources, len(b))
	}
	for name, amount := range b {
		result[name] = max(result[name], amount)
	}
	return result
}

// eachNode returns a snapshot with changed copies of the nodes.
func eachNode(s *Snapshot, change func(*NodeState)) *Snapshot {
	abridged := &Snapshot{Gangs: s.Gangs, Quota: s.Quota, Uncounted: s.Uncounted, Nodes: make([]*NodeState, len(s.Nodes))}
	for i, node := range s.Nodes {
		changed := *node
		change(&changed)
		abridged.Nodes[i] = &changed
	}
	return abridged
}
