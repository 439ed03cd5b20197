// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

// LevelsWithout is Levels as they would be if some jobs were gone. A group can be visited more than once with the same
// room.
func (w *World) LevelsWithout(worker int, jobs []int, visit func(spec *GroupSpec, room Room, nodes int)) {
	type node struct {
		group *group
		index int32
	}
	freed := map[node]Room{}
	for _, job := range jobs {
		r := w.runs[job]
		if r == nil || r.worker != worker {
			continue
		}
		for _, s := range r.spots {
			at, p := node{s.group, s.node}, &r.job.Pods[s.kind]
			room, known := freed[at]
			if !known {
				room = s.group.at[s.node].Room
			}
			freed[at] = Room{GPUs: room.GPUs + p.GPUs, Millicores: room.Millicores + p.Millicores}
		}
	}
	moved := map[*level]int{}
	for at, room := range freed {
		moved[at.group.at[at.index]]++
		visit(&at.group.GroupSpec, room, 1)
	}
	for _, g := range w.workers[worker].groups {
		for _, l := range g.levels {
			if nodes := len(l.nodes) - moved[l]; nodes > 0 {
				visit(&g.GroupSpec, l.Room, nodes)
			}
		}
	}
}
