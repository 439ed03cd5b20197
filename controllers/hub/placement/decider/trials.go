// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
)

// TrialPatience is for how long a job waits for a worker that was asked whether it takes the job. A later answer does
// not count. Meanwhile nobody is stopped for the job. After that jobs of other workers may be.
const TrialPatience = 15 * time.Second

// trialPause is how long after TrialPatience a worker that has not answered is asked again.
const trialPause = time.Minute

// Trial asks a worker whether it takes the copy of a job for which jobs would be stopped there.
type Trial struct {
	// Job is the job as it was decided on. Worker is the worker as it was decided on.
	Job    *queue.Job
	Worker *v1alpha1.WorkerCluster
	number uint64
}

// trials are what workers have said about the copies of waiting jobs. They are lost with the process. Then workers are
// asked again.
type trials struct {
	jobs map[types.NamespacedName]*jobTrials
	last uint64
}

// jobTrials are the trials of one job, the latest for each worker.
type jobTrials struct {
	uid     types.UID
	workers map[v1alpha1.ClusterName]*trial
}

// trial is what one worker was asked about one job.
type trial struct {
	number uint64
	// circumstances sums up job, runtime, policy and worker as they were when the worker was asked. In other
	// circumstances the trial says nothing.
	circumstances string
	asked         time.Time
	// sent: the reconciler has taken the question.
	sent bool
	// accepted and refused are the answer. refused has the worker's words. Neither: there is no answer.
	accepted bool
	refused  string
	// refusals is how often in a row the worker has refused. answered is when it did so last.
	refusals int32
	answered time.Time
}

// isAwaited: the answer counts if it comes now.
func (t *trial) isAwaited(now time.Time) bool {
	return !t.accepted && t.refused == "" && now.Before(t.asked.Add(TrialPatience))
}

// pausedUntil is when the worker may be asked again. Until then no jobs are stopped there.
func (t *trial) pausedUntil(now time.Time) time.Time {
	switch {
	case t.accepted || t.isAwaited(now):
		return time.Time{}
	case t.refused != "":
		return t.answered.Add(record.Backoff(t.refusals))
	default:
		return t.asked.Add(TrialPatience + trialPause)
	}
}

// words say why no jobs are stopped on the worker, empty if they may be.
func (t *trial) words(worker v1alpha1.ClusterName, now time.Time) string {
	switch {
	case t.accepted || t.isAwaited(now):
		return ""
	case t.refused != "":
		return fmt.Sprintf("worker %s would refuse the job: %s", worker, t.refused)
	default:
		return fmt.Sprintf("worker %s has not answered whether it takes the job", worker)
	}
}

// of returns the trials of a job, nil if it has none.
func (t *trials) of(job *queue.Job) map[v1alpha1.ClusterName]*trial {
	if known := t.jobs[job.Key()]; known != nil && known.uid == job.UID {
		return known.workers
	}
	return nil
}

// put replaces the trial of a job on a worker.
func (t *trials) put(job *queue.Job, worker v1alpha1.ClusterName, next *trial) {
	if t.of(job) == nil {
		t.jobs[job.Key()] = &jobTrials{uid: job.UID, workers: map[v1alpha1.ClusterName]*trial{}}
	}
	t.last++
	next.number = t.last
	t.jobs[job.Key()].workers[worker] = next
}

func (t *trials) drop(job types.NamespacedName) { delete(t.jobs, job) }

// circumstances sums up everything on which it may depend whether a worker takes a job.
func (f *fleet) circumstances(job *queue.Job, worker v1alpha1.ClusterName) string {
	return fmt.Sprintf("%d.%s.%s", job.Attempt, job.Circumstances, f.digest(f.object(worker)))
}

// trial returns what a worker was asked about a job in the present circumstances, nil if it was asked nothing.
func (f *fleet) trial(job *queue.Job, worker v1alpha1.ClusterName) *trial {
	t := f.trials.of(job)[worker]
	if t == nil || t.circumstances != f.circumstances(job, worker) {
		return nil
	}
	return t
}

// accepts is true if a worker has said that it takes a job as the job is now.
func (f *fleet) accepts(job *queue.Job, worker v1alpha1.ClusterName) bool {
	if f.digest == nil {
		return true
	}
	t := f.trial(job, worker)
	return t != nil && t.accepted
}

