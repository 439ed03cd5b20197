// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"slices"
	"time"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

// WorkerSpec describes a worker.
type WorkerSpec struct {
	Name   string
	Groups []GroupSpec
}

// GroupSpec describes nodes that are alike.
type GroupSpec struct {
	// Product of the GPUs.
	Product string `json:"product"`
	// Nodes is how many there are.
	Nodes int `json:"nodes"`
	// GPUs and Millicores of CPU that each of them has.
	GPUs       int `json:"gpus"`
	Millicores int `json:"millicores"`
}

// Room is what a node has free.
type Room struct{ GPUs, Millicores int }

func compareRooms(a, b Room) int {
	return cmp.Or(cmp.Compare(a.GPUs, b.GPUs), cmp.Compare(a.Millicores, b.Millicores))
}

// pods is how many pods a node with the room takes.
func (r Room) pods(p *stream.Pods) int {
	pods := p.Count
	if p.GPUs > 0 {
		pods = min(pods, r.GPUs/p.GPUs)
	}
	if p.Millicores > 0 {
		pods = min(pods, r.Millicores/p.Millicores)
	}
	return pods
}

// Worker is one cluster.
type Worker struct {
	WorkerSpec
	groups []*group
	// partial is how many GPUs are free on partly used nodes, and free how many are free on all nodes.
	partial, free int
	// pending are the gangs with pods without a node, in the order in which they get nodes.
	pending []*run
}

// group has nodes that differ only in what they have free. levels has the nodes with the same room together, the least
// first.
type group struct {
	GroupSpec
	levels []*level
	at     []*level // Per node.
	place  []int32  // Per node: its index in the level.
}

type level struct {
	Room
	nodes []int32
}

func newWorker(spec WorkerSpec) *Worker {
	w := &Worker{WorkerSpec: spec}
	for _, s := range spec.Groups {
		all := &level{Room: Room{GPUs: s.GPUs, Millicores: s.Millicores}}
		g := &group{GroupSpec: s, levels: []*level{all}, at: make([]*level, s.Nodes), place: make([]int32, s.Nodes)}
		for i := range s.Nodes {
			g.at[i], g.place[i] = all, int32(i)
			all.nodes = append(all.nodes, int32(i))
		}
		w.groups = append(w.groups, g)
		w.free += s.Nodes * s.GPUs
	}
	return w
}

// Levels calls visit with each group of nodes that have the same room.
func (w *Worker) Levels(visit func(spec *GroupSpec, room Room, nodes int)) {
	for _, g := range w.groups {
		for _, l := range g.levels {
			visit(&g.GroupSpec, l.Room, len(l.nodes))
		}
	}
}

// Free is how many GPUs are free.
func (w *Worker) Free() int { return w.free }

// takes says whether pods may run on nodes of the group.
func (g *group) takes(p *stream.Pods) bool {
	return len(p.Products) == 0 || slices.Contains(p.Products, g.Product)
}

// change gives a node another room. It keeps the levels sorted, and none of them is empty.
func (w *Worker) change(g *group, node int32, by Room) {
	from := g.at[node]
	to := Room{GPUs: from.GPUs + by.GPUs, Millicores: from.Millicores + by.Millicores}
	w.free += by.GPUs
	w.partial += g.fragment(to) - g.fragment(from.Room)

	last := len(from.nodes) - 1
	moved := from.nodes[last]
	from.nodes[g.place[node]], g.place[moved] = moved, g.place[node]
	if from.nodes = from.nodes[:last]; last == 0 {
		at, _ := g.find(from.Room)
		g.levels = slices.Delete(g.levels, at, at+1)
	}
	at, found := g.find(to)
	if !found {
		g.levels = slices.Insert(g.levels, at, &level{Room: to})
	}
	l := g.levels[at]
	g.at[node], g.place[node] = l, int32(len(l.nodes))
	l.nodes = append(l.nodes, node)
}

func (g *group) find(room Room) (at int, found bool) {
	return slices.BinarySearchFunc(g.levels, room, func(l *level, room Room) int { return compareRooms(l.Room, room) })
}

// fragment is how many GPUs of a node are free beside used ones.
func (g *group) fragment(room Room) int {
	if room.GPUs == g.GPUs {
		return 0
	}
	return room.GPUs
}

