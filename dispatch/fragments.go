// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"math"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// mostAllocated makes jobs fill nodes that are partly used, so that whole nodes stay free for gangs. Three quarters of
// the score are how well the job fills the nodes that it would take: what it uses of its dominant resource, as a share
// of what is free on these nodes. For that, a pod of one GPU scores 75 on a node with one free GPU, and 9 on a node
// with eight. Pods of eight GPUs score 75 everywhere. One quarter is how full the worker is afterwards, the opposite of
// LeastAllocated. So whole nodes stay free on the same worker, where a larger gang can use them.
//
// One point is taken off for each job that was placed there and has no pods yet. Otherwise all of many jobs that come
// at once would go to the worker of the first job, which they make fuller, while others are idle. So they spread over
// workers that differ by few points. A node that a job fills well makes a difference of many points, and still decides.
//
// The worker's scheduler chooses the nodes in the end. It takes the fullest nodes if it also scores by MostAllocated.
func mostAllocated(s *scores, _ *v1alpha1.Score, w *Worker) points {
	score := 100 * point
	gang := s.filters.gangOn(w)
	if d := gang.dominant(w); d.name >= 0 {
		full := 1 - float64(d.free-d.need)/float64(d.all)
		score = percent((3*gang.filling(w.Nodes, d) + full) / 4)
	}
	return max(0, score-point*points(max(w.Queued, 0)))
}

// maxLevels is how many levels of free resource there are: one for each number of GPUs that a node can have.
const maxLevels = 64

// level is the nodes that have about the same amount free.
type level struct {
	nodes float64
	free  float64 // On all these nodes.
	room  float64 // The number of pods that have room.
}

// filling is what the pods use of the dominant resource, as a share of what is free on the nodes that they take. The
// nodes with the least free are taken first. Each kind of pods is counted as if it came alone.
func (g *gang) filling(n *Nodes, d dominant) float64 {
	var used, touched float64
	for i := range g.phases {
		ph := &g.phases[i]
		if ph.sum[d.name] != d.need {
			continue
		}
		for j := range ph.pods {
			p := &ph.pods[j]
			if amount := p.amountOf(d.name); amount > 0 {
				used += float64(p.need) * float64(amount)
				touched += g.touched(n, p, d.col)
			}
		}
		break
	}
	if touched <= 0 {
		return 1
	}
	return used / touched
}

func (p *pods) amountOf(name int) int64 {
	for _, r := range p.requests {
		if r.name == name {
			return r.amount
		}
	}
	return 0
}

// touched is what is free, in a column, on the nodes that the pods take. The nodes with the least free are taken first.
func (g *gang) touched(n *Nodes, p *pods, col int) float64 {
	g.survey(n, p, col)
	left, touched := float64(p.need), float64(0)
	for i := range g.levels {
		l := &g.levels[i]
		if l.room == 0 {
			continue
		}
		if left >= l.room {
			left -= l.room
			touched += l.free
			continue
		}
		if left > 0 {
			nodes := min(l.nodes, math.Ceil(left*l.nodes/l.room))
			touched += l.free * nodes / l.nodes
		}
		break
	}
	return touched
}

// survey sorts the nodes with room for the pods into levels by their free amounts.
func (g *gang) survey(n *Nodes, p *pods, col int) {
	g.levels = [maxLevels]level{}
	if lacksFirst(n.largest, p.bound) {
		return
	}
	largest, admits := n.largest[col], g.admits(n, p)
	for r, first := range n.scarcest(p.bound) {
		if first < p.bound[0].amount || !admits[n.class[r]] {
			continue
		}
		row := n.row(r)
		free, per := row[col], perNode(row, p.bound, p.need)
		if free <= 0 || per == 0 {
			continue
		}
		at := free
		if largest >= maxLevels {
			at = int64(float64(free) / float64(largest) * (maxLevels - 1))
		}
		l, count := &g.levels[at], float64(n.counts[r])
		l.nodes += count
		l.free += count * float64(free)
		l.room += count * float64(per)
	}
}
