// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"cmp"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

const gpu corev1.ResourceName = "nvidia.com/gpu"

// node is one node, or what is free on it.
type node struct {
	pool       string // The value of the label pool.
	cpus, gpus int64
	added      bool // It is not there: the worker would have to add it.
}

func (n node) takes(set *v1alpha1.PodSet, d node) bool {
	pool, pinned := set.NodeSelector["pool"]
	return n.cpus >= d.cpus && n.gpus >= d.gpus && (!pinned || pool == n.pool)
}

// site is a worker, its nodes, and what is free on them.
type site struct {
	dispatch.Worker
	nodes []node
	free  []node
	stale bool
	empty *dispatch.Nodes
}

func (s *site) grow(n node) {
	s.nodes, s.free = append(s.nodes, n), append(s.free, n)
	s.stale, s.empty = true, nil
}

// runs is a job that was placed.
type runs struct {
	job    queue.Job
	worker v1alpha1.ClusterName
	since  time.Time
	// on has, per node, what the job takes.
	on     map[int]node
	forJob types.UID // The job is being stopped for this job.
}

// fleet is a queue.Fleet that knows the nodes of its workers and the pods on them. It fails the test if a pod has no
// place.
type fleet struct {
	t        testing.TB
	sites    []*site
	list     []dispatch.Worker
	revision uint64
	now      time.Time
	running  map[types.UID]*runs
	byWorker map[v1alpha1.ClusterName]map[types.UID]*runs
	ending   int // The number of jobs that are being stopped.
	asked    int // The number of calls of other methods than Workers.
	// futile are the workers on which nobody may be stopped. reluctant have to be asked first, and tried were.
	futile, reluctant map[v1alpha1.ClusterName]bool
	tried             []v1alpha1.ClusterName
}

var _ queue.Fleet = (*fleet)(nil)

func newFleet(t testing.TB) *fleet {
	return &fleet{t: t, running: map[types.UID]*runs{}, byWorker: map[v1alpha1.ClusterName]map[types.UID]*runs{}}
}

// add adds a worker with a number of nodes of 8 GPUs.
func (f *fleet) add(name v1alpha1.ClusterName, nodes int) *site {
	s := &site{Worker: dispatch.Worker{Name: name}, stale: true}
	for range nodes {
		s.grow(node{pool: "a", cpus: 64_000, gpus: 8})
	}
	f.sites = append(f.sites, s)
	return s
}

func (f *fleet) remove(name v1alpha1.ClusterName) {
	f.sites = slices.DeleteFunc(f.sites, func(s *site) bool { return s.Name == name })
	f.list = nil
	for uid, r := range f.byWorker[name] {
		if r.forJob != "" {
			f.ending--
		}
		delete(f.running, uid)
	}
	delete(f.byWorker, name)
}

func (f *fleet) site(name v1alpha1.ClusterName) *site {
	for _, s := range f.sites {
		if s.Name == name {
			return s
		}
	}
	return nil
}

// shuffle changes the order of the workers. sort sorts them by name.
func (f *fleet) shuffle(r *rand.Rand) {
	r.Shuffle(len(f.sites), func(i, j int) { f.sites[i], f.sites[j] = f.sites[j], f.sites[i] })
	f.list = nil
}

func (f *fleet) sort() {
	slices.SortFunc(f.sites, func(a, b *site) int { return cmp.Compare(a.Name, b.Name) })
	f.list = nil
}

func (f *fleet) touch(s *site) { s.stale, s.empty = true, nil }

// Workers implements queue.Fleet.
func (f *fleet) Workers() []dispatch.Worker {
	if len(f.list) != len(f.sites) {
		f.list = make([]dispatch.Worker, len(f.sites))
		for i, s := range f.sites {
			f.list[i] = s.Worker
		}
	}
	for i, s := range f.sites {
		if s.stale {
			f.revision++
			s.stale, s.Revision = false, f.revision
			s.Nodes = f.nodes(s, nil)
			s.Allocatable = dispatch.Resources{gpu: 8 * int64(len(s.nodes)), corev1.ResourceCPU: 64_000 * int64(len(s.nodes))}
			s.Assigned = len(f.byWorker[s.Name])
			f.list[i] = s.Worker
		}
	}
	return f.list
}

