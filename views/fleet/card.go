// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/views/output"
)

// Card is what the board shows of a worker. Its numbers are those of Table.
type Card struct {
	Name string `json:"name"`
	// States are what Ready says, without the time.
	States []string `json:"states"`
	// Message says why the worker gets no jobs. Empty: it is ready.
	Message string `json:"message,omitempty"`
	// Seen is when the worker last answered. Nil: it answers.
	Seen    *metav1.Time `json:"seen,omitempty"`
	Agent   string       `json:"agent"`
	Version string       `json:"version"`
	Created metav1.Time  `json:"created"`
	Jobs    int32        `json:"jobs"`
	Pools   []Pool       `json:"pools,omitempty"`
	Nodes   []Cell       `json:"nodes,omitempty"`
	CPU     string       `json:"cpu"`
	Memory  string       `json:"memory"`
	Price   string       `json:"price"`
	CanAdd  string       `json:"canAdd"`
	Labels  string       `json:"labels"`
	Taints  string       `json:"taints"`
	// Notes say what an admin should look at.
	Notes []string `json:"notes,omitempty"`
}

// Pool is the devices of one product and resource on a worker.
type Pool struct {
	Name  string `json:"name"`
	Free  int64  `json:"free"`
	Total int64  `json:"total"`
	// Gang is the largest gang of whole nodes that has room, such as 4x8.
	Gang string `json:"gang"`
}

// Cell is a number of nodes that are equally full.
type Cell struct {
	Nodes int32 `json:"nodes"`
	// Free of Total are free on each of the nodes: devices, or thousandths of cores on nodes without any.
	Free  int64 `json:"free"`
	Total int64 `json:"total"`
	// Resource is what is counted, and Product what a label of the nodes calls it.
	Resource string `json:"resource"`
	Product  string `json:"product,omitempty"`
}

// CardOf returns the card of a worker. known are the accelerators of the whole fleet.
func CardOf(cluster *v1alpha1.WorkerCluster, known accelerators.Table) Card {
	_, message := readiness(cluster)
	cpu, memory := freeOutsideDevices(cluster.Status.NodeGroups)
	card := Card{
		Name: cluster.Name, States: States(cluster), Message: message, Seen: cluster.Status.LastSeenTime, Agent: Agent(cluster),
		Version: output.Or(cluster.Status.KubernetesVersion, output.Unknown), Created: cluster.CreationTimestamp, Jobs: cluster.Status.Jobs,
		Nodes: cellsOf(cluster.Status.NodeGroups), CPU: cpu, Memory: memory, Price: prices(cluster.Spec.Price), CanAdd: addable(cluster),
		Labels: labels.FormatLabels(cluster.Labels), Taints: taints(cluster.Status.NodeGroups), Notes: Notes([]v1alpha1.WorkerCluster{*cluster}),
	}
	for _, p := range pools(cluster.Status.NodeGroups, known) {
		card.Pools = append(card.Pools, Pool{Name: p.name(), Free: p.free, Total: p.total, Gang: p.largest()})
	}
	return card
}

// IsReady is true for a worker that gets new jobs.
func (c *Card) IsReady() bool { return len(c.States) == 1 && c.States[0] == "True" }

// cellsOf returns the nodes, the fullest first within a group.
func cellsOf(groups []v1alpha1.NodeGroup) []Cell {
	var cells []Cell
	for i := range groups {
		group := &groups[i]
		first := len(cells)
		listed := int32(0)
		for _, free := range group.Free {
			cells = append(cells, cellOf(group, free.Nodes, free.Free, free.GPUs))
			listed += free.Nodes
		}
		if rest := group.Nodes - listed; rest > 0 {
			cells = append(cells, cellOf(group, rest, group.Allocatable, amountOf(group.Allocatable, group.Resource)))
		}
		slices.SortStableFunc(cells[first:], func(a, b Cell) int { return cmp.Compare(a.Free*max(b.Total, 1), b.Free*max(a.Total, 1)) })
	}
	return cells
}

func cellOf(group *v1alpha1.NodeGroup, nodes int32, free corev1.ResourceList, devices int64) Cell {
	cell := Cell{Nodes: nodes, Resource: string(cmp.Or(group.Resource, corev1.ResourceCPU)), Product: group.Product}
	if group.Resource != "" {
		cell.Free, cell.Total = devices, amountOf(group.Allocatable, group.Resource)
		return cell
	}
	cell.Free, cell.Total = free.Cpu().MilliValue(), group.Allocatable.Cpu().MilliValue()
	return cell
}

func amountOf(list corev1.ResourceList, name corev1.ResourceName) int64 {
	quantity := list[name]
	return quantity.Value()
}

// Summary counts the workers and their whole devices.
type Summary struct {
	Workers int   `json:"workers"`
	Ready   int   `json:"ready"`
	Jobs    int32 `json:"jobs"`
	Free    int64 `json:"free"`
	Total   int64 `json:"total"`
	Nodes   int64 `json:"nodes"`
}

// Add counts a worker.
func (s *Summary) Add(cluster *v1alpha1.WorkerCluster, card *Card) {
	s.Workers++
	if card.IsReady() {
		s.Ready++
	}
	s.Jobs += card.Jobs
	free, total := devices(cluster)
	s.Free, s.Total = s.Free+free, s.Total+total
	for _, cell := range card.Nodes {
		s.Nodes += int64(cell.Nodes)
	}
}

// freeOutsideDevices is what cores and memory are free, if the status says so exactly.
func freeOutsideDevices(groups []v1alpha1.NodeGroup) (cpu, memory string) {
	nodes, exact := Nodes(groups)
	if !exact || nodes.Count() == 0 {
		return output.Unknown, output.Unknown
	}
	return resource.NewMilliQuantity(nodes.Free(corev1.ResourceCPU), resource.DecimalSI).String(), gibibytes(nodes.Free(corev1.ResourceMemory))
}

// devices are the free and all whole devices of a worker.
func devices(cluster *v1alpha1.WorkerCluster) (free, total int64) {
	for _, p := range pools(cluster.Status.NodeGroups, accelerators.Seen([]v1alpha1.WorkerCluster{*cluster})) {
		if p.unit == accelerators.Device {
			free, total = free+p.free, total+p.total
		}
	}
	return free, total
}

// largest is the largest gang of whole nodes that has room.
func (p *pool) largest() string {
	nodes, gpus := p.gang()
	if nodes == 0 {
		return "0"
	}
	return fmt.Sprintf("%dx%d", nodes, gpus)
}

// Title sums the states up in one word for a heading.
func (c *Card) Title() string {
	if c.IsReady() {
		return "Ready"
	}
	return strings.TrimPrefix(strings.Join(c.States, ", "), "True, ")
}
