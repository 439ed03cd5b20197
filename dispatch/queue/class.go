// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"container/heap"
	"fmt"
	"slices"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// class has the jobs of equal demand, rules and priority, in order. A result for the first job holds for the jobs
// behind it: they need the same, and the jobs before them hold at least as much as the jobs before the first.
type class struct {
	name    string
	rules   rules
	minimum minimum
	bucket  *bucket
	strict  *strictList // nil: the policy is not StrictFIFO.
	entries []*entry
	// policies has the policy of the jobs, changed so that it matches them whatever their labels are. That saves a search.
	// original is the unchanged policy. Without a policy, policies has the first job's policies, and original is nil.
	policies []dispatch.Policy
	original *v1alpha1.DispatchPolicy

	// fresh: not all workers have been asked about the class.
	fresh bool
	// raw is the decision of the workers.
	raw dispatch.Decision
	// answer is what the first job waits for. reported is the last report of it.
	answer   dispatch.Decision
	reported report
	// blocker is the worker that the answer names: it has room for the class, but holds it for a job before, or jobs are
	// being stopped there to make room. Empty: there is none.
	blocker v1alpha1.ClusterName
	// searched: no worker has jobs that the class could preempt. unreservable: no worker can be held for the class.
	// Changed workers are asked again.
	searched, unreservable bool
	// fitsEmptyOn is a worker on which the first job would fit if no job ran there. Only strict policies need it.
	fitsEmptyOn v1alpha1.ClusterName

	// queued: the class is on the worklist. considered is the last round that decided about its first job.
	queued     bool
	considered uint64
	// visited is the last walk through its strict list that reached the class.
	visited uint64
}

// report is the last report about a class, and the job that it was about.
type report struct {
	entry           *entry
	reason, message string
}

func (c *class) head() *entry { return c.entries[0] }

// narrow makes the policy of the class from the policies of the hub.
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

func (c *class) decide(e *entry, workers []dispatch.Worker) dispatch.Decision {
	decision := dispatch.Decide(e.Job.Job, c.policies, workers)
	decision.Policy = c.original
	return decision
}

// renew drops all results about workers.
func (c *class) renew() {
	c.fresh, c.searched, c.unreservable = true, false, false
}

// add inserts a job at its place. first says whether that is the first place.
func (c *class) add(e *entry) (first bool) {
	e.class = c
	at, _ := slices.BinarySearchFunc(c.entries, e, inOrder)
	c.entries = slices.Insert(c.entries, at, e)
	return at == 0
}

// remove removes a job. first says whether it was the first job.
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
	c.entries = c.entries[1:] // slices.Delete would move all others.
	return true
}

// strictList has the jobs of one policy with queueing StrictFIFO.
type strictList struct {
	policy  string
	classes []*class
	// holder is the class whose first job holds back the jobs behind it. nil: there is none. advance sets it.
	holder *class
	// dirty: jobs have come or gone since the last report to the jobs behind the holder.
	dirty bool
	// walked is the last round that walked through the list. walks counts the walks.
	walked, walks uint64
}

// next returns the class whose first job is the first in order, of those not considered in a round. nil: there is none.
func (l *strictList) next(round uint64) *class {
	var next *class
	for _, c := range l.classes {
		if c.considered != round && (next == nil || c.head().isBefore(next.head())) {
			next = c
		}
	}
	return next
}

// visit records that a walk has reached a class. If the last walk did not reach it, the class has missed changes.
func (l *strictList) visit(c *class) {
	if c.visited+1 < l.walks {
		c.renew()
	}
	c.visited = l.walks
}

// holds says whether the first job of the holder holds back a job of a class. The class is nil for a job that is not on
// the waiting list. A nil strictList holds no job back.
func (l *strictList) holds(c *class, job *Job) bool {
	return l != nil && l.holder != nil && l.holder != c && before(&l.holder.head().Job, job) < 0
}

// queued is the answer for the jobs that are held back.
func (l *strictList) queued() dispatch.Decision {
	return dispatch.Decision{Reason: v1alpha1.ReasonQueued, Message: fmt.Sprintf(
		"a job before this one waits for room, and DispatchPolicy %s is %s", l.policy, v1alpha1.StrictFIFO)}
}

// worklist has the classes that the round still has to consider. It is a heap, with the class whose first job is the
// first in order on top. The first job of a class must not change while the class is in it.
type worklist []*class

func (a *worklist) add(c *class) {
	if !c.queued {
		c.queued = true
		heap.Push(a, c)
	}
}

func (a *worklist) pop() *class {
	c := heap.Pop(a).(*class)
	c.queued = false
	return c
}

// Len implements heap.Interface.
func (a worklist) Len() int { return len(a) }

// Less implements heap.Interface.
func (a worklist) Less(i, j int) bool { return a[i].head().isBefore(a[j].head()) }

// Swap implements heap.Interface.
func (a worklist) Swap(i, j int) { a[i], a[j] = a[j], a[i] }

// Push implements heap.Interface.
func (a *worklist) Push(x any) { *a = append(*a, x.(*class)) }

// Pop implements heap.Interface.
func (a *worklist) Pop() any {
	last := len(*a) - 1
	x := (*a)[last]
	(*a)[last] = nil
	*a = (*a)[:last]
	return x
}
