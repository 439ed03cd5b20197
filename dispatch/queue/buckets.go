// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"maps"
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

// minimum is what a class needs at least: places for a number of pods that each request so much of one resource.
type minimum struct {
	request
	pods int64
}

// minimumOf is what a job needs at least, on whichever worker.
func minimumOf(job *dispatch.Job) minimum {
	least := minimumOn(job.PodSets)
	others := slices.Collect(maps.Values(job.Admitted))
	for _, own := range job.Own.Variants() {
		if own.Fault == "" {
			others = append(others, own.PodSets)
		}
	}
	for _, podSets := range others {
		on := minimumOn(podSets)
		if on.request.name != least.request.name {
			return minimum{}
		}
		least.request.amount, least.pods = min(least.request.amount, on.request.amount), min(least.pods, on.pods)
	}
	return least
}

// minimumOn takes the pods with the largest request of an extended resource, usually GPUs. Without one, it takes CPU.
// Initializers and the other pods do not run at the same time.
func minimumOn(podSets []v1alpha1.PodSet) minimum {
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
	return minimum{request: most, pods: max(pods[0], pods[1])}
}

// compare says which request tells more about where a pod can go: extended resources, which most nodes lack, then CPU.
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

// probe is a PodSet of as many pods as possible that go to every node with room for the request.
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

// bucket has the classes with the same request.
type bucket struct {
	request
	probe   []v1alpha1.PodSet
	classes []*class // Sorted by pods.
}

func newBucket(r request) *bucket { return &bucket{request: r, probe: r.probe()} }

func byPods(a, b *class) int {
	return cmp.Or(cmp.Compare(a.minimum.pods, b.minimum.pods), cmp.Compare(a.name, b.name))
}

// upTo returns the classes that need at most this number of places.
func (b *bucket) upTo(places int64) []*class {
	at, _ := slices.BinarySearchFunc(b.classes, places, func(c *class, places int64) int {
		if c.minimum.pods <= places {
			return -1
		}
		return 1
	})
	return b.classes[:at]
}

// buckets finds the classes that a worker may have room for. It does not have the classes of strict policies.
type buckets map[request]*bucket

func (byRequest buckets) add(c *class) {
	b := byRequest[c.minimum.request]
	if b == nil {
		b = newBucket(c.minimum.request)
		byRequest[c.minimum.request] = b
	}
	at, _ := slices.BinarySearchFunc(b.classes, c, byPods)
	b.classes = slices.Insert(b.classes, at, c)
	c.bucket = b
}

func (byRequest buckets) remove(c *class) {
	at, found := slices.BinarySearchFunc(c.bucket.classes, c, byPods)
	if !found {
		return
	}
	if c.bucket.classes = slices.Delete(c.bucket.classes, at, at+1); len(c.bucket.classes) == 0 {
		delete(byRequest, c.minimum.request)
	}
}

// places caches how many pods of a bucket's request have a place on nodes. Nodes never change. If the nodes have too
// little for each class of the bucket, the number may be too high, but it is still too low for each class.
type places map[placesKey]int64

type placesKey struct {
	nodes  *dispatch.Nodes
	bucket *bucket
}

func (p places) of(nodes *dispatch.Nodes, b *bucket) int64 {
	if b.name != "" {
		// If the sum is too small, a closer look is not necessary.
		if sum := nodes.Free(b.name) / b.amount; sum < b.classes[0].minimum.pods {
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

// most returns the highest number of places for pods with the bucket's request that one of the given workers has.
func (p places) most(b *bucket, workers []dispatch.Worker, at []int) int64 {
	most := int64(-1)
	var worker v1alpha1.ClusterName
	defer dispatch.Blame(&worker)
	for _, i := range at {
		w := &workers[i]
		if worker = w.Name; w.TakesJobs() {
			most = max(most, p.of(w.Nodes, b))
		}
	}
	return most
}

// mayFit is false if the class certainly does not fit on the nodes.
func (p places) mayFit(c *class, nodes *dispatch.Nodes) bool {
	return p.of(nodes, c.bucket) >= c.minimum.pods
}
