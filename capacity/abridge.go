// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"encoding/json"
	"fmt"
	"maps"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// ReportLimit is how many bytes of JSON a CapacityReport may have. etcd takes 1.5 MiB, metadata included.
const ReportLimit = 1_000_000

// abridgements make a snapshot smaller, in this order: the first one loses least. None of them makes more seem free.
var abridgements = []struct {
	name v1alpha1.Abridgement
	by   func(*Snapshot) *Snapshot
	// quota: it is of no use if no quota is counted.
	quota bool
}{
	{v1alpha1.AbridgedFinishedGangs, withoutFinishedGangs, false},
	{v1alpha1.AbridgedNodeLabels, withoutNodeLabels, false},
	{v1alpha1.AbridgedGangs, withoutGangsOnNodes, false},
	{v1alpha1.AbridgedAmounts, withMostUsed, false},
	{v1alpha1.AbridgedWorkloads, withoutWorkloads, true},
	{v1alpha1.AbridgedNodes, func(s *Snapshot) *Snapshot { return &Snapshot{Quota: s.Quota} }, false},
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
		abridged = append(abridged, step.name)
		report = newReport(s)
		report.Abridged = abridged
	}
	return report, nil
}

// withoutFinishedGangs leaves out gangs without bound pods.
func withoutFinishedGangs(s *Snapshot) *Snapshot {
	abridged := &Snapshot{Nodes: s.Nodes, Quota: s.Quota, Gangs: map[types.NamespacedName]map[string]GangPods{}}
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
	abridged := &Snapshot{Gangs: s.Gangs, Quota: s.Quota, Nodes: make([]*NodeState, len(s.Nodes))}
	for i, node := range s.Nodes {
		changed := *node
		change(&changed)
		abridged.Nodes[i] = &changed
	}
	return abridged
}
