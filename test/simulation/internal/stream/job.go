// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package stream

import (
	"cmp"
	"fmt"
	"slices"
	"time"
)

// Pods are pods of a job that are alike.
type Pods struct {
	// Count of pods.
	Count int
	// GPUs and Millicores of CPU that each requests.
	GPUs, Millicores int
	// Products of GPUs on whose nodes the pods can run. Empty: all.
	Products []string
}

// Job is one gang.
type Job struct {
	// ID counts the jobs of a stream from 0.
	ID int
	// Name for people: the class, or the name in the trace.
	Name string
	// Submitted is when it arrives, since the beginning.
	Submitted time.Duration
	// Duration is how long it runs once all its pods do.
	Duration time.Duration
	// Priority, higher first.
	Priority int32
	// Pods are what must have a place at the same time.
	Pods []Pods
}

// GPUs of all pods together.
func (j *Job) GPUs() int {
	var gpus int
	for i := range j.Pods {
		gpus += j.Pods[i].Count * j.Pods[i].GPUs
	}
	return gpus
}

// Shape is equal for jobs with equal pods, and for no others.
func (j *Job) Shape() string {
	return fmt.Sprint(j.Pods)
}

// Sort puts jobs in the order in which they arrive, and numbers them.
func Sort(jobs []Job) {
	slices.SortStableFunc(jobs, func(a, b Job) int { return cmp.Compare(a.Submitted, b.Submitted) })
	for i := range jobs {
		jobs[i].ID = i
	}
}

// Work is what jobs take: GPUs times duration, in GPU seconds.
func Work(jobs []Job) float64 {
	var work float64
	for i := range jobs {
		work += float64(jobs[i].GPUs()) * jobs[i].Duration.Seconds()
	}
	return work
}

// Stretch changes the time between arrivals, so that the jobs offer a load to so many GPUs. The durations stay.
func Stretch(jobs []Job, load float64, gpus int) {
	if len(jobs) == 0 {
		return
	}
	first, last := jobs[0].Submitted, jobs[len(jobs)-1].Submitted
	span := Work(jobs) / (load * float64(gpus))
	if last == first || span == 0 {
		return
	}
	factor := span / (last - first).Seconds()
	for i := range jobs {
		jobs[i].Submitted = time.Duration(float64(jobs[i].Submitted-first) * factor)
	}
}
