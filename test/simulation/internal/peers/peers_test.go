// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package peers

import (
	"testing"
	"time"

	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

func mixed(workers int) *world.World {
	specs := make([]world.WorkerSpec, workers)
	for i := range specs {
		specs[i] = world.WorkerSpec{Name: "w", Groups: []world.GroupSpec{
			{Product: "A100", Nodes: 2, GPUs: 4, Millicores: 1000}, {Product: "L4", Nodes: 1, GPUs: 4, Millicores: 1000},
			{Product: "A100", Nodes: 1, GPUs: 8, Millicores: 1000},
		}}
	}
	return world.New(specs, nil, world.Options{})
}

// TestQuotas: quota is the sum over the nodes of a product, and each kind of pods has one flavor.
func TestQuotas(t *testing.T) {
	q := newQuotas(mixed(1).Workers())
	job := func(pods ...stream.Pods) *stream.Job { return &stream.Job{ID: 1, Pods: pods} }
	for name, tc := range map[string]struct {
		reason string
		job    *stream.Job
		want   bool
	}{
		"BySum":    {reason: "A100 has 16, on whatever nodes", want: true, job: job(stream.Pods{Count: 2, GPUs: 8, Products: []string{"A100"}})},
		"TooMuch":  {reason: "A100 has 16", job: job(stream.Pods{Count: 17, GPUs: 1, Products: []string{"A100"}})},
		"OneEach":  {reason: "pods of one kind do not span flavors", job: job(stream.Pods{Count: 5, GPUs: 4})},
		"TwoKinds": {reason: "two kinds may", want: true, job: job(stream.Pods{Count: 4, GPUs: 4}, stream.Pods{Count: 1, GPUs: 4})},
		"CPU":      {reason: "A100 has 3 cores", job: job(stream.Pods{Count: 1, Millicores: 3001, Products: []string{"A100"}})},
		"Product":  {reason: "there is no such flavor", job: job(stream.Pods{Count: 1, GPUs: 1, Products: []string{"H100"}})},
	} {
		t.Run(name, func(t *testing.T) {
			before := q.workers[0][0].left
			check.Equal(t, tc.want, q.fits(0, tc.job), "%s: fits", tc.reason)
			check.Equal(t, before, q.workers[0][0].left, "asking took quota")
		})
	}
	all := job(stream.Pods{Count: 16, GPUs: 1, Products: []string{"A100"}})
	q.take(0, all)
	if q.fits(0, job(stream.Pods{Count: 1, GPUs: 1, Products: []string{"A100"}})) {
		t.Error("a worker without quota admits a job")
	}
	q.give(0, all)
	if got := q.workers[0][0].left; got != (world.Room{GPUs: 16, Millicores: 3000}) {
		t.Errorf("after all is given back %+v is left", got)
	}
}

// TestRounds: three more workers are nominated every five minutes, until all are.
func TestRounds(t *testing.T) {
	r := rounds{step: 3, workers: 7, begun: map[int]time.Duration{}}
	job := &stream.Job{ID: 4}
	r.begin(job, time.Minute)
	var nominated []int
	var times []time.Duration
	for at := r.next(); at != world.Never; at = r.next() {
		times = append(times, at)
		nominated = append(nominated, r.nominated(job, at-1), r.nominated(job, at))
		if !r.pass(at) {
			t.Errorf("nobody was nominated at %v", at)
		}
	}
	check.Diff(t, []time.Duration{6 * time.Minute, 11 * time.Minute}, times, "rounds")
	check.Diff(t, []int{3, 6, 6, 9}, nominated, "nominated before and after each round")
	r.begin(&stream.Job{ID: 5}, time.Hour)
	r.end(&stream.Job{ID: 5})
	check.Equal(t, world.Never, r.next(), "a job that is placed has another round")
}

// TestLine: priority comes before age, and jobs that are alike are in one group.
func TestLine(t *testing.T) {
	l := waitingList{groups: map[alike]*group{}}
	pods := []stream.Pods{{Count: 1, GPUs: 1}}
	for _, j := range []stream.Job{
		{ID: 0, Pods: pods}, {ID: 1, Pods: []stream.Pods{{Count: 1, GPUs: 2}}}, {ID: 2, Pods: pods}, {ID: 3, Pods: pods, Priority: 5},
	} {
		l.add(&j)
	}
	if len(l.order) != 3 {
		t.Errorf("there are %d groups, want 3", len(l.order))
	}
	var order []int
	for g := l.first(); g != nil; g = l.first() {
		order = append(order, g.jobs[0].ID)
		g.pop()
	}
	check.Diff(t, []int{3, 0, 1, 2}, order, "order")
}