// ask has a worker asked whether it takes a job, unless it was asked and may still answer.
func (f *fleet) ask(job *queue.Job, worker v1alpha1.ClusterName) {
	now, next := f.clock.Now(), &trial{}
	if before := f.trial(job, worker); before != nil {
		if before.isAwaited(now) {
			return
		}
		next.refusals = before.refusals
	}
	next.circumstances, next.asked = f.circumstances(job, worker), now
	f.trials.put(job, worker, next)
	f.visits.add(worker, now.Add(TrialPatience))
	f.asks = append(f.asks, job.Key())
}

// MayEvict implements queue.Fleet.
func (f *fleet) MayEvict(job *queue.Job, worker v1alpha1.ClusterName) bool {
	if f.digest == nil {
		return true
	}
	now, until := f.clock.Now(), f.preemptions.pausedUntil(job)
	if !now.Before(until) {
		until = time.Time{}
	}
	f.preemptions.hold(job.UID, until)
	if t := f.trial(job, worker); t != nil {
		if at := t.pausedUntil(now); at.After(until) {
			until = at
		}
	}
	if !now.Before(until) {
		return true
	}
	f.visits.add(worker, until)
	return false
}

// visits are when workers are decided on again although nothing changes there: jobs may be stopped there then that may
// not be stopped now.
type visits map[v1alpha1.ClusterName]time.Time

// add keeps the earlier of two times of a worker.
func (v visits) add(worker v1alpha1.ClusterName, at time.Time) {
	if known, is := v[worker]; !is || at.Before(known) {
		v[worker] = at
	}
}

// take returns the workers whose time has come, and drops them.
func (v visits) take(now time.Time) (due []v1alpha1.ClusterName) {
	for worker, at := range v {
		if !now.Before(at) {
			delete(v, worker)
			due = append(due, worker)
		}
	}
	return due
}

// next is the first time, the zero time if there is none.
func (v visits) next() time.Time {
	var next time.Time
	for _, at := range v {
		if next.IsZero() || at.Before(next) {
			next = at
		}
	}
	return next
}

// Trials returns the questions about a waiting job that nobody has taken. The caller sends them, and calls Answer with
// what comes of them.
func (d *Decider) Trials(key types.NamespacedName) []Trial {
	d.mu.Lock()
	defer d.mu.Unlock()
	job := d.list.Job(key)
	if job == nil {
		return nil
	}
	var all []Trial
	for worker, t := range d.fleet.trials.of(job) {
		if !t.sent && t.circumstances == d.fleet.circumstances(job, worker) {
			t.sent = true
			asked := *job // The waiting list changes its own.
			all = append(all, Trial{Job: &asked, Worker: d.fleet.object(worker), number: t.number})
		}
	}
	return all
}

// Answer notes what a worker has said: its words if it refuses the copy, nothing if it takes it. It returns false if the
// answer comes too late, or if nobody waits for it any more.
func (d *Decider) Answer(asked Trial, refused string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	worker, now := v1alpha1.ClusterName(asked.Worker.Name), d.options.Clock.Now()
	t := d.fleet.trials.of(asked.Job)[worker]
	if t == nil || t.number != asked.number || !t.isAwaited(now) {
		return false
	}
	t.answered = now
	if t.accepted, t.refused = refused == "", refused; t.accepted {
		t.refusals = 0
	} else {
		t.refusals++
	}
	d.fleet.outdate(worker)
	d.Changed()
	return true
}

// WhyNobodyStops says why no jobs are stopped for a waiting job on workers on which it could have them stopped. It is
// empty if there is no reason.
func (d *Decider) WhyNobodyStops(job *queue.Job) string {
	d.mu.Lock()
	defer d.mu.Unlock()
	f, now := d.fleet, d.options.Clock.Now()
	if stopping, departed := f.jobs.evictedFor(job.UID); f.digest == nil || len(stopping)+len(departed) > 0 {
		return ""
	}
	var words []string
	if now.Before(f.preemptions.held[job.UID]) {
		words = append(words, "jobs of lower priority were stopped for jobs of this namespace that got no copy, so it is too early to stop more")
	}
	tried := f.trials.of(job)
	for _, worker := range slices.Sorted(maps.Keys(tried)) {
		if t := f.trial(job, worker); t != nil && t.words(worker, now) != "" {
			words = append(words, t.words(worker, now))
		}
	}
	return strings.Join(words, "; ")
}