// nodes returns the nodes of a worker as if some of its jobs had ended.
func (f *fleet) nodes(s *site, gone func(*runs) bool) *dispatch.Nodes {
	free := slices.Clone(s.free)
	if gone != nil {
		for _, r := range f.byWorker[s.Name] {
			if gone(r) {
				r.giveBack(free)
			}
		}
	}
	slices.SortFunc(free, func(a, b node) int {
		return cmp.Or(cmp.Compare(a.pool, b.pool), cmp.Compare(a.gpus, b.gpus), cmp.Compare(a.cpus, b.cpus),
			cmp.Compare(names[a.added], names[b.added]))
	})
	var groups []dispatch.NodeGroup
	for i, n := range free {
		if i > 0 && n == free[i-1] {
			groups[len(groups)-1].Count++
			continue
		}
		groups = append(groups, dispatch.NodeGroup{
			Labels: pools[n.pool], Count: 1, Free: dispatch.Resources{corev1.ResourceCPU: n.cpus, gpu: n.gpus}, Added: names[n.added],
		})
	}
	return dispatch.NewNodes(groups)
}

// names are the names of nodes that are there, and of others.
var names = map[bool]string{true: "pool"}

var pools = map[string]map[string]string{"a": {"pool": "a"}, "b": {"pool": "b"}}

// Assign implements queue.Fleet.
func (f *fleet) Assign(job *queue.Job, decision dispatch.Decision) {
	s := f.site(decision.Cluster)
	r := &runs{job: *job, worker: s.Name, since: f.now, on: map[int]node{}}
	podSets := job.PodSetsIn(decision.Cluster, decision.Domain)
	if job.Topology.IsRequired() && decision.Domain == nil {
		f.t.Fatalf("%s is on %s without the domain that it requires", job.UID, decision.Cluster)
	}
	for _, initializers := range []bool{true, false} {
		phase := slices.Clone(s.free)
		for i := range podSets {
			if set := &podSets[i]; (set.Role == v1alpha1.RoleModelInitializer) == initializers && !put(set, phase) {
				f.t.Fatalf("worker %s is over-filled: no node of %v has room for a pod of %s", s.Name, phase, job.UID)
			}
		}
		for at := range phase {
			taken := node{cpus: s.free[at].cpus - phase[at].cpus, gpus: s.free[at].gpus - phase[at].gpus}
			if taken != (node{}) {
				r.on[at] = node{cpus: max(taken.cpus, r.on[at].cpus), gpus: max(taken.gpus, r.on[at].gpus)}
			}
		}
	}
	for at, taken := range r.on {
		s.free[at].cpus -= taken.cpus
		s.free[at].gpus -= taken.gpus
	}
	f.running[job.UID] = r
	if f.byWorker[s.Name] == nil {
		f.byWorker[s.Name] = map[types.UID]*runs{}
	}
	f.byWorker[s.Name][job.UID] = r
	s.stale = true
}

// fits says whether there is room for a job of pods that are alike.
func (s *site) fits(podSets []v1alpha1.PodSet) bool {
	return put(&podSets[0], slices.Clone(s.free))
}

// put places pods on the nodes with the least free while there is room.
func put(set *v1alpha1.PodSet, nodes []node) bool {
	requests := dispatch.FromList(set.Requests)
	d := node{cpus: requests[corev1.ResourceCPU], gpus: requests[gpu]}
	for range set.Count {
		best := -1
		for at, n := range nodes {
			if n.takes(set, d) && (best < 0 || cmp.Or(cmp.Compare(n.gpus, nodes[best].gpus), cmp.Compare(n.cpus, nodes[best].cpus)) < 0) {
				best = at
			}
		}
		if best < 0 {
			return false
		}
		nodes[best].cpus -= d.cpus
		nodes[best].gpus -= d.gpus
	}
	return true
}

