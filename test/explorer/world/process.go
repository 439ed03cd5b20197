// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package world

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"runtime/debug"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/test/explorer/memory"
)

// never is later than everything.
const never = time.Duration(1<<62 - 1)

// retryDelay is how long a key waits after a failed reconcile.
const retryDelay = time.Second

// process runs controllers, one step at a time. What it has in memory is gone when it dies.
type process struct {
	world *World
	name  string
	clock *Clock
	alive bool
	// pausedUntil: it does nothing before.
	pausedUntil time.Duration
	loops       []*loop
	feeds       []*feed
	// reaches says whether requests of this process get to a server, and news from there to it.
	reaches func(*memory.Server) bool
}

// feed is a cache and its subscribers.
type feed struct {
	name string
	view *memory.View
	from *memory.Server
	tell func(memory.Change)
}

// loop is a controller with its queue.
type loop struct {
	process    *process
	name       string
	reconciler reconcile.Reconciler
	// many keys may be reconciled at a time.
	many bool
	// ready keys in order, later keys by when they are due.
	ready []types.NamespacedName
	later map[types.NamespacedName]time.Duration
	tasks []*task
}

// task is a reconcile that is under way.
type task struct {
	loop  *loop
	key   types.NamespacedName
	again bool
	next  func() (*memory.Call, bool)
	stop  func()
	yield func(*memory.Call) bool
	// call is a request that waits for an action. done: it has reached the server, and its answer has not arrived.
	call *memory.Call
	done bool

	result reconcile.Result
	err    error
}

// killed ends a task whose process has died.
type killed struct{}

func (p *process) active() bool { return p.alive && p.pausedUntil <= p.world.now }

// add adds a controller.
func (p *process) add(name string, many bool, reconciler reconcile.Reconciler) *loop {
	l := &loop{process: p, name: name, many: many, reconciler: reconciler, later: map[types.NamespacedName]time.Duration{}}
	p.loops = append(p.loops, l)
	return l
}

func (p *process) loop(name string) *loop {
	for _, l := range p.loops {
		if l.name == name {
			return l
		}
	}
	return nil
}

func (p *process) feed(name string) *feed {
	for _, f := range p.feeds {
		if f.name == name {
			return f
		}
	}
	return nil
}

// line is how requests of the process leave it: the task that sends one waits.
func (p *process) line(call *memory.Call) {
	t := p.world.running
	if t == nil {
		call.Answer, call.Err = call.Do()
		return
	}
	if !t.yield(call) {
		panic(killed{})
	}
}

// die ends the process. Requests that it has sent may still arrive.
func (p *process) die() {
	if !p.alive {
		return
	}
	p.alive = false
	for _, l := range p.loops {
		for _, t := range l.tasks {
			p.world.running = t
			t.stop()
			p.world.running = nil
		}
	}
	p.loops, p.feeds, p.clock.alarms = nil, nil, nil
}

// Add brings a key into the queue, behind those that are due. So the order does not depend on when somebody has looked at
// the queue, and a replay has the same one.
func (l *loop) Add(key types.NamespacedName) {
	l.promote()
	l.add(key)
}

func (l *loop) add(key types.NamespacedName) {
	for _, t := range l.tasks {
		if t.key == key {
			t.again = true
			return
		}
	}
	delete(l.later, key)
	if !slices.Contains(l.ready, key) {
		l.ready = append(l.ready, key)
	}
}

func (l *loop) addAfter(key types.NamespacedName, delay time.Duration) {
	if delay <= 0 {
		l.Add(key)
		return
	}
	due := l.process.clock.due(delay)
	if at, ok := l.later[key]; (!ok || due < at) && !slices.Contains(l.ready, key) {
		l.later[key] = due
	}
}

// promote makes due keys ready, and returns when the next key is due.
func (l *loop) promote() time.Duration {
	next := never
	var due []types.NamespacedName
	for key, at := range l.later {
		if at <= l.process.world.now {
			due = append(due, key)
		} else {
			next = min(next, at)
		}
	}
	slices.SortFunc(due, func(a, b types.NamespacedName) int {
		return cmp.Or(cmp.Compare(l.later[a], l.later[b]), compareKeys(a, b))
	})
	for _, key := range due {
		delete(l.later, key)
		l.add(key)
	}
	return next
}

// startable is true if a key can be begun.
func (l *loop) startable() bool { return len(l.ready) > 0 && (l.many || len(l.tasks) == 0) }