// Fits says whether all pods of a job have a place on the nodes as they are.
func (w *Worker) Fits(job *stream.Job) bool {
	if len(job.Pods) == 1 {
		return w.room(&job.Pods[0]) >= job.Pods[0].Count
	}
	trial := newRun(job, 0)
	complete := w.bind(trial, false)
	w.release(trial)
	return complete
}

// room counts for how many pods there is a place, up to their count.
func (w *Worker) room(p *stream.Pods) int {
	found := 0
	for _, g := range w.groups {
		if !g.takes(p) {
			continue
		}
		for _, l := range slices.Backward(g.levels) {
			if found += l.pods(p) * len(l.nodes); found >= p.Count {
				return p.Count
			}
		}
	}
	return found
}

// run is one attempt at a job, from when it is placed.
type run struct {
	job    *stream.Job
	worker int
	// left is how many pods of each kind have no node, and order the kinds, the largest first.
	left  []int
	order []int
	spots []spot
	// held is how many GPUs its pods have.
	held    int
	placed  time.Duration
	started time.Duration
	running bool
	leaving bool
}

// spot is the node of one pod.
type spot struct {
	group *group
	node  int32
	kind  int32
}

func newRun(job *stream.Job, worker int) *run {
	r := &run{job: job, worker: worker, left: make([]int, len(job.Pods)), order: make([]int, len(job.Pods))}
	for i := range job.Pods {
		r.left[i], r.order[i] = job.Pods[i].Count, i
	}
	slices.SortStableFunc(r.order, func(a, b int) int {
		p, q := &job.Pods[a], &job.Pods[b]
		return cmp.Or(cmp.Compare(q.GPUs, p.GPUs), cmp.Compare(q.Millicores, p.Millicores))
	})
	return r
}

// bind gives nodes to the pods of a run that have none, as far as there is room. It says whether all pods have a node
// then.
func (w *Worker) bind(r *run, spread bool) bool {
	complete := true
	for _, kind := range r.order {
		p := &r.job.Pods[kind]
		for ; r.left[kind] > 0; r.left[kind]-- {
			g, node := w.node(p, spread)
			if g == nil {
				complete = false
				break
			}
			w.change(g, node, Room{GPUs: -p.GPUs, Millicores: -p.Millicores})
			r.spots = append(r.spots, spot{group: g, node: node, kind: int32(kind)})
			r.held += p.GPUs
		}
	}
	return complete
}

// node returns the node on which a pod leaves the least free, or the most if pods are spread. Of equal nodes it returns
// the node that has had this room for the shortest time, only because that is quick.
func (w *Worker) node(p *stream.Pods, spread bool) (best *group, node int32) {
	var room Room
	for _, g := range w.groups {
		if !g.takes(p) {
			continue
		}
		l := g.level(p, spread)
		if l == nil {
			continue
		}
		if order := compareRooms(l.Room, room); best == nil || !spread && order < 0 || spread && order > 0 {
			best, node, room = g, l.nodes[len(l.nodes)-1], l.Room
		}
	}
	return best, node
}

// level returns the level with the least room for a pod, or with the most.
func (g *group) level(p *stream.Pods, spread bool) *level {
	fits := func(l *level) bool { return l.GPUs >= p.GPUs && l.Millicores >= p.Millicores }
	if spread {
		for _, l := range slices.Backward(g.levels) {
			if fits(l) {
				return l
			}
		}
		return nil
	}
	if at := slices.IndexFunc(g.levels, fits); at >= 0 {
		return g.levels[at]
	}
	return nil
}

// release takes all pods of a run off their nodes.
func (w *Worker) release(r *run) {
	for _, s := range r.spots {
		p := &r.job.Pods[s.kind]
		w.change(s.group, s.node, Room{GPUs: p.GPUs, Millicores: p.Millicores})
	}
	r.spots, r.held = nil, 0
}

// wait adds a run to the runs that wait for nodes.
func (w *Worker) wait(r *run) {
	at, _ := slices.BinarySearchFunc(w.pending, r, func(a, b *run) int {
		return cmp.Or(cmp.Compare(b.job.Priority, a.job.Priority), cmp.Compare(a.placed, b.placed), cmp.Compare(a.job.ID, b.job.ID))
	})
	w.pending = slices.Insert(w.pending, at, r)
}
