// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build unix

package dispatch

import (
	"fmt"
	"math"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// wide returns a job of one pod that requests many resources, and a node that has all of them, but too little of each.
func wide(resources int) ([]v1alpha1.PodSet, []NodeGroup) {
	list, free := corev1.ResourceList{}, Resources{}
	for i := range resources {
		name := corev1.ResourceName(fmt.Sprintf("example.com/r%d", i))
		list[name], free[name] = *resource.NewQuantity(2, resource.DecimalSI), 1
	}
	return []v1alpha1.PodSet{podSet(3, 0, requests(list))}, []NodeGroup{{Free: free, Count: 1}, {Free: free, Labels: map[string]string{"a": "b"}, Count: 1}}
}

// TestWorkGrowsWithResources: a decision runs under the lock of the waiting list, so its time must not grow with the
// square of what users or workers write. One decision about 16,000 resources is compared with 16 decisions about 1,000,
// in turn: it may take four times as much time of the processor. It would take 16 times as much with a square.
func TestWorkGrowsWithResources(t *testing.T) {
	const few, times, limit = 1_000, 16, 4
	for name, work := range map[string]func(podSets []v1alpha1.PodSet, groups []NodeGroup){
		"Job":    func(podSets []v1alpha1.PodSet, _ []NodeGroup) { newGang(podSets) },
		"Nodes":  func(_ []v1alpha1.PodSet, groups []NodeGroup) { NewNodes(groups) },
		"Fit":    func(podSets []v1alpha1.PodSet, groups []NodeGroup) { NewNodes(groups).Fit(podSets) },
		"Absent": func(podSets []v1alpha1.PodSet, _ []NodeGroup) { NewNodes([]NodeGroup{gpuNodes(4, 8)}).Fit(podSets) },
		"Short": func(podSets []v1alpha1.PodSet, groups []NodeGroup) { // It has no limit of columns.
			n := &Nodes{names: newGang(podSets).names, classes: []class{{}}}
			n.setRows([]row{{free: n.amounts(groups[0].Free), count: 2}})
			n.Fit(podSets)
		},
	} {
		t.Run(name, func(t *testing.T) {
			fewPodSets, fewGroups := wide(few)
			manyPodSets, manyGroups := wide(few * times)
			small, large := time.Duration(math.MaxInt64), time.Duration(math.MaxInt64)
			for range 35 { // The least of each counts: the garbage collector and other processes disturb some.
				start := processorTime(t)
				for range times {
					work(fewPodSets, fewGroups)
				}
				between := processorTime(t)
				work(manyPodSets, manyGroups)
				small, large = min(small, between-start), min(large, processorTime(t)-between)
			}
			if large > limit*small {
				t.Errorf("one decision about %d resources takes %v, %d decisions about %d take %v", few*times, large, times, few, small)
			}
		})
	}
}

// processorTime is what this process has used. Unlike a clock, it does not count what other processes use.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var usage syscall.Rusage
	check.Must(t, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// TestTooManyResources: a worker's nodes may have any number of resources. The resources of Kubernetes and the most
// common ones are counted, and the message says that others are not.
func TestTooManyResources(t *testing.T) {
	groups := []NodeGroup{gpuNodes(2, 8)}
	groups[0].Free[corev1.ResourceMemory], groups[0].Free[corev1.ResourcePods] = 1<<40, 110
	odd := gpuNodes(1, 8)
	for i := range 5000 {
		odd.Free[corev1.ResourceName(fmt.Sprintf("a.example.com/r%d", i))] = 1
	}
	n := NewNodes(append(groups, odd))
	check.Equal(t, maxColumns, len(n.names), "columns")
	for _, name := range []corev1.ResourceName{gpu, corev1.ResourceMemory, corev1.ResourcePods} {
		if n.column(name) < 0 {
			t.Errorf("%s is not counted", name)
		}
	}
	rest := n.Reserve([]v1alpha1.PodSet{podSet(1, 8)})
	got := rest.Fit([]v1alpha1.PodSet{podSet(1, 1, requests(corev1.ResourceList{"z.example.com/none": resource.MustParse("1")}))})
	want := &Shortfall{
		PodSet: "node", Message: fmt.Sprintf("no node has the resource z.example.com/none, of the 256 that are counted; the nodes have %d", 5003),
	}
	check.Diff(t, want, got, "Fit()")
}

// TestShortAgainstReference: short looks at the rows once for each resource. The reference leaves out one resource
// after another and counts again.
func TestShortAgainstReference(t *testing.T) {
	reference := func(n *Nodes, takes []int, p *pods) []demand {
		found := n.roomOn(takes, p.bound, p.need)
		needed := slices.Clone(p.bound)
		for i := len(needed) - 1; i >= 0; i-- {
			rest := slices.Delete(slices.Clone(needed), i, i+1)
			if len(rest) > 0 && n.roomOn(takes, rest, p.need) == found {
				needed = rest
			}
		}
		return slices.DeleteFunc(slices.Clone(p.bound), func(d demand) bool {
			return n.roomOn(takes, []demand{d}, p.need) >= p.need && !slices.Contains(needed, d)
		})
	}
	compared := 0
	for seed := range uint64(4000) {
		r := newRandom(seed)
		n, g := NewNodes(r.nodes(5)), newGang(r.podSets(1))
		g.bind(n)
		for i := range g.phases {
			for j := range g.phases[i].pods {
				p := &g.phases[i].pods[j]
				takes := populated(n)
				if n.roomOn(takes, p.bound, p.need) >= p.need {
					continue
				}
				compared++
				if diff := cmp.Diff(reference(n, takes, p), n.short(takes, p), cmp.AllowUnexported(demand{})); diff != "" {
					t.Fatalf("seed %d: short() (-reference +got)\n%s", seed, diff)
				}
			}
		}
	}
	if compared < 500 {
		t.Errorf("only %d demands were short", compared)
	}
}

// BenchmarkManyResources decides about a job of many resources. The nodes have them all, but too little of each.
func BenchmarkManyResources(b *testing.B) {
	for _, resources := range []int{32, 128, 512} {
		b.Run(fmt.Sprint(resources), func(b *testing.B) {
			podSets, groups := wide(resources)
			workers := []Worker{{Name: "a", Nodes: NewNodes(groups)}}
			for b.Loop() {
				Decide(Job{UID: "a", PodSets: podSets}, nil, workers)
			}
		})
	}
}