// start begins to reconcile a key that is ready, and goes on until a request is sent.
func (l *loop) start(key types.NamespacedName) bool {
	at := slices.Index(l.ready, key)
	if at < 0 || !l.many && len(l.tasks) > 0 {
		return false
	}
	l.ready = slices.Delete(l.ready, at, at+1)
	t := &task{loop: l, key: key}
	w := l.process.world
	t.next, t.stop = iter.Pull(func(yield func(*memory.Call) bool) {
		defer func() {
			if cause := recover(); cause != nil {
				if _, ok := cause.(killed); !ok {
					w.fail("panic in %s %s: %v\n%s", l.process.name, l.name, cause, debug.Stack())
				}
			}
		}()
		t.yield = yield
		t.result, t.err = l.reconciler.Reconcile(w.ctx, reconcile.Request{NamespacedName: key})
	})
	l.tasks = append(l.tasks, t)
	t.resume()
	return true
}

// resume goes on until the next request is sent, or the task is over.
func (t *task) resume() {
	w, l := t.loop.process.world, t.loop
	before := w.running
	w.running = t
	call, more := t.next()
	w.running = before
	if t.call, t.done = call, false; more {
		return
	}
	l.tasks = slices.DeleteFunc(l.tasks, func(other *task) bool { return other == t })
	switch {
	case t.again:
		l.Add(t.key)
	case t.err != nil:
		l.addAfter(t.key, retryDelay)
	case t.result.RequeueAfter > 0:
		l.addAfter(t.key, t.result.RequeueAfter)
	}
}

// name of the task in traces.
func (t *task) name() string { return t.loop.name + " " + t.key.String() }

// next is when something becomes due in the process by itself.
func (p *process) next() time.Duration {
	if !p.alive {
		return never
	}
	next := p.clock.next()
	for _, l := range p.loops {
		next = min(next, l.promote())
	}
	return max(next, p.pausedUntil)
}

// drain does all that can be done now, in order.
func (p *process) drain() {
	if !p.active() {
		return
	}
	for round := 0; p.once(); round++ {
		if round > 2000 {
			p.world.fail("%s does not come to an end: %s", p.name, p.busyWith())
		}
		if p.world.Failed() {
			return
		}
	}
}

// once does something of each kind, and is false if there was nothing.
func (p *process) once() (did bool) {
	p.clock.ring()
	for _, f := range p.feeds {
		for f.view.Behind() > 0 && p.reaches(f.from) {
			p.deliver(f)
			did = true
		}
	}
	for _, l := range slices.Clone(p.loops) {
		l.promote()
		for l.startable() {
			p.world.count()
			l.start(l.ready[0])
			did = true
		}
		for _, t := range slices.Clone(l.tasks) {
			p.settle(t)
			did = true
		}
	}
	return did
}

// settle lets a request do what it does if the network has only the known faults.
func (p *process) settle(t *task) {
	p.world.count()
	switch {
	case t.done:
	case p.reaches(t.call.Server):
		t.call.Answer, t.call.Err = p.world.apply(t.call)
	default:
		t.call.Answer, t.call.Err = nil, errLost
	}
	t.resume()
}

// deliver makes a cache see one change.
func (p *process) deliver(f *feed) {
	p.world.count()
	if change, ok := f.view.Next(); ok && f.tell != nil {
		f.tell(change)
	}
}

func (p *process) busyWith() string {
	text := ""
	for _, l := range p.loops {
		for _, key := range l.ready {
			text += fmt.Sprintf(" %s %s", l.name, key)
		}
		for _, t := range l.tasks {
			text += fmt.Sprintf(" %s (%s)", t.name(), t.call.Text())
		}
	}
	return text
}

func compareKeys(a, b types.NamespacedName) int {
	if a.Namespace != b.Namespace {
		if a.Namespace < b.Namespace {
			return -1
		}
		return 1
	}
	if a.Name < b.Name {
		return -1
	}
	if a.Name > b.Name {
		return 1
	}
	return 0
}

// reconcileFunc is a controller without state.
type reconcileFunc func(context.Context, types.NamespacedName) (time.Duration, error)

// Reconcile implements reconcile.Reconciler.
func (f reconcileFunc) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	again, err := f(ctx, request.NamespacedName)
	return reconcile.Result{RequeueAfter: again}, err
}
