// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"math/rand/v2"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/explorer/memory"
)

// Generator draws the next action of a world.
type Generator struct {
	world *World
	rand  *rand.Rand
	// without are actions that are not drawn.
	without map[Op]bool
	// favourites are the faults that this world has most of.
	favourites []Op
}

// faults are the actions that break something, without the actions that mend.
var faults = []Op{Cut, Cut, Cut, CutHub, Down, Crash, Begin, Pause, CrashAgent, PauseAgent, Backup, Restore, Forget}

// rare are the actions that a world may do without.
var rare = []Op{
	CutHub, Down, Crash, Pause, CrashAgent, PauseAgent, Restore, Forget, Lose, Mute, Late, Repeat, Apply,
	Suspend, DeleteDispatch, DeleteCopy, SuspendCopy, UnlabelCopy, Foreign, Cordon,
}

// NewGenerator makes a Generator for a world. It never draws some actions in a world, because frequent events hide more
// than they cause. Other actions it draws in each world.
func NewGenerator(w *World, r *rand.Rand, without map[Op]bool, favourites ...Op) *Generator {
	g := &Generator{world: w, rand: r, without: map[Op]bool{}, favourites: favourites}
	for _, op := range rare {
		g.without[op] = without[op] || r.IntN(2) == 0
	}
	for len(g.favourites) < 2 {
		if op := one(r, faults...); !without[op] {
			g.favourites = append(g.favourites, op)
		}
	}
	for _, op := range g.favourites {
		delete(g.without, op)
	}
	return g
}

// names of the jobs.
var names = []string{"a", "b", "c"}

// one returns one of some things.
func one[T any](r *rand.Rand, things ...T) T { return things[r.IntN(len(things))] }

// Next draws an action. The action may be impossible.
func (g *Generator) Next() Action {
	switch n := g.rand.IntN(1000); {
	case n < 35:
		return g.disturbance()
	case n < 70:
		return g.use()
	case n < 140:
		return g.time()
	case n < 150 && len(g.world.limbo) > 0:
		return Action{Op: Arrive, What: one(g.rand, g.world.limbo...).name}
	}
	if a, ok := g.work(); ok {
		return a
	}
	switch g.rand.IntN(4) { // Nobody has anything to do.
	case 0:
		return g.disturbance()
	case 1:
		return g.use()
	default:
		return g.time()
	}
}

func (g *Generator) time() Action {
	a := Action{Op: one(g.rand, Advance, Elapse, Elapse)}
	switch n := g.rand.IntN(20); {
	case n < 10:
		a.For = time.Duration(1+g.rand.IntN(1000)) * time.Millisecond
	case n < 16:
		a.For = time.Duration(1+g.rand.IntN(10)) * time.Second
	case n < 19:
		a.For = time.Duration(10+g.rand.IntN(30)) * time.Second
	default:
		a.For = time.Duration(60+g.rand.IntN(140)) * time.Second
	}
	if a.Op == Advance {
		a.For = min(a.For, 20*time.Second) // Managers that do nothing for longer are paused.
	}
	return a
}

// work is a step of a process.
func (g *Generator) work() (Action, bool) {
	w := g.world
	first := g.rand.IntN(len(w.processes))
	if g.rand.IntN(4) > 0 { // Managers have the most to do.
		first = len(w.processes) - 1 - g.rand.IntN(len(w.managers))
	}
	for i := range w.processes {
		p := w.processes[(first+i)%len(w.processes)]
		if !p.active() {
			continue
		}
		if a, ok := g.step(p); ok {
			return a, true
		}
	}
	return Action{}, false
}

// step returns a step that a process can do.
func (g *Generator) step(p *process) (Action, bool) {
	var choices []Action
	for _, f := range p.feeds {
		if f.view.Behind() > 0 && p.reaches(f.from) {
			choices = append(choices, Action{Op: Deliver, Who: p.name, What: f.name})
		}
	}
	for _, l := range p.loops {
		l.promote()
		if l.startable() {
			choices = append(choices, Action{Op: Start, Who: p.name, What: l.name, Key: one(g.rand, l.ready...).String()})
		}
		for _, t := range l.tasks {
			choices = append(choices, Action{Op: g.fate(p, t), Who: p.name, What: l.name, Key: t.key.String()})
		}
	}
	if len(choices) == 0 {
		return Action{}, false
	}
	a := one(g.rand, choices...)
	a.Key = trimKey(a.Key)
	return a, true
}

// trimKey makes "/name" "name".
func trimKey(key string) string {
	if len(key) > 0 && key[0] == types.Separator {
		return key[1:]
	}
	return key
}

