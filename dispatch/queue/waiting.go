// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"cmp"
	"maps"
	"slices"
	"sort"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Waiting sums up the jobs of one policy on the waiting list.
type Waiting struct {
	// Policy is the name of the DispatchPolicy, empty for jobs without one.
	Policy string
	// Jobs is how many jobs wait, by reason. Jobs that no pass has decided about have the reason "".
	Jobs map[string]int
	// Devices is what the jobs request of extended resources, such as nvidia.com/gpu. Initializers do not count: they run
	// before the other pods.
	Devices dispatch.Resources
	// First is since when the first job in order waits. Oldest is the earliest such time among the first jobs of all
	// classes.
	First, Oldest time.Time
}

// Waiting sums up the waiting list by policy, sorted by name. It takes time for each class, and none for the jobs
// behind the first one of a class.
func (q *Queue) Waiting() []Waiting {
	sums := map[string]*Waiting{}
	first := map[string]*entry{}
	for _, c := range q.classes {
		name, head := c.rules.policy, c.head()
		sum := sums[name]
		if sum == nil {
			sum = &Waiting{Policy: name, Jobs: map[string]int{}, Devices: dispatch.Resources{}, Oldest: head.Since}
			sums[name], first[name] = sum, head
		}
		c.countReasons(sum.Jobs)
		for device, amount := range devicesOf(head.PodSets) {
			sum.Devices[device] += amount * int64(len(c.entries))
		}
		if head.isBefore(first[name]) {
			first[name] = head
		}
		if head.Since.Before(sum.Oldest) {
			sum.Oldest = head.Since
		}
	}
	for name, sum := range sums {
		sum.First = first[name].Since
	}
	byPolicy := func(a, b *Waiting) int { return cmp.Compare(a.Policy, b.Policy) }
	list := make([]Waiting, 0, len(sums))
	for _, sum := range slices.SortedFunc(maps.Values(sums), byPolicy) {
		list = append(list, *sum)
	}
	return list
}

// countReasons adds what Answer says about the jobs of a class. A reservation of a job behind the first one is not
// looked up: it counts as Queued.
func (c *class) countReasons(jobs map[string]int) {
	// own is the number of jobs that no job of another class holds back. They are before the others.
	own := sort.Search(len(c.entries), func(i int) bool { return c.strict.holds(c, &c.entries[i].Job) })
	if held := len(c.entries) - own; held > 0 {
		jobs[v1alpha1.ReasonQueued] += held
	}
	if own == 0 {
		return
	}
	reason := ""
	if c.reported.entry != nil {
		reason = c.answer.Reason
	}
	jobs[reason]++
	if holdsBack(reason) {
		reason = v1alpha1.ReasonQueued
	}
	if own > 1 {
		jobs[reason] += own - 1
	}
}

// devicesOf returns what a gang requests of extended resources.
func devicesOf(podSets []v1alpha1.PodSet) dispatch.Resources {
	devices := dispatch.Resources{}
	for i := range podSets {
		set := &podSets[i]
		if dispatch.PhaseOf(set) == 0 {
			continue
		}
		for name, quantity := range set.Requests {
			if dispatch.IsExtended(name) && !quantity.IsZero() {
				devices[name] += quantity.Value() * int64(set.Count)
			}
		}
	}
	return devices
}

// First returns the first jobs in order that wait for room, one of each class, and at most limit. They are copies,
// which the caller may use while the list changes.
func (q *Queue) First(limit int) []Job {
	var heads []*entry
	for _, c := range q.classes {
		if c.reported.entry != nil && holdsBack(c.answer.Reason) {
			heads = append(heads, c.head())
		}
	}
	slices.SortFunc(heads, inOrder)
	jobs := make([]Job, min(limit, len(heads)))
	for i := range jobs {
		jobs[i] = heads[i].Job
	}
	return jobs
}
