// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"slices"
	"time"

	"github.com/trainyard/trainyard/test/simulation/internal/stream"
)

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
