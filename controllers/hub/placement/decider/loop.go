// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"context"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/internal/requeue"
)

// Run does a pass whenever something has changed, and when time makes a difference, until the context ends.
func (d *Decider) Run(ctx context.Context) error {
	for {
		var due <-chan time.Time
		var timer clock.Timer
		if wait, ok := d.Next(); ok {
			timer = d.options.Clock.NewTimer(wait)
			due = timer.C()
		}
		select {
		case <-ctx.Done():
			return nil
		case <-d.changed:
		case <-due:
		}
		if timer != nil {
			timer.Stop()
		}
		if err := d.Pass(ctx); err != nil && ctx.Err() == nil {
			return err
		}
	}
}

// Pass decides on what a change could help, and tells everybody whom the decisions are about. Run calls it, one call at
// a time, so that no pass sees older workers than the pass before.
func (d *Decider) Pass(ctx context.Context) error {
	select {
	case <-d.changed: // What changes from now on is for the next pass.
	default:
	}
	workers, err := d.options.Workers(ctx)
	if err != nil {
		return err
	}
	wake, tell, doubts := d.lockAndPass(workers)
	d.options.Wake(wake...)
	tellDoubts(doubts, d.options.Connections)
	for _, changed := range tell {
		changed()
	}
	return nil
}

// Next returns how long it is until a pass is needed although nothing changes, and false if none will be.
func (d *Decider) Next() (time.Duration, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return max(0, d.due.Sub(d.options.Clock.Now())), !d.due.IsZero()
}

// lockAndPass does the part of a pass that needs the lock. It returns the jobs to wake, the subscribers to tell, and the
// workers that were lost.
func (d *Decider) lockAndPass(
	workers []v1alpha1.WorkerCluster,
) (wake []types.NamespacedName, tell []func(), doubts map[v1alpha1.ClusterName]loss) {
	d.mu.Lock()
	defer d.mu.Unlock()
	defer d.questions.answer(d.without)
	if d.expected == nil || len(d.expected) > 0 {
		return nil, nil, nil
	}
	wasOver := d.startup.over
	if d.due = d.startup.until; d.startup.look(workers) {
		d.fleet.refresh(workers)
		wake = d.toWake(d.list.Pass(d.options.Clock.Now(), d.fleet))
		d.due = requeue.Earlier(d.list.Next(), d.fleet.next())
		if doubts = d.fleet.losses.doubts(); len(doubts) > 0 {
			wake = append(wake, d.fleet.jobs.evictions()...) // The pass may have ended before it told them.
			d.Changed()                                      // It may have seen the worker before it was lost.
		}
	}
	if wasOver != d.startup.over || d.revision != d.fleet.revision {
		tell = slices.Collect(maps.Values(d.subscribers))
	}
	d.revision = d.fleet.revision
	return wake, tell, doubts
}

// toWake returns the jobs that a pass was about: jobs with an outcome, jobs that are to be evicted for them, jobs with
// new Trials, and jobs that had no answer before. Jobs that wait in Enter are told there.
func (d *Decider) toWake(outcomes []queue.Outcome) []types.NamespacedName {
	wake := sets.New(d.fleet.asks...)
	d.fleet.asks = nil
	for i := range outcomes {
		wake.Insert(outcomes[i].Job.Key())
		if preemption := outcomes[i].Preemption; preemption != nil {
			for _, victim := range preemption.Victims {
				wake.Insert(victim.Key)
			}
		}
	}
	for key := range d.unanswered {
		if _, decided := d.list.Answer(key); decided {
			wake.Insert(key)
		}
	}
	d.unanswered = d.unanswered.Difference(wake)
	for _, q := range d.questions {
		wake.Delete(q.by)
	}
	return wake.UnsortedList()
}

// Subscribe calls changed whenever there may be room where there was none, and when Elsewhere begins to have answers.
// changed is called under no lock, and has to return at once.
func (d *Decider) Subscribe(changed func()) (cancel func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.subscriptions++
	key := d.subscriptions
	d.subscribers[key] = changed
	return func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.subscribers, key)
	}
}
