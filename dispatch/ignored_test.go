// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"math"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

const gpumem corev1.ResourceName = "nvidia.com/gpumem"

// virtual is a gang whose pods request a resource that no node lists.
func virtual(count int32, gpus int64) []v1alpha1.PodSet {
	set := podSet(count, gpus)
	set.Requests[gpumem] = resource.MustParse("8000")
	return []v1alpha1.PodSet{set}
}

func ignoring(groups ...NodeGroup) *Nodes {
	return NewNodes(groups).Ignoring([]v1alpha1.ExtendedResourceName{"nvidia.com/gpucores", "nvidia.com/gpumem"})
}

// A gang fits on nodes that ignore a resource as if its pods did not request it.
func TestIgnoredResources(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		nodes  *Nodes
		gang   []v1alpha1.PodSet
		// without is the same gang without the resource.
		without []v1alpha1.PodSet
	}{
		"Fits":     {nodes: ignoring(gpuNodes(2, 8)), gang: virtual(4, 4), without: []v1alpha1.PodSet{podSet(4, 4)}},
		"TooLarge": {reason: "other resources count", nodes: ignoring(gpuNodes(2, 8)), gang: virtual(5, 4), without: []v1alpha1.PodSet{podSet(5, 4)}},
		"Listed": {
			reason: "a node that lists it all the same makes no difference",
			nodes:  ignoring(NodeGroup{Free: Resources{gpu: 8, gpumem: 10}, Count: 1}, gpuNodes(1, 8)), gang: virtual(4, 4), without: []v1alpha1.PodSet{podSet(4, 4)},
		},
		"NothingElse": {reason: "no resource is left", nodes: ignoring(gpuNodes(1, 8)), gang: virtual(3, 0), without: []v1alpha1.PodSet{podSet(3, 0)}},
		"NoNodes":     {reason: "a pod needs a node", nodes: ignoring(), gang: virtual(1, 0), without: []v1alpha1.PodSet{podSet(1, 0)}},
		"TwoKinds": {
			reason: "pods that run at the same time", nodes: ignoring(gpuNodes(2, 8)),
			gang:    append(virtual(2, 6), podSet(2, 2, named("other", v1alpha1.RoleTrainer))),
			without: []v1alpha1.PodSet{podSet(2, 6), podSet(2, 2, named("other", v1alpha1.RoleTrainer))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			empty := ignoring(gpuNodes(4, 8))
			check.Diff(t, test.nodes.Fit(test.without), test.nodes.Fit(test.gang), test.reason)
			check.Equal(t, test.nodes.Places(test.without), test.nodes.Places(test.gang), "Places()")
			check.Diff(t, test.nodes.Reserve(test.without).Groups(), test.nodes.Reserve(test.gang).Groups(), "Reserve()")
			check.Diff(t, test.nodes.Spread(test.without).Groups(), test.nodes.Spread(test.gang).Groups(), "Spread()")
			check.Diff(t, test.nodes.Hold(test.without, empty).Groups(), test.nodes.Hold(test.gang, empty).Groups(), "Hold()")
			check.Diff(t, test.nodes.Close(test.without, empty).Groups(), test.nodes.Close(test.gang, empty).Groups(), "Close()")
		})
	}
}

// What is left of nodes ignores the same, and says of an ignored resource that it is no limit.
func TestIgnoredResourcesStayIgnored(t *testing.T) {
	nodes := ignoring(gpuNodes(2, 8))
	for name, left := range map[string]*Nodes{
		"Reserve": nodes.Reserve(virtual(1, 8)), "Spread": nodes.Spread(virtual(1, 8)), "Hold": nodes.Hold(virtual(1, 8), nodes),
	} {
		if lack := left.Fit(virtual(1, 8)); lack != nil {
			t.Errorf("%s: the second pod lacks %s", name, lack.Message)
		}
		if left.Fit(virtual(2, 8)) == nil {
			t.Errorf("%s: the first pod has taken nothing", name)
		}
		check.Equal(t, int64(math.MaxInt64), left.Free(gpumem), "%s: Free()", name)
	}
	if lack := nodes.Ignoring(nil).Fit(virtual(1, 8)); lack == nil || !strings.Contains(lack.Message, "no node has the resource nvidia.com/gpumem") {
		t.Errorf("the gang lacks %v on nodes that ignore nothing any more", lack)
	}
}

// The worker of a WorkerCluster ignores what its spec says, in decisions and in the amounts that scores and expressions
// see.
func TestWorkerIgnoresResources(t *testing.T) {
	allocatable := Resources{gpu: 16, gpumem: 10}
	cluster := func(name string, names ...v1alpha1.ExtendedResourceName) Worker {
		return WorkerOf(&v1alpha1.WorkerCluster{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.WorkerClusterSpec{IgnoredResources: names},
		}, NewNodes([]NodeGroup{gpuNodes(2, 8)}), allocatable)
	}
	job := Job{UID: types.UID("uid"), PodSets: virtual(2, 8)}
	workers := []Worker{cluster("east", "nvidia.com/gpumem"), cluster("west")}
	check.Equal(t, "east", Decide(job, nil, workers).Cluster, "the worker")
	nearest := Nearest(job, nil, workers) // What nominations and moves ask.
	check.Equal(t, "east Fits", string(nearest.Cluster)+" "+nearest.Reason, "the nearest worker")
	check.Diff(t, Resources{gpu: 16}, workers[0].Allocatable, "allocatable of east")
	check.Diff(t, Resources{gpu: 16, gpumem: 10}, workers[1].Allocatable, "allocatable of west")
	const want = "no node has the resource nvidia.com/gpumem; if the worker can add nodes that have it, " +
		"describe them in spec.expandable of the WorkerCluster; if a scheduler extender manages it there, add it to spec.ignoredResources"
	line := Explain(job, nil, workers)[1]
	check.Equal(t, v1alpha1.ReasonNoMatchingNode, line.Reason, "why not west")
	check.Equal(t, want, line.Message, "why not west")
}

// Where nothing is ignored, nothing is allocated for it.
func TestIgnoringNothingIsFree(t *testing.T) {
	nodes := NewNodes([]NodeGroup{gpuNodes(2, 8)})
	cluster := &v1alpha1.WorkerCluster{}
	allocations := testing.AllocsPerRun(100, func() {
		if nodes.Ignoring(cluster.Spec.IgnoredResources) != nodes || len(without(nil, cluster.Spec.IgnoredResources)) > 0 {
			t.Fatal("the nodes are others")
		}
	})
	check.Equal(t, 0.0, allocations, "allocations")
}
