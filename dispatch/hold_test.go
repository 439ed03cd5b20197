// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func TestClose(t *testing.T) {
	h100 := map[string]string{"gpu": "h100"}
	nodes := NewNodes([]NodeGroup{
		{Free: Resources{gpu: 8}, Count: 2}, {Free: Resources{gpu: 3}, Count: 3}, {Labels: h100, Free: Resources{gpu: 8}, Count: 1},
	})
	empty := NewNodes([]NodeGroup{{Free: Resources{gpu: 8}, Count: 5}, {Labels: h100, Free: Resources{gpu: 8}, Count: 1}})
	got := nodes.Close([]v1alpha1.PodSet{podSet(1, 4, onNodes(h100))}, empty).Groups()
	want := []NodeGroup{{Free: Resources{gpu: 3}, Count: 3}, {Free: Resources{gpu: 8}, Count: 2}, {Labels: h100, Free: Resources{gpu: 0}, Count: 1}}
	check.Diff(t, want, got, "only what the gang could use is closed")
	got = nodes.Close([]v1alpha1.PodSet{podSet(1, 4)}, empty).Groups()
	want = []NodeGroup{{Free: Resources{gpu: 0}, Count: 5}, {Labels: h100, Free: Resources{gpu: 0}, Count: 1}}
	check.Diff(t, want, got, "all that the gang could use is closed, however little it needs")
}

func TestHold(t *testing.T) {
	group := func(count int, gpus int64) NodeGroup { return NodeGroup{Free: Resources{gpu: gpus}, Count: count} }
	h100 := map[string]string{"gpu": "h100"}
	cases := map[string]struct {
		reason       string
		podSets      []v1alpha1.PodSet
		nodes, empty []NodeGroup
		want         []NodeGroup
	}{
		"TakesAndCloses": {
			reason:  "one pod has its place, and for the other one node is closed, the one with the most free",
			podSets: []v1alpha1.PodSet{podSet(2, 8)},
			nodes:   []NodeGroup{group(1, 8), group(1, 5), group(1, 4), group(1, 0)},
			empty:   []NodeGroup{group(4, 8)},
			want:    []NodeGroup{group(3, 0), group(1, 4)},
		},
		"AsManyAsTheyNeed": {
			reason:  "five pods need two nodes of four, and one of four has a place",
			podSets: []v1alpha1.PodSet{podSet(6, 2)},
			nodes:   []NodeGroup{group(1, 3), group(3, 1)},
			empty:   []NodeGroup{group(4, 8)},
			want:    []NodeGroup{group(2, 0), group(2, 1)},
		},
		"Fits": {
			reason:  "a gang that fits has nothing closed",
			podSets: []v1alpha1.PodSet{podSet(2, 8)},
			nodes:   []NodeGroup{group(2, 8), group(2, 7)},
			empty:   []NodeGroup{group(4, 8)},
			want:    []NodeGroup{group(2, 0), group(2, 7)},
		},
		"OtherNodes": {
			reason:  "nodes that could not take the pods even if they were empty, or do not match, stay open",
			podSets: []v1alpha1.PodSet{podSet(2, 8, onNodes(h100))},
			nodes: []NodeGroup{
				group(4, 7),
				{Labels: map[string]string{"gpu": "h100", "half": ""}, Free: Resources{gpu: 4}, Count: 2},
				{Labels: h100, Free: Resources{gpu: 2}, Count: 3},
			},
			empty: []NodeGroup{
				group(4, 8),
				{Labels: map[string]string{"gpu": "h100", "half": ""}, Free: Resources{gpu: 4}, Count: 2},
				{Labels: h100, Free: Resources{gpu: 8}, Count: 3},
			},
			want: []NodeGroup{
				group(4, 7),
				{Labels: h100, Free: Resources{gpu: 0}, Count: 2},
				{Labels: h100, Free: Resources{gpu: 2}, Count: 1},
				{Labels: map[string]string{"gpu": "h100", "half": ""}, Free: Resources{gpu: 4}, Count: 2},
			},
		},
		"IdleAndTooSmall": {
			reason:  "a node with a foreign pod that has no job on it will not get freer",
			podSets: []v1alpha1.PodSet{podSet(1, 8)},
			nodes:   []NodeGroup{group(2, 7), group(1, 3)},
			empty:   []NodeGroup{group(2, 7), group(1, 8)},
			want:    []NodeGroup{group(1, 0), group(2, 7)},
		},
		"WhichIsWhich": {
			reason:  "either of the nodes may be the one with a foreign pod, so both are closed",
			podSets: []v1alpha1.PodSet{podSet(1, 8)},
			nodes:   []NodeGroup{group(1, 3), group(1, 2)},
			empty:   []NodeGroup{group(1, 7), group(1, 8)},
			want:    []NodeGroup{group(2, 0)},
		},
		"PodsNotListed": {
			reason:  "nothing goes to a closed node, not even a pod that requests nothing",
			podSets: []v1alpha1.PodSet{podSet(1, 8)},
			nodes:   []NodeGroup{group(1, 1), {Free: Resources{corev1.ResourcePods: 9}, Count: 1}},
			empty:   []NodeGroup{group(1, 8), {Free: Resources{corev1.ResourcePods: 9}, Count: 1}},
			want:    []NodeGroup{{Free: Resources{corev1.ResourcePods: 9}, Count: 1}, {Free: Resources{gpu: 0, corev1.ResourcePods: 0}, Count: 1}},
		},
		"OneKindInTheWayOfAnother": {
			reason: "the only node of the one kind is where the other would be soonest, so both are closed",
			podSets: []v1alpha1.PodSet{
				podSet(1, 8, named("any", "")), podSet(1, 8, named("h100", ""), onNodes(h100)),
			},
			nodes: []NodeGroup{group(1, 1), {Labels: h100, Free: Resources{gpu: 4}, Count: 1}, {Labels: map[string]string{"a": "b"}, Free: Resources{gpu: 2}, Count: 1}},
			empty: []NodeGroup{group(1, 8), {Labels: h100, Free: Resources{gpu: 8}, Count: 1}, {Labels: map[string]string{"a": "b"}, Free: Resources{gpu: 2}, Count: 1}},
			want: []NodeGroup{
				group(1, 0), {Labels: map[string]string{"a": "b"}, Free: Resources{gpu: 2}, Count: 1}, {Labels: h100, Free: Resources{gpu: 0}, Count: 1},
			},
		},
		"NoPods": {
			reason: "nothing is held",
			nodes:  []NodeGroup{group(1, 8)},
			want:   []NodeGroup{group(1, 8)},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := NewNodes(tc.nodes).Hold(tc.podSets, NewNodes(tc.empty))
			check.Diff(t, tc.want, got.Groups(), fmt.Sprintf("%s\nHold", tc.reason))
		})
	}
}

