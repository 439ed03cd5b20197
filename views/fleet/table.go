// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/views/output"
)

// Table returns a table of workers, with a row for each product of GPUs or similar devices of each worker, and for each
// kind of shares.
func Table(clusters []v1alpha1.WorkerCluster, now time.Time) *metav1.Table {
	table := output.NewTable(
		output.Column{Name: "Name"}, output.Column{Name: "Ready"}, output.Column{Name: "GPU"}, output.Column{Name: "Free/Total"},
		output.Column{Name: "Largest-Gang"}, output.Column{Name: "Jobs"}, output.Column{Name: "Agent"}, output.Column{Name: "Version"},
		output.Column{Name: "Age"},
		output.Column{Name: "CPU-Free", Wide: true}, output.Column{Name: "Memory-Free", Wide: true}, output.Column{Name: "Source", Wide: true},
		output.Column{Name: "Price", Wide: true}, output.Column{Name: "Can-Add", Wide: true},
		output.Column{Name: "Labels", Wide: true}, output.Column{Name: "Taints", Wide: true}, output.Column{Name: "Message", Wide: true})
	known := accelerators.Seen(clusters)
	for i := range clusters {
		cluster := &clusters[i]
		all := pools(cluster.Status.NodeGroups, known)
		if len(all) == 0 {
			all = []*pool{nil}
		}
		for _, p := range all {
			groups := cluster.Status.NodeGroups
			if p != nil {
				groups = p.groups
			}
			output.Add(table, append(cells(cluster, p, now), wideCells(cluster, groups)...)...)
		}
	}
	return table
}

func cells(cluster *v1alpha1.WorkerCluster, p *pool, now time.Time) []any {
	gpu, free, largest := output.None, output.None, output.None
	if p != nil {
		gpu = p.name()
		free = fmt.Sprintf("%d/%d", p.free, p.total)
		largest = p.largest()
	}
	return []any{
		cluster.Name, Ready(cluster, now), gpu, free, largest, cluster.Status.Jobs, Agent(cluster),
		output.Or(cluster.Status.KubernetesVersion, output.Unknown), output.Age(cluster.CreationTimestamp, now),
	}
}

func wideCells(cluster *v1alpha1.WorkerCluster, groups []v1alpha1.NodeGroup) []any {
	_, message := readiness(cluster)
	cpu, memory := freeOutsideDevices(groups)
	return []any{
		cpu, memory, cmp.Or(cluster.Spec.Capacity, v1alpha1.CapacityFromPods), prices(cluster.Spec.Price),
		addable(cluster), labels.FormatLabels(cluster.Labels), taints(groups), message,
	}
}

// gibibytes rounds down.
func gibibytes(bytes int64) string { return fmt.Sprintf("%dGi", bytes>>30) }

func prices(of v1alpha1.Prices) string {
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(of)) {
		price := of[name]
		texts = append(texts, fmt.Sprintf("%s=%g", name, price.AsApproximateFloat64()))
	}
	return output.Or(strings.Join(texts, ","), output.None)
}

// addable returns how many nodes the worker can add, by the item of spec.expandable.
func addable(cluster *v1alpha1.WorkerCluster) string {
	var texts []string
	for _, nodes := range dispatch.AddableOf(cluster) {
		texts = append(texts, fmt.Sprintf("%s=%d", nodes.Added, nodes.Count))
	}
	return output.Or(strings.Join(texts, ","), output.None)
}

func taints(groups []v1alpha1.NodeGroup) string {
	var texts []string
	for i := range groups {
		for _, taint := range groups[i].Taints {
			texts = append(texts, taint.ToString())
		}
	}
	slices.Sort(texts)
	return output.Or(strings.Join(slices.Compact(texts), ","), output.None)
}

// GPUs returns "free/total" over all products of a worker, without shares of devices.
func GPUs(cluster *v1alpha1.WorkerCluster) string {
	free, total := devices(cluster)
	return fmt.Sprintf("%d/%d", free, total)
}
