// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package soak

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// lane is a sequence of faults.
type lane string

const hubLane lane = "hub"

// fault is one thing that breaks.
type fault struct {
	lane lane
	kind string
	at   time.Duration
	last time.Duration
}

// String names the fault.
func (f fault) String() string {
	return fmt.Sprintf("%6.1fs %-5s %-18s for %.1fs", f.at.Seconds(), f.lane, f.kind, f.last.Seconds())
}

// kind is a kind of fault: how often it is drawn, and for how long it lasts.
type kind struct {
	name   string
	weight int
	least  time.Duration
	most   time.Duration
}

// cutOff is long enough for jobs to be placed again.
const cutOff = 45 * time.Second

var workerKinds = []kind{
	{"hang", 2, 2 * time.Second, 20 * time.Second},
	{"slow", 2, 2 * time.Second, 15 * time.Second},
	{"narrow", 1, 2 * time.Second, 15 * time.Second},
	{"reset", 1, time.Second, 10 * time.Second},
	{"refuse", 2, time.Second, 20 * time.Second},
	{"blackhole", 3, 2 * time.Second, cutOff},
	{"throttled", 1, 2 * time.Second, 15 * time.Second},
	{"errors", 1, 2 * time.Second, 15 * time.Second},
	{"watches-dropped", 1, 5 * time.Second, 15 * time.Second},
	{"gone", 1, 5 * time.Second, 15 * time.Second},
	{"server-paused", 1, 2 * time.Second, 20 * time.Second},
	{"server-killed", 1, time.Second, 10 * time.Second},
	{"etcd-killed", 1, time.Second, 10 * time.Second},
	{"agent-killed", 2, time.Second, time.Second},
	{"copies-deleted", 1, time.Second, time.Second},
	{"copies-suspended", 1, time.Second, time.Second},
	{"cordoned", 1, 5 * time.Second, 15 * time.Second},
	{"drained", 1, 10 * time.Second, 20 * time.Second},
}

var hubKinds = []kind{
	{"manager-killed", 4, time.Second, time.Second},
	{"manager-paused", 2, 5 * time.Second, 12 * time.Second},
	{"hang", 1, 2 * time.Second, 10 * time.Second},
	{"slow", 1, 2 * time.Second, 10 * time.Second},
	{"reset", 1, time.Second, 5 * time.Second},
	{"server-killed", 1, time.Second, 5 * time.Second},
	{"etcd-paused", 1, time.Second, 6 * time.Second},
	{"dispatches-deleted", 1, time.Second, time.Second},
}

// draw draws a kind.
func draw(r *rand.Rand, kinds []kind) kind {
	total := 0
	for _, k := range kinds {
		total += k.weight
	}
	n := r.IntN(total)
	for _, k := range kinds {
		if n -= k.weight; n < 0 {
			return k
		}
	}
	panic("unreachable")
}

// faultsOf are the faults of a lane, one after the other, until the time is over.
func faultsOf(seed uint64, l lane, number uint64, duration time.Duration) []fault {
	r := rand.New(rand.NewPCG(seed, number))
	kinds := workerKinds
	if l == hubLane {
		kinds = hubKinds
	}
	var faults []fault
	at := between(r, 2*time.Second, 8*time.Second)
	for at < duration {
		k := draw(r, kinds)
		f := fault{lane: l, kind: k.name, at: at, last: between(r, k.least, k.most)}
		f.last = min(f.last, duration-at)
		faults = append(faults, f)
		at += f.last + between(r, 3*time.Second, 15*time.Second)
	}
	return faults
}

func between(r *rand.Rand, least, most time.Duration) time.Duration {
	return least + time.Duration(r.Float64()*float64(most-least))
}

// shape is a job.
type shape struct {
	nodes    int32
	runFor   time.Duration
	failover v1alpha1.Failover // empty: what the policy without a choice does
	fails    bool
	slowEnd  bool // its pods go on for a second when they are deleted
	// deletedAfter and suspendedAfter: what its user does; zero: nothing.
	deletedAfter, suspendedAfter time.Duration
}

// jobs draws one job after the other.
type jobs struct{ r *rand.Rand }

func newJobs(seed uint64) *jobs { return &jobs{r: rand.New(rand.NewPCG(seed, 1<<32))} }

func (j *jobs) next() shape {
	s := shape{nodes: int32(1 + j.r.IntN(2)), runFor: between(j.r, 500*time.Millisecond, 8*time.Second)}
	switch n := j.r.IntN(10); {
	case n < 3:
		s.failover = v1alpha1.FailoverHold
	case n < 4:
		s.failover = v1alpha1.FailoverImmediate
	}
	switch n := j.r.IntN(20); {
	case n == 0:
		s.fails = true
	case n < 3:
		s.deletedAfter = between(j.r, 100*time.Millisecond, 6*time.Second)
	case n < 5:
		s.suspendedAfter = between(j.r, 100*time.Millisecond, 4*time.Second)
	}
	s.slowEnd = j.r.IntN(4) == 0
	return s
}