func (f *fleet) end(uid types.UID) *runs {
	r := f.running[uid]
	if r == nil {
		return nil
	}
	delete(f.running, uid)
	delete(f.byWorker[r.worker], uid)
	s := f.site(r.worker)
	r.giveBack(s.free)
	s.stale = true
	if r.forJob != "" {
		f.ending--
	}
	return r
}

func (r *runs) giveBack(free []node) {
	for at, taken := range r.on {
		free[at].cpus += taken.cpus
		free[at].gpus += taken.gpus
	}
}

// Empty implements queue.Fleet.
func (f *fleet) Empty(worker v1alpha1.ClusterName) *dispatch.Nodes {
	f.asked++
	s := f.site(worker)
	if s.empty == nil {
		s.empty = f.nodes(s, func(*runs) bool { return true })
	}
	return s.empty
}

// Occupancy implements queue.Fleet.
func (f *fleet) Occupancy(worker v1alpha1.ClusterName) dispatch.Occupancy {
	f.asked++
	return occupancy{f, f.site(worker)}
}

type occupancy struct {
	*fleet
	site *site
}

// Victims implements dispatch.Occupancy.
func (o occupancy) Victims() []dispatch.Victim {
	var victims []dispatch.Victim
	for _, uid := range slices.Sorted(maps.Keys(o.byWorker[o.site.Name])) {
		if r := o.running[uid]; r.forJob == "" {
			victims = append(victims, dispatch.Victim{UID: uid, Key: r.job.Key(), Priority: r.job.Priority, Since: r.since})
		}
	}
	return victims
}

// Without implements dispatch.Occupancy.
func (o occupancy) Without(victims []types.UID) *dispatch.Nodes {
	return o.nodes(o.site, func(r *runs) bool { return slices.Contains(victims, r.job.UID) })
}

// MayEvict implements queue.Fleet.
func (f *fleet) MayEvict(_ *queue.Job, worker v1alpha1.ClusterName) bool { return !f.futile[worker] }

// Evict implements queue.Fleet.
func (f *fleet) Evict(preemption dispatch.Preemption, job *queue.Job) bool {
	if f.reluctant[preemption.Cluster] {
		f.tried = append(f.tried, preemption.Cluster)
		return false
	}
	for _, victim := range preemption.Victims {
		r := f.running[victim.UID]
		switch {
		case r == nil || r.worker != preemption.Cluster:
			f.t.Fatalf("%s preempts %s, which is not on %s", job.UID, victim.UID, preemption.Cluster)
		case r.forJob != "":
			f.t.Fatalf("%s preempts %s, which is being stopped for %s already", job.UID, victim.UID, r.forJob)
		case r.job.Priority >= job.Priority:
			f.t.Fatalf("%s preempts %s, whose priority is no lower", job.UID, victim.UID)
		}
		r.forJob = job.UID
		f.ending++
	}
	f.site(preemption.Cluster).stale = true
	return true
}

// Lose implements queue.Fleet.
func (f *fleet) Lose(panicked *dispatch.WorkerPanic) { panic(panicked.Value) }

// Evicting implements queue.Fleet.
func (f *fleet) Evicting(job types.UID) v1alpha1.ClusterName {
	if f.ending == 0 {
		return ""
	}
	for _, r := range f.running {
		if r.forJob == job {
			return r.worker
		}
	}
	return ""
}

// evicting has the jobs that are being stopped, sorted.
func (f *fleet) evicting() []types.UID {
	return f.uids(func(r *runs) bool { return r.forJob != "" })
}

func (f *fleet) uids(which func(*runs) bool) []types.UID {
	var uids []types.UID
	for uid, r := range f.running {
		if which(r) {
			uids = append(uids, uid)
		}
	}
	slices.Sort(uids)
	return uids
}

// String shows which jobs run on which workers.
func (f *fleet) String() string {
	var b []string
	for _, uid := range slices.Sorted(maps.Keys(f.running)) {
		b = append(b, fmt.Sprintf("%s on %s", uid, f.running[uid].worker))
	}
	return fmt.Sprint(b)
}
