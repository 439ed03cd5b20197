// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"math"
	"slices"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// request is an amount of a resource for one pod.
type request struct {
	name   corev1.ResourceName // Empty: nothing.
	amount int64               // As in dispatch.Resources.
}

// need is what a class needs in any case: places for so many pods that request so much of one resource each.
type need struct {
	request
	pods int64
}

// needOf goes by the pods with the largest request of an extended resource, GPUs usually, and by CPU where there is
// none. Initializers and the other pods take turns.
func needOf(podSets []v1alpha1.PodSet) need {
	var most request
	all := make([]dispatch.Resources, len(podSets))
	for i := range podSets {
		if podSets[i].Count <= 0 {
			continue
		}
		all[i] = dispatch.FromList(podSets[i].Requests)
		for name, amount := range all[i] {
			if r := (request{name, amount}); amount > 0 && r.compare(most) > 0 {
				most = r
			}
		}
	}
	var pods [2]int64
	for i := range podSets {
		if count := podSets[i].Count; count > 0 && all[i][most.name] >= most.amount {
			pods[dispatch.PhaseOf(&podSets[i])] += int64(count)
		}
	}
	return need{request: most, pods: max(pods[0], pods[1])}
}

// compare says which request tells more about where a pod can go: extended resources are what most nodes lack, and then
// CPU.
func (r request) compare(other request) int {
	return cmp.Or(cmp.Compare(r.rank(), other.rank()), cmp.Compare(r.amount, other.amount), cmp.Compare(other.name, r.name))
}

func (r request) rank() int {
	switch {
	case r.name == "":
		return 0
	case dispatch.IsExtended(r.name):
		return 3
	case r.name == corev1.ResourceCPU:
		return 2
	}
	return 1
}

// probe is a PodSet of as many pods as there can be, which go wherever one can that has this request.
func (r request) probe() []v1alpha1.PodSet {
	set := v1alpha1.PodSet{
		Name: "probe", Role: v1alpha1.RoleTrainer, Count: math.MaxInt32,
		Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
	}
	switch r.name {
	case "":
	case corev1.ResourceCPU:
		set.Requests = corev1.ResourceList{r.name: *resource.NewMilliQuantity(r.amount, resource.DecimalSI)}
	default:
		set.Requests = corev1.ResourceList{r.name: *resource.NewQuantity(r.amount, resource.DecimalSI)}
	}
	return []v1alpha1.PodSet{set}
}

// bucket are classes that go by the same request.
type bucket struct {
	request
	probe   []v1alpha1.PodSet
	classes []*class // By pods.
}

func newBucket(r request) *bucket { return &bucket{request: r, probe: r.probe()} }

func byPods(a, b *class) int {
	return cmp.Or(cmp.Compare(a.need.pods, b.need.pods), cmp.Compare(a.name, b.name))
}

// upTo returns the classes that need no more than so many places.
func (b *bucket) upTo(places int64) []*class {
	at, _ := slices.BinarySearchFunc(b.classes, places, func(c *class, places int64) int {
		if c.need.pods <= places {
			return -1
		}
		return 1
	})
	return b.classes[:at]
}

// needs finds the classes that a worker may have room for. Those of strict policies are not among them.
type needs map[request]*bucket

func (n needs) add(c *class) {
	b := n[c.need.request]
	if b == nil {
		b = newBucket(c.need.request)
		n[c.need.request] = b
	}
	at, _ := slices.BinarySearchFunc(b.classes, c, byPods)
	b.classes = slices.Insert(b.classes, at, c)
	c.bucket = b
}

func (n needs) remove(c *class) {
	at, found := slices.BinarySearchFunc(c.bucket.classes, c, byPods)
	if !found {
		return
	}
	if c.bucket.classes = slices.Delete(c.bucket.classes, at, at+1); len(c.bucket.classes) == 0 {
		delete(n, c.need.request)
	}
}

// places remembers for how many pods of a bucket's request there is a place on nodes, which never change, or says a
// number that is too high, but less than any class needs.
type places map[placesKey]int64

type placesKey struct {
	nodes  *dispatch.Nodes
	bucket *bucket
}

func (p places) of(nodes *dispatch.Nodes, b *bucket) int64 {
	if b.name != "" {
		// If there is not enough in sum nobody has to look closer.
		if sum := nodes.Free(b.name) / b.amount; sum < b.classes[0].need.pods {
			return sum
		}
	}
	key := placesKey{nodes, b}
	found, known := p[key]
	if !known {
		found = nodes.Places(b.probe)
		p[key] = found
	}
	return found
}

// most returns the largest number of pods with a bucket's request that have a place on one of some workers.
func (p places) most(b *bucket, workers []dispatch.Worker, at []int) int64 {
	most := int64(-1)
	for _, i := range at {
		if w := &workers[i]; isOpen(w) {
			most = max(most, p.of(w.Nodes, b))
		}
	}
	return most
}

// mayFit is false if the class does certainly not fit on the nodes.
func (p places) mayFit(c *class, nodes *dispatch.Nodes) bool {
	return p.of(nodes, c.bucket) >= c.need.pods
}
