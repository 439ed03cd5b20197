// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"
)

// position is the place of a pod in a job. Pods that replace each other have the same position.
type position struct {
	step       string // the replicated job, by the name that users know
	job, index int    // the index of the child Job, and the pod's index in it; -1: none
	name       string // the name of a pod without an index, because nothing says which pod it replaces
}

func (p position) compare(other position) int {
	return cmp.Or(cmp.Compare(p.step, other.step), cmp.Compare(p.job, other.job), cmp.Compare(p.index, other.index),
		cmp.Compare(p.name, other.name))
}

// slot is a position and its pods, present and past, of the present attempt.
type slot struct {
	current view
	// crashes counts ends in this slot: restarts of the current pod, and earlier pods that failed by themselves.
	crashes int32
	crash   string // describes the last crash
}

// survey returns the slots of a job's present attempt, sorted.
func survey(pods []*corev1.Pod) []slot {
	views := presentAttempt(pods)
	slices.SortFunc(views, func(a, b view) int {
		return cmp.Or(a.position.compare(b.position), cmp.Compare(a.created, b.created),
			cmp.Compare(a.liveness(), b.liveness()), cmp.Compare(a.name, b.name))
	})
	var slots []slot
	for i, v := range views {
		if i > 0 && views[i-1].position == v.position {
			slots[len(slots)-1].replace(v)
		} else {
			slots = append(slots, slot{current: v, crashes: v.crashes, crash: v.crash})
		}
	}
	return slots
}

// replace makes a younger pod the current pod of the slot.
func (p *slot) replace(v view) {
	p.current = v
	p.crashes += v.crashes
	if v.crash != "" {
		p.crash = v.crash
	}
}

// presentAttempt returns views of the pods, without pods of earlier attempts of the JobSet or of single Jobs.
func presentAttempt(pods []*corev1.Pod) []view {
	type job struct {
		step  string
		index int
	}
	views := make([]view, 0, len(pods))
	attempt, jobAttempts := 0, map[job]int{}
	for _, pod := range pods {
		v := viewOf(pod)
		views = append(views, v)
		attempt = max(attempt, v.attempt)
	}
	views = slices.DeleteFunc(views, func(v view) bool { return v.attempt < attempt })
	for _, v := range views {
		key := job{v.position.step, v.position.job}
		jobAttempts[key] = max(jobAttempts[key], v.jobAttempt)
	}
	return slices.DeleteFunc(views, func(v view) bool { return v.jobAttempt < jobAttempts[job{v.position.step, v.position.job}] })
}

// idle says whether no pod is ready, has succeeded or waits for a gate.
func idle(slots []slot) bool {
	return !slices.ContainsFunc(slots, func(p slot) bool { return p.current.ready || p.current.gated })
}

func unscheduled(slots []slot) bool {
	return slices.ContainsFunc(slots, func(p slot) bool { return p.current.unschedulable != "" })
}

func running(slots []slot) bool {
	return slices.ContainsFunc(slots, func(p slot) bool { return p.current.phase == corev1.PodRunning && !p.current.going })
}

func crashes(slots []slot) (sum int32) {
	for _, p := range slots {
		sum += p.crashes
	}
	return sum
}
