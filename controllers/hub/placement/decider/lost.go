// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"fmt"
	"runtime/debug"
	"time"

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

// Lose implements queue.Fleet. A second panic over a worker that nobody may look at is a fault of this package.
func (f *fleet) Lose(panicked *dispatch.WorkerPanic) {
	now := f.clock.Now()
	l := f.losses[panicked.Worker]
	switch {
	case l == nil:
		l = &loss{}
		f.losses[panicked.Worker] = l
	case now.Before(l.until):
		panic(panicked.Value)
	}
	l.patience = min(max(2*l.patience, lostAtFirst), lostAtMost)
	l.until, l.stack = now.Add(l.patience), panicked.Stack
	l.why = fmt.Sprintf("what the worker has cannot be counted, because of a fault of Trainyard: %v", panicked.Value)
	delete(f.nodes, panicked.Worker)
	for i := range f.objects { // The decision may have left any worker as it saw it.
		f.stale = append(f.stale, v1alpha1.ClusterName(f.objects[i].Name))
	}
}

// lost says why nothing of what a worker has is looked at now, or "".
func (f *fleet) lost(worker v1alpha1.ClusterName) string {
	if l := f.losses[worker]; l != nil && f.clock.Now().Before(l.until) {
		return l.why
	}
	return ""
}

// nextFound is when the first lost worker is tried again, the zero time if there is none.
func (f *fleet) nextFound() time.Time {
	var next time.Time
	for name, l := range f.losses {
		if f.lost(name) != "" && (next.IsZero() || l.until.Before(next)) {
			next = l.until
		}
	}
	return next
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

// doubts are what has to be told about workers: why they were lost, or "" for workers that were lost no longer.
func (f *fleet) doubts() map[v1alpha1.ClusterName]loss {
	var doubts map[v1alpha1.ClusterName]loss
	for name, l := range f.losses {
		doubt := loss{why: f.lost(name), stack: l.stack}
		if doubt.why == f.told[name] {
			continue
		}
		if doubts == nil {
			doubts = map[v1alpha1.ClusterName]loss{}
		}
		doubts[name], f.told[name] = doubt, doubt.why
	}
	return doubts
}

// tellDoubts makes the connections of workers say on their WorkerClusters that the workers were lost, or are not any more.
func (d *Decider) tellDoubts(doubts map[v1alpha1.ClusterName]loss) {
	for name, doubt := range doubts {
		if cluster, ok := d.Connections.Get(name); ok {
			cluster.Doubt(doubt.why, doubt.stack)
		}
	}
}
