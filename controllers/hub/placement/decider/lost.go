// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// A decision that has panicked over a worker is tried again after lostAtFirst, and each time after twice as long, up to
// lostAtMost.
const (
	lostAtFirst = time.Minute
	lostAtMost  = time.Hour
)

// loss is a panic over a worker. Until a time the worker counts as not Ready, and nothing of what it has is looked at.
type loss struct {
	why      string
	stack    []byte
	until    time.Time
	patience time.Duration
}

// losses are the workers over which a decision has panicked.
type losses struct {
	clock clock.PassiveClock
	of    map[v1alpha1.ClusterName]*loss
	// told is what the connections of the workers were told last.
	told map[v1alpha1.ClusterName]string
}

func newLosses(clock clock.PassiveClock) losses {
	return losses{clock: clock, of: map[v1alpha1.ClusterName]*loss{}, told: map[v1alpha1.ClusterName]string{}}
}

// note loses a worker. A second panic over a worker that nobody may look at is a fault of this package.
func (l *losses) note(panicked *dispatch.WorkerPanic) {
	now, lost := l.clock.Now(), l.of[panicked.Worker]
	switch {
	case lost == nil:
		lost = &loss{}
		l.of[panicked.Worker] = lost
	case now.Before(lost.until):
		panic(panicked.Value)
	}
	lost.patience = min(max(2*lost.patience, lostAtFirst), lostAtMost)
	lost.until, lost.stack = now.Add(lost.patience), panicked.Stack
	lost.why = fmt.Sprintf("what the worker has cannot be counted, because of a fault of Trainyard: %v", panicked.Value)
}

func (l *losses) forget(worker v1alpha1.ClusterName) {
	delete(l.of, worker)
	delete(l.told, worker)
}

// why says why nothing of what a worker has is looked at now, or "".
func (l *losses) why(worker v1alpha1.ClusterName) string {
	if lost := l.of[worker]; lost != nil && l.clock.Now().Before(lost.until) {
		return lost.why
	}
	return ""
}

// next is when the first lost worker is tried again, the zero time if there is none.
func (l *losses) next() time.Time {
	var next time.Time
	for name, lost := range l.of {
		if l.why(name) != "" && (next.IsZero() || lost.until.Before(next)) {
			next = lost.until
		}
	}
	return next
}

// doubts are what has to be told about workers: why they were lost, or "" for workers that were lost no longer.
func (l *losses) doubts() map[v1alpha1.ClusterName]loss {
	var doubts map[v1alpha1.ClusterName]loss
	for name, lost := range l.of {
		doubt := loss{why: l.why(name), stack: lost.stack}
		if doubt.why == l.told[name] {
			continue
		}
		if doubts == nil {
			doubts = map[v1alpha1.ClusterName]loss{}
		}
		doubts[name], l.told[name] = doubt, doubt.why
	}
	return doubts
}

// Lose implements queue.Fleet.
func (f *fleet) Lose(panicked *dispatch.WorkerPanic) {
	f.losses.note(panicked)
	delete(f.nodes, panicked.Worker)
	for i := range f.objects { // The decision may have left any worker as it saw it.
		f.stale = append(f.stale, v1alpha1.ClusterName(f.objects[i].Name))
	}
}

// spare is to be deferred by code that looks at one worker. It loses the worker if the code panics, and says so.
func (f *fleet) spare(worker v1alpha1.ClusterName, lost func()) {
	value := recover()
	if value == nil {
		return
	}
	panicked, is := value.(*dispatch.WorkerPanic)
	if !is {
		panicked = &dispatch.WorkerPanic{Worker: worker, Value: value, Stack: debug.Stack()}
	}
	f.Lose(panicked)
	lost()
}

// without calls decide until it does not panic over a worker. The caller holds mu.
func (d *Decider) without(decide func()) {
	try := func() (panicked *dispatch.WorkerPanic) {
		defer func() { panicked = dispatch.BlamedOn(recover()) }()
		decide()
		return nil
	}
	for panicked := try(); panicked != nil; panicked = try() {
		d.fleet.Lose(panicked)
		d.Changed() // The next pass tells the worker's connection.
	}
}

// tellDoubts makes the connections of workers say on their WorkerClusters that the workers were lost, or are not any more.
func tellDoubts(doubts map[v1alpha1.ClusterName]loss, connections Connections) {
	for name, doubt := range doubts {
		if cluster, ok := connections.Get(name); ok {
			cluster.SetInventoryFault(doubt.why, doubt.stack)
		}
	}
}
