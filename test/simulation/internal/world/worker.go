// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"slices"

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
