// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

// What breaks.
const (
	// Cut cuts manager Who off from worker What: the worker is silent. Mend ends that.
	Cut  Op = "cut"
	Mend Op = "mend"
	// CutHub cuts manager Who off from the hub's API server. MendHub ends that.
	CutHub  Op = "cut-hub"
	MendHub Op = "mend-hub"
	// Down: the API server of worker Who refuses connections, also from its agents. Up ends that.
	Down Op = "down"
	Up   Op = "up"
	// Crash ends manager Who, in order if N is 1. Begin starts it: it leads when it gets the lease, with caches that lag
	// by N changes. Pause stops it for the time For.
	Crash Op = "crash"
	Begin Op = "begin"
	Pause Op = "pause"
	// CrashAgent ends the leader of the agents of worker Who for the time For. PauseAgent pauses it. The next agent leads
	// N seconds later.
	CrashAgent Op = "crash-agent"
	PauseAgent Op = "pause-agent"
	// Backup keeps the hub's objects. Restore restores them, and restarts all managers.
	Backup  Op = "backup"
	Restore Op = "restore"
)

// disturb makes a fault happen. known is false if the action is no fault.
func (w *World) disturb(a Action) (done, known bool) {
	m, k := w.manager(a.Who), w.worker(v1alpha1.ClusterName(a.Who))
	switch a.Op {
	case Cut, Mend:
		return m.reach(w.worker(v1alpha1.ClusterName(a.What)), a.Op == Cut), true
	case CutHub, MendHub:
		m.cutOff = a.Op == CutHub
		return true, true
	case Down, Up:
		return k.refuse(a.Op == Down), true
	case Crash:
		m.leave(a.N == 1)
		return true, true
	case Begin:
		return m.stand(a.N), true
	case Pause:
		m.pausedUntil = max(m.pausedUntil, w.now+a.For)
		return m.alive || m.waiting, true
	case CrashAgent:
		if !k.mayFail() {
			return false, true
		}
		k.leader.crash(a.For, time.Duration(a.N)*time.Second)
		return true, true
	case PauseAgent:
		return k.pauseLeader(a.For, time.Duration(a.N)*time.Second), true
	case Backup:
		w.backups = append(w.backups, w.Hub.Snapshot())
		return true, true
	case Restore:
		return w.restore(a.N), true
	default:
		return false, false
	}
}

func (w *World) manager(name string) *Manager {
	for _, m := range w.managers {
		if m.name == name {
			return m
		}
	}
	return nil
}

// reach cuts a manager off. A worker whose API server is down must not be silent at the same time: the hub relies on
// that.
func (m *Manager) reach(k *Worker, cut bool) bool {
	if cut && (k.down || m.world.restoring()) {
		return false
	}
	m.cut[k.name] = cut
	return true
}

func (k *Worker) refuse(down bool) bool {
	if down {
		for _, m := range k.world.managers {
			if m.cut[k.name] {
				return false
			}
		}
		if k.leader == nil || k.world.restoring() {
			return false
		}
	}
	k.down = down
	return true
}

// pauseLeader pauses the agent that leads. If the pause is longer than its Lease, another agent leads in that time.
func (k *Worker) pauseLeader(d, handover time.Duration) bool {
	if !k.mayFail() {
		return false
	}
	a := k.leader
	a.pausedUntil = k.world.now + d
	if d > handover {
		k.succeed(handover)
	} else {
		k.handovers = append(k.handovers, k.world.now)
	}
	return true
}

// restoring is true until all workers have been looked at after the hub was restored. A worker that is away cannot be
// looked at.
func (w *World) restoring() bool {
	if !w.restored {
		return false
	}
	for _, m := range w.managers {
		if !m.alive {
			continue
		}
		looked := true
		for _, k := range w.workers {
			looked = looked && m.quarantine.Swept(k.name)
		}
		if looked {
			w.restored = false
			return false
		}
	}
	return true
}

// restore restores the hub. Workers have to be there, and what was under way is lost.
func (w *World) restore(backup int) bool {
	if backup >= len(w.backups) || w.restoring() {
		return false
	}
	for _, k := range w.workers {
		for _, m := range w.managers {
			if k.down || m.cut[k.name] || m.cutOff {
				return false
			}
		}
	}
	for _, m := range w.managers {
		m.leave(false)
	}
	w.limbo = nil
	w.Hub.Restore(w.backups[backup])
	w.ledger.restored(w.Hub)
	w.restored, w.forgetful = true, true
	w.managers[0].lead(0)
	return true
}

// restored forgets what the hub has forgotten.
func (l *ledger) restored(hub *memory.Server) {
	clear(l.attempts)
	for _, version := range hub.List(memory.Dispatch) {
		d := version.Object.(*v1alpha1.Dispatch)
		l.attempts[d.Spec.TrainJob.UID] = d.Spec.Attempt
	}
}