// fate returns what happens to a request.
func (g *Generator) fate(p *process, t *task) Op {
	if t.done {
		return Answer
	}
	agent := !g.world.isManager(p.name)
	if !p.reaches(t.call.Server) {
		if t.call.Write && !agent && !g.without[Late] && g.rand.IntN(4) == 0 {
			return Late
		}
		return Lose
	}
	switch n := g.rand.IntN(100); {
	case n < 84:
		return Serve
	case n < 88:
		return g.allowed(Apply)
	case n < 92:
		return g.allowed(Lose)
	case n < 95:
		return g.allowed(Mute)
	case agent || !t.call.Write:
		return Serve
	case n < 98:
		return g.allowed(Late)
	default:
		return g.allowed(Repeat)
	}
}

func (g *Generator) allowed(op Op) Op {
	if g.without[op] {
		return Serve
	}
	return op
}

// use returns what a user does.
func (g *Generator) use() Action {
	w, key := g.world, one(g.rand, names...)
	worker := string(one(g.rand, w.workers...).name)
	if w.Hub.Get(memory.TrainJob, keyOf(key)) == nil {
		return g.create(key)
	}
	job := w.Hub.Get(memory.TrainJob, keyOf(key)).Object.(*unstructured.Unstructured)
	if trainjobs.Terminal(job) != nil {
		return Action{Op: Delete, Key: key}
	}
	op := one(g.rand, Delete, Suspend, Resume, Resume, DeleteDispatch, DeleteCopy, SuspendCopy, UnlabelCopy, Foreign, Cordon, Uncordon, Uncordon, Delete)
	if g.without[op] {
		return g.create(key)
	}
	a := Action{Op: op, Key: key}
	switch op {
	case Delete:
		a.What = one(g.rand, "", "foreground")
	case DeleteCopy, SuspendCopy, UnlabelCopy, Foreign:
		a.Who = worker
	case Cordon, Uncordon:
		a.Who, a.Key = worker, ""
	default:
	}
	return a
}

func (g *Generator) create(key string) Action {
	kinds := []v1alpha1.Failover{v1alpha1.FailoverFenced, v1alpha1.FailoverFenced, v1alpha1.FailoverFenced, v1alpha1.FailoverHold, v1alpha1.FailoverImmediate}
	return Action{
		Op: Create, Key: key, What: string(one(g.rand, kinds...)),
		For: time.Duration(one(g.rand, 5, 60, 300, 300)) * time.Second, N: one(g.rand, 0, 2, 10, 40),
	}
}

// disturbance is a fault, or the end of one.
func (g *Generator) disturbance() Action {
	w := g.world
	m, k := one(g.rand, w.managers...), one(g.rand, w.workers...)
	for _, other := range w.managers {
		if !m.alive && other.alive && g.rand.IntN(4) > 0 {
			m = other // It is the one that matters.
		}
	}
	if repair, ok := g.repair(m, k); ok {
		return repair
	}
	op := one(g.rand, one(g.rand, g.favourites, faults)...)
	if g.without[op] {
		op = Cut
	}
	a := Action{Op: op, Who: m.name}
	switch op {
	case Cut:
		a.What = string(k.name)
	case Down, Forget:
		a.Who = string(k.name)
	case CrashAgent, PauseAgent:
		a.Who, a.For, a.N = string(k.name), time.Duration(1+g.rand.IntN(30))*time.Second, 1+g.rand.IntN(17)
	case Crash:
		a.N = g.rand.IntN(2)
	case Begin: // All are there, so one hands over to the other, in order.
		a.Op, a.N = Crash, 1
	case Pause:
		a.For = time.Duration(1+g.rand.IntN(one(g.rand, 20, 300))) * time.Second
	case Backup:
		a.Who = ""
	case Restore:
		a.Who, a.N = "", g.rand.IntN(len(w.backups))
	default:
	}
	return a
}

// repair is often what a broken thing gets, sooner or later.
func (g *Generator) repair(m *Manager, k *Worker) (Action, bool) {
	w := g.world
	for _, absent := range w.managers {
		if absent.alive || absent.waiting || !w.leaderless() && g.rand.IntN(3) > 0 {
			continue
		}
		switch {
		case !absent.cutOff:
			return Action{Op: Begin, Who: absent.name, N: g.rand.IntN(12)}, true
		case g.rand.IntN(3) == 0:
			return Action{Op: MendHub, Who: absent.name}, true
		}
	}
	switch {
	case m.cut[k.name] && g.rand.IntN(5) == 0:
		return Action{Op: Mend, Who: m.name, What: string(k.name)}, true
	case k.down && g.rand.IntN(5) == 0:
		return Action{Op: Up, Who: string(k.name)}, true
	case m.cutOff && g.rand.IntN(3) == 0:
		return Action{Op: MendHub, Who: m.name}, true
	case w.managers[0].alive && w.managers[1].alive && g.rand.IntN(5) == 0:
		return Action{Op: Crash, Who: m.name}, true
	}
	return Action{}, false
}
