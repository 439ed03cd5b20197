// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"slices"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// class are the jobs of equal demand, rules and priority, in order. Whatever is found out about the first holds for
// those behind it: they need the same, and no more is held for jobs before the first than for jobs before them.
type class struct {
	name    string
	rules   rules
	need    need
	bucket  *bucket
	strict  *strictList // Nil: the policy is not StrictFIFO.
	entries []*entry
	// policies is the policy of the jobs, made to match them whatever their labels are, so that it need not be looked
	// for; original is what it was made from. Without a policy they are those of the first job, and nil.
	policies []dispatch.Policy
	original *v1alpha1.DispatchPolicy

	// fresh: not all workers have been asked about it.
	fresh bool
	// raw is what they said.
	raw dispatch.Decision
	// answer is what the first waits for, and told what has been reported of it.
	answer dispatch.Decision
	told   told
	// blocker is the worker that the answer speaks of: it has room for the class, which is held for a job before it, or
	// jobs are being stopped there to make room. Empty: there is none.
	blocker v1alpha1.ClusterName
	// searched: no worker has jobs that it could preempt, and unreservable: none can be held for it. Those that change
	// are asked again.
	searched, unreservable bool
	// witness is a worker on which it would fit if no job ran there. It is looked for if the policy is strict.
	witness v1alpha1.ClusterName

	// queued: it is on the agenda, and considered is the last sweep in which its first has been looked at.
	queued     bool
	considered uint64
	// visited is the last walk along its strict list that came to it.
	visited uint64
}

// told is what has been reported, and of whom.
type told struct {
	entry           *entry
	reason, message string
}

func (c *class) head() *entry { return c.entries[0] }

// narrow makes the policy of the class out of those of the hub.
func (c *class) narrow(job *Job) {
	c.policies = job.Policies
	policy, _, err := dispatch.SelectPolicy(job.Policies, job.Job)
	if err != nil || policy == nil {
		return
	}
	c.original = policy.DispatchPolicy
	narrowed := *policy
	narrowed.DispatchPolicy = &v1alpha1.DispatchPolicy{ObjectMeta: policy.ObjectMeta, Spec: policy.Spec}
	narrowed.Spec.Jobs = v1alpha1.JobSelector{}
	c.policies = []dispatch.Policy{narrowed}
}

// decide asks some workers about a job of the class.
func (c *class) decide(e *entry, workers []dispatch.Worker) dispatch.Decision {
	decision := dispatch.Decide(e.Job.Job, c.policies, workers)
	decision.Policy = c.original
	return decision
}

// renew forgets what is known about workers.
func (c *class) renew() {
	c.fresh, c.searched, c.unreservable = true, false, false
}

// add puts a job in its place. It says whether that is the first.
func (c *class) add(e *entry) (first bool) {
	e.class = c
	at, _ := slices.BinarySearchFunc(c.entries, e, inOrder)
	c.entries = slices.Insert(c.entries, at, e)
	return at == 0
}

// remove takes a job out. It says whether it was the first.
func (c *class) remove(e *entry) (first bool) {
	at, found := slices.BinarySearchFunc(c.entries, e, inOrder)
	switch {
	case !found:
		return false
	case at > 0:
		c.entries = slices.Delete(c.entries, at, at+1)
		return false
	}
	c.entries[0] = nil
	c.entries = c.entries[1:] // Not slices.Delete, which moves all others.
	return true
}

// strictList is the part of the waiting list that has the jobs of one policy with queueing StrictFIFO.
type strictList struct {
	policy  string
	classes []*class
	// holder is the class whose first holds those behind it. Nil: there is none.
	holder *class
	// dirty: jobs have come or gone since the jobs behind the holder were told.
	dirty bool
	// walked is the last sweep that went along the list, and walks is how many sweeps did.
	walked, walks uint64
}

// next returns the class whose first is before those of all others that have not been looked at in a sweep, nil if
// there is none.
func (l *strictList) next(sweep uint64) *class {
	var next *class
	for _, c := range l.classes {
		if c.considered != sweep && (next == nil || c.head().isBefore(next.head())) {
			next = c
		}
	}
	return next
}

// visit notes that a walk has come to a class. One that the walk before did not come to has missed what changed.
func (l *strictList) visit(c *class) {
	if c.visited+1 < l.walks {
		c.renew()
	}
	c.visited = l.walks
}

// holds: a job of another class holds this one.
func (l *strictList) holds(e *entry) bool {
	return l.holder != nil && l.holder != e.class && l.holder.head().isBefore(e)
}

// queued is the answer for those that are held.
func (l *strictList) queued() dispatch.Decision {
	return dispatch.Decision{Reason: v1alpha1.ReasonQueued, Message: fmt.Sprintf(
		"a job before this one waits for room, and DispatchPolicy %s is %s", l.policy, v1alpha1.StrictFIFO)}
}
