// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/record"
)

// preemptions make preemptions back off, by job and by namespace, whatever is edited about the job. Without them a job
// whose copy no worker makes, though a dry run passes, would have others stopped again and again.
//
// Stopping jobs for a job was in vain if the job then leaves the waiting list without a worker, if its attempt ends
// before a copy is on record, or if more jobs have to be stopped before that, unless those that were stopped take too
// long. The counts are lost with the process.
type preemptions struct {
	// jobs have had others stopped, and no copy since. namespaces had such jobs.
	jobs       map[types.UID]*futility
	namespaces map[string]*futility
	// held says until when no jobs are stopped for a waiting job that could have jobs stopped otherwise.
	held map[types.UID]time.Time
}

// futility counts what was in vain.
type futility struct {
	namespace string
	count     int32
	last      time.Time
	// open: it is not known yet whether the last time was in vain. Only of jobs.
	open bool
}

func newPreemptions() *preemptions {
	return &preemptions{
		jobs: map[types.UID]*futility{}, namespaces: map[string]*futility{}, held: map[types.UID]time.Time{},
	}
}

// pausedUntil is until when no jobs are stopped for a job.
func (p *preemptions) pausedUntil(job *queue.Job) time.Time {
	var until time.Time
	for _, past := range []*futility{p.jobs[job.UID], p.namespaces[job.Namespace]} {
		if past == nil {
			continue
		}
		if at := past.last.Add(record.Backoff(past.count)); at.After(until) {
			until = at
		}
	}
	return until
}

// begin notes that jobs are being stopped for a job. overdue: others that were stopped for it take too long, which is
// their owners' doing.
func (p *preemptions) begin(job *queue.Job, overdue bool, now time.Time) {
	p.prune(now)
	past := p.jobs[job.UID]
	if past == nil {
		past = &futility{namespace: job.Namespace}
		p.jobs[job.UID] = past
	}
	if !overdue {
		p.vain(job.UID, now)
		past.count++
	}
	past.last, past.open = now, true
}

// hold notes until when no jobs are stopped for a job; the zero time: they may be.
func (p *preemptions) hold(job types.UID, until time.Time) {
	if p.held[job] = until; until.IsZero() {
		delete(p.held, job)
	}
}

// vain notes that the jobs which were stopped last for a job were stopped in vain, if any were.
func (p *preemptions) vain(job types.UID, now time.Time) {
	past := p.jobs[job]
	if past == nil || !past.open {
		return
	}
	past.open, past.last = false, now
	of := p.namespaces[past.namespace]
	if of == nil {
		of = &futility{}
		p.namespaces[past.namespace] = of
	}
	of.count++
	of.last = now
}

// worth notes that a job has a copy.
func (p *preemptions) worth(job types.UID) {
	if past := p.jobs[job]; past != nil {
		delete(p.jobs, job)
		delete(p.namespaces, past.namespace)
	}
}

// prune forgets what is so long ago that it makes no difference.
func (p *preemptions) prune(now time.Time) {
	for job, past := range p.jobs {
		if !past.open && now.Sub(past.last) > 2*record.MaxBackoff {
			delete(p.jobs, job)
		}
	}
	for namespace, past := range p.namespaces {
		if now.Sub(past.last) > 2*record.MaxBackoff {
			delete(p.namespaces, namespace)
		}
	}
}