func TestPlaces(t *testing.T) {
	nodes := NewNodes([]NodeGroup{gpuNodes(2, 8), gpuNodes(1, 4)})
	for name, tc := range map[string]struct {
		podSets []v1alpha1.PodSet
		want    int64
	}{
		"None":   {want: 0},
		"All":    {podSets: []v1alpha1.PodSet{podSet(2, 8)}, want: 2},
		"Some":   {podSets: []v1alpha1.PodSet{podSet(9, 8)}, want: 2},
		"Mixed":  {podSets: []v1alpha1.PodSet{podSet(3, 8), podSet(9, 4, named("other", ""))}, want: 5},
		"Phases": {podSets: []v1alpha1.PodSet{podSet(3, 8), podSet(1, 8, named("model", v1alpha1.RoleModelInitializer))}, want: 3},
	} {
		check.Equal(t, tc.want, nodes.Places(tc.podSets), "%s: pods that have a place", name)
	}
	check.Equal(t, 0, (*Nodes)(nil).Places([]v1alpha1.PodSet{podSet(1, 1), podSet(1, 2, named("other", ""))}),
		"pods have a place on no nodes")
}

// yard is a worker with single nodes on which jobs run.
type yard struct {
	random
	size, free []NodeGroup
	running    []tenancy
}

// tenancy is a job that runs until a time, with what it takes on each node.
type tenancy struct {
	until int
	takes []Resources
}

// newYard returns a worker without jobs. Some of its nodes are alike.
func (r random) newYard() *yard {
	y := &yard{random: r}
	for _, node := range r.nodes(4) {
		for range 1 + r.IntN(3) {
			y.size = append(y.size, node)
		}
	}
	for i := range y.size {
		y.free = append(y.free, NodeGroup{Labels: y.size[i].Labels, Taints: y.size[i].Taints, Free: maps.Clone(y.size[i].Free), Count: 1})
	}
	return y
}

// left returns what Hold leaves on each node for jobs behind a gang. Of nodes that are alike, it closes the first ones.
func (y *yard) left(gang []v1alpha1.PodSet) []NodeGroup {
	n := NewNodes(y.free)
	g := newGang(gang)
	g.hold(n, NewNodes(y.size))
	starts := slices.Clone(g.place.start)
	slices.SortFunc(starts, func(a, b run) int { return slices.Compare(a.low, b.low) })
	left := make([]NodeGroup, len(y.free))
	for i := range y.free {
		at := slices.IndexFunc(starts, func(s run) bool {
			class := &n.classes[s.class]
			return s.count > 0 && class.labels["zone"] == y.free[i].Labels["zone"] && len(class.taints) == len(y.free[i].Taints) &&
				maps.Equal(n.resources(n.row(s.row)), y.free[i].Free)
		})
		starts[at].count--
		left[i] = NodeGroup{Labels: y.free[i].Labels, Taints: y.free[i].Taints, Free: n.resources(starts[at].low), Count: 1}
	}
	return left
}

