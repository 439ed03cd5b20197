// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"fmt"
	"reflect"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Queue is the waiting list. Its methods must not run at the same time.
type Queue struct {
	// now is the time of the last pass.
	now time.Time

	entries map[types.NamespacedName]*entry
	classes map[string]*class
	// buckets has the classes of policies that are not StrictFIFO. strict has the classes of StrictFIFO policies, by policy.
	buckets buckets
	strict  map[string]*strictList
	// pending has the classes whose first job has changed, and the classes that no pass has decided about.
	pending map[*class]struct{}
	// Of the classes of policies that are not strict: preempting may preempt, blocked have a blocker, and the first jobs
	// of overdue are due for a reservation, but no worker can be held for them.
	preempting, blocked, overdue map[*class]struct{}
	// erratic is how many classes have erratic rules.
	erratic int
	// timers has the jobs that will be due for a reservation.
	timers timers

	// seen has the workers as of the last Pass, in their order then. index is the position of each worker in seen.
	seen  []seenWorker
	index map[v1alpha1.ClusterName]int
	// ready: at least one worker is Ready.
	ready    bool
	rounds   uint64
	places   places   // Scratch.
	worklist worklist // Scratch.

	reservations map[v1alpha1.ClusterName]*reservation
	// released has workers that may have room for other jobs because a reservation has ended or changed.
	released map[v1alpha1.ClusterName]struct{}
}

// seenWorker is a worker as of the last Pass.
type seenWorker struct {
	name     v1alpha1.ClusterName
	revision uint64
	// changed is the last round before which the worker had changed.
	changed uint64
}

// New returns an empty waiting list.
func New() *Queue {
	return &Queue{
		entries:      map[types.NamespacedName]*entry{},
		classes:      map[string]*class{},
		buckets:      buckets{},
		strict:       map[string]*strictList{},
		pending:      map[*class]struct{}{},
		preempting:   map[*class]struct{}{},
		blocked:      map[*class]struct{}{},
		overdue:      map[*class]struct{}{},
		index:        map[v1alpha1.ClusterName]int{},
		places:       places{},
		reservations: map[v1alpha1.ClusterName]*reservation{},
		released:     map[v1alpha1.ClusterName]struct{}{},
	}
}

// Len is how many jobs wait.
func (q *Queue) Len() int { return len(q.entries) }

// Has says whether a job is on the waiting list.
func (q *Queue) Has(key types.NamespacedName) bool { return q.entries[key] != nil }

// Keys returns the jobs that wait, in order.
func (q *Queue) Keys() []types.NamespacedName {
	entries := make([]*entry, 0, len(q.entries))
	for _, e := range q.entries {
		entries = append(entries, e)
	}
	slices.SortFunc(entries, inOrder)
	keys := make([]types.NamespacedName, len(entries))
	for i, e := range entries {
		keys[i] = e.Key()
	}
	return keys
}

// Enter puts a job on the waiting list. If the TrainJob is on it already, it keeps its Since and reservation. If also
// Class, priority and its policy's rules about waiting are unchanged, it keeps its answer, and Enter returns false.
func (q *Queue) Enter(job Job) bool {
	known := q.entries[job.Key()]
	same := known != nil && known.UID == job.UID
	if same {
		job.Since = known.Since
	}
	rules := rulesOf(&job)
	if same && known.Job.Class == job.Class && known.class.rules == rules && before(&known.Job, &job) == 0 {
		job.Class, job.PodSets = known.Job.Class, known.PodSets
		known.Job = job
		known.class.narrow(&known.Job)
		return false
	}
	next := &entry{Job: job}
	if known != nil {
		if same {
			q.handOver(known, next)
		}
		q.remove(known)
	}
	c := q.classOf(next, rules)
	if len(c.entries) > 0 {
		share(next, c.head())
	}
	q.entries[job.Key()] = next
	if c.add(next) {
		c.renew() // The jobs before the new first job may hold less than the jobs before the old first job did.
		q.await(c)
	} else if c.strict != nil {
		c.strict.dirty = true
	}
	return true
}

// share makes equal values of the jobs of a class share memory.
func share(e, with *entry) {
	if e.Job.Class == with.Job.Class {
		e.Job.Class = with.Job.Class
	}
	if reflect.DeepEqual(e.PodSets, with.PodSets) {
		e.PodSets = with.PodSets
	}
}

// classOf returns the class of a job. It makes a new class for the first job.
func (q *Queue) classOf(e *entry, rules rules) *class {
	name := fmt.Sprintf("%s\n%d\n%v\n%s", rules.policy, e.Priority, rules, e.Job.Class)
	if c := q.classes[name]; c != nil {
		return c
	}
	c := &class{name: name, rules: rules, minimum: minimumOf(&e.Job.Job)}
	c.narrow(&e.Job)
	c.renew()
	q.classes[name] = c
	if rules.strict {
		c.bucket = newBucket(c.minimum.request)
		c.bucket.classes = []*class{c}
		c.strict = q.strict[rules.policy]
		if c.strict == nil {
			c.strict = &strictList{policy: rules.policy}
			q.strict[rules.policy] = c.strict
		}
		c.strict.classes = append(c.strict.classes, c)
	} else {
		q.buckets.add(c)
		if rules.preempts {
			q.preempting[c] = struct{}{}
		}
	}
	if rules.erratic {
		q.erratic++
	}
	return c
}

// Leave removes a job from the waiting list.
func (q *Queue) Leave(key types.NamespacedName) {
	if e := q.entries[key]; e != nil {
		q.remove(e)
	}
}

// remove removes an entry and its reservation. It drops the class if that is empty then.
func (q *Queue) remove(e *entry) {
	q.endReservation(e)
	delete(q.entries, e.Key())
	c := e.class
	first := c.remove(e)
	switch {
	case len(c.entries) == 0:
		q.drop(c)
	case first:
		q.await(c)
	}
}

// await makes the next pass decide about a class, because the first job of the class has changed.
func (q *Queue) await(c *class) {
	q.pending[c] = struct{}{}
	delete(q.overdue, c)
	if c.strict != nil {
		c.strict.dirty = true
	}
}

func (q *Queue) drop(c *class) {
	delete(q.classes, c.name)
	for _, set := range []map[*class]struct{}{q.pending, q.preempting, q.blocked, q.overdue} {
		delete(set, c)
	}
	if c.rules.erratic {
		q.erratic--
	}
	l := c.strict
	if l == nil {
		q.buckets.remove(c)
		return
	}
	at := slices.Index(l.classes, c)
	l.classes = slices.Delete(l.classes, at, at+1)
	l.dirty = true
	if l.holder == c {
		l.holder = nil
		// The next pass looks at the classes behind it.
		for _, other := range l.classes {
			q.pending[other] = struct{}{}
		}
	}
	if len(l.classes) == 0 {
		delete(q.strict, l.policy)
	}
}

// Next returns when a job is due for a reservation, the zero time if no job will be.
func (q *Queue) Next() time.Time {
	for len(q.timers) > 0 {
		if q.timers[0].isLive() {
			return q.timers[0].at
		}
		q.timers.pop()
	}
	return time.Time{}
}
