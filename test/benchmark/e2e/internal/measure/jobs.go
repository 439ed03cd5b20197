// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package measure

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/trainyard/trainyard/test/benchmark/e2e/internal/api"
)

// Job has the times at which something happened to a job. The zero time: not yet.
type Job struct {
	// Created is just before the hub was asked to create it, Accepted when the hub had answered.
	Created, Accepted time.Time
	// Runnable is when a copy that is not suspended was seen on a worker, and Worker which.
	Runnable time.Time
	Worker   string
	// WorkerComplete and HubComplete are when the copy and the job were seen to be Complete.
	WorkerComplete, HubComplete time.Time
}

// Jobs collects what happens to jobs.
type Jobs struct {
	mu     sync.Mutex
	jobs   map[string]*Job // under mu: by name
	copies int             // under mu: how many there are on workers
	gone   []time.Time     // under mu: when copies were seen to be gone
	err    error           // under mu
}

// NewJobs returns an empty collection.
func NewJobs() *Jobs { return &Jobs{jobs: map[string]*Job{}} }

// Fail ends all waiting.
func (j *Jobs) Fail(err error) { j.change(func() { j.err = err }) }

// Created notes that the hub is asked to create a job.
func (j *Jobs) Created(name string) { j.change(func() { j.jobs[name] = &Job{Created: time.Now()} }) }

// Accepted notes that the hub has created it.
func (j *Jobs) Accepted(name string) {
	j.change(func() { j.jobs[name].Accepted = time.Now() })
}

// OnHub notes a change on the hub.
func (j *Jobs) OnHub(event *api.Event) {
	if !event.Object.Complete() {
		return
	}
	at := time.Now()
	j.change(func() {
		if job := j.jobs[event.Object.Metadata.Name]; job != nil && job.HubComplete.IsZero() {
			job.HubComplete = at
		}
	})
}

// OnWorker notes a change on a worker.
func (j *Jobs) OnWorker(worker string, event *api.Event) {
	at := time.Now()
	j.change(func() {
		switch event.Type {
		case "ADDED":
			j.copies++
		case "DELETED":
			j.copies--
			j.gone = append(j.gone, at)
		}
		job := j.jobs[event.Object.Metadata.Name]
		if job == nil {
			return
		}
		if !event.Object.Spec.Suspend && job.Runnable.IsZero() {
			job.Runnable, job.Worker = at, worker
		}
		if event.Object.Complete() && job.WorkerComplete.IsZero() {
			job.WorkerComplete = at
		}
	})
}

func (j *Jobs) change(f func()) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f()
}

// Of returns the jobs with these names.
func (j *Jobs) Of(names []string) []Job {
	j.mu.Lock()
	defer j.mu.Unlock()
	found := make([]Job, 0, len(names))
	for _, name := range names {
		if job := j.jobs[name]; job != nil {
			found = append(found, *job)
		}
	}
	return found
}

// Gone is how many copies were deleted between two times.
func (j *Jobs) Gone(from, to time.Time) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	count := 0
	for _, at := range j.gone {
		if !at.Before(from) && !at.After(to) {
			count++
		}
	}
	return count
}

// Complete waits until the jobs are Complete on the hub.
func (j *Jobs) Complete(ctx context.Context, names []string) error {
	return j.await(ctx, names, "Complete", func(job *Job) bool { return !job.HubComplete.IsZero() })
}

// Runnable waits until the jobs have a copy that may run.
func (j *Jobs) Runnable(ctx context.Context, names []string) error {
	return j.await(ctx, names, "on a worker", func(job *Job) bool { return !job.Runnable.IsZero() })
}

// How often the waits look at the jobs. The measured times do not depend on this: they are noted elsewhere.
const (
	shortPoll  = 2 * time.Millisecond
	pollPerJob = 10 * time.Microsecond
)

// await waits for a state from which jobs do not return.
func (j *Jobs) await(ctx context.Context, names []string, state string, reached func(*Job) bool) error {
	left := slices.Clone(names)
	for {
		j.mu.Lock()
		left = slices.DeleteFunc(left, func(name string) bool { return j.jobs[name] != nil && reached(j.jobs[name]) })
		err := j.err
		j.mu.Unlock()
		if err != nil {
			return err
		}
		if len(left) == 0 {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for %d of %d jobs to be %s, such as %s: %w", len(left), len(names), state, left[0], ctx.Err())
		case <-time.After(max(shortPoll, pollPerJob*time.Duration(len(left)))):
		}
	}
}

// Copies is how many TrainJobs there are on the workers.
func (j *Jobs) Copies() int {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.copies
}