// resources converts a row of n to Resources.
func (n *Nodes) resources(row []int64) Resources {
	free := Resources{}
	for col, amount := range row {
		if amount != absent {
			free[n.names[col]] = amount
		}
	}
	return free
}

// start runs a job until a time on some of the usable nodes. It says whether there was room.
func (y *yard) start(podSets []v1alpha1.PodSet, usable []NodeGroup, until int) bool {
	before := make([]Resources, len(usable))
	after := make([]Resources, len(usable))
	for i := range usable {
		before[i], after[i] = usable[i].Free, maps.Clone(usable[i].Free)
	}
	for _, set := range podSets {
		need := FromList(set.Requests)
		need[corev1.ResourcePods] = 1
		for range set.Count {
			at := slices.IndexFunc(y.Perm(len(usable)), func(i int) bool {
				if !allows(&set, &usable[i]) || !covers(after[i], need) {
					return false
				}
				after[i].Sub(need)
				return true
			})
			if at < 0 {
				return false
			}
		}
	}
	job := tenancy{until: until, takes: make([]Resources, len(usable))}
	for i := range before {
		job.takes[i] = maps.Clone(before[i])
		job.takes[i].Sub(after[i])
		y.free[i].Free.Sub(job.takes[i])
	}
	y.running = append(y.running, job)
	return true
}

func (y *yard) end(now int) {
	y.running = slices.DeleteFunc(y.running, func(job tenancy) bool {
		if job.until > now {
			return false
		}
		for i := range job.takes {
			y.free[i].Free.Add(job.takes[i])
		}
		return true
	})
}

// large returns a gang of pods that need many GPUs each.
func (r random) large() []v1alpha1.PodSet {
	gang := r.podSets(1 + r.IntN(3))
	for i := range gang {
		gang[i].Requests[gpu] = *resource.NewQuantity(3+r.Int64N(5), resource.DecimalSI)
	}
	return gang
}

// small returns a job of one pod, or two.
func (r random) small() []v1alpha1.PodSet {
	set := podSet(1+r.Int32N(2), 1+r.Int64N(2), tolerating(corev1.Toleration{Key: "dedicated", Operator: corev1.TolerationOpExists}))
	set.Requests[corev1.ResourceCPU] = quantity(fmt.Sprint(r.IntN(2)))
	return []v1alpha1.PodSet{set}
}

// wait lets a gang wait on a full worker. At each moment some jobs end and others start. With hold, the others only get
// what Hold leaves. wait returns when the gang fits, or -1.
func (y *yard) wait(t *testing.T, gang []v1alpha1.PodSet, hold bool) int {
	t.Helper()
	for now := range 200 {
		y.end(now)
		if now > 10 && NewNodes(y.free).Fit(gang) == nil {
			return now
		}
		places := NewNodes(y.free).Places(gang)
		for range 8 {
			usable := y.free
			if hold && now > 10 {
				usable = y.left(gang)
			}
			y.start(y.small(), usable, now+2+y.IntN(12))
		}
		if after := NewNodes(y.free).Places(gang); hold && now > 10 && len(gang) == 1 && after < places {
			t.Fatalf("%d pods of the gang had a place, and %d are left after others have come", places, after)
		}
	}
	return -1
}

// TestHeldGangDoesNotStarve: more small jobs come than have room. A gang that fits without them fits at some time with
// Hold. Without Hold most gangs never fit.
func TestHeldGangDoesNotStarve(t *testing.T) {
	gangs, starved := 0, 0
	for seed := range uint64(300) {
		r := newRandom(seed)
		y := r.newYard()
		gang := r.large()
		if NewNodes(y.size).Fit(gang) != nil {
			continue
		}
		gangs++
		if y.wait(t, gang, true) < 0 {
			t.Errorf("seed %d: the gang has not got its room\nnodes %v\ngang %v", seed, y.size, gang)
		}
		y = newRandom(seed).newYard()
		if y.wait(t, gang, false) < 0 {
			starved++
		}
	}
	t.Logf("%d gangs, of which %d starve without Hold", gangs, starved)
	if gangs < 40 || starved < gangs/4 {
		t.Errorf("%d of %d gangs starve without Hold: the stream is not dense enough to show anything", starved, gangs)
	}
}
