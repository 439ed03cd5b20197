// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package yard

import (
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/simulation/internal/stream"
	"github.com/trainyard/trainyard/test/simulation/internal/world"
)

// observed looks at the fleet whenever a job has left a worker, and before each decision.
type observed struct {
	*System
	seen []state
}

// state of the only worker.
type state struct {
	At       time.Duration
	Free     int64
	Assigned int
	Victims  int
	Evicting bool
}

func (o *observed) Decide() {
	o.System.Decide()
	w := o.fleet.Workers()[0]
	o.seen = append(o.seen, state{
		At: o.world.Now(), Free: w.Nodes.Free(gpu), Assigned: w.Assigned, Victims: len(o.fleet.Occupancy(w.Name).Victims()),
		Evicting: o.fleet.Evicting("1") != "",
	})
}

// TestFleet: dispatch sees what is on a worker, while a job is placed, stopped for another job, and after its end.
func TestFleet(t *testing.T) {
	pods := []stream.Pods{{Count: 1, GPUs: 4, Millicores: 500, Products: []string{"A100", "L4"}}}
	jobs := []stream.Job{
		{ID: 0, Duration: 100 * time.Second, Pods: pods}, {ID: 1, Submitted: 10 * time.Second, Duration: 50 * time.Second, Priority: 1, Pods: pods},
	}
	w := world.New([]world.WorkerSpec{{Name: "w", Groups: []world.GroupSpec{{Product: "A100", Nodes: 1, GPUs: 6, Millicores: 1000}}}}, jobs,
		world.Options{Grace: 5 * time.Second})
	ticks := 0
	clock := func() time.Time { ticks++; return began.Add(time.Duration(ticks) * time.Second) }
	o := &observed{System: New(w, v1alpha1.DispatchPolicySpec{Preemption: v1alpha1.PreemptLowerPriority}, clock)}
	w.Run(o)
	want := []state{
		{At: 0, Free: 2, Assigned: 1, Victims: 1},
		{At: 10 * time.Second, Free: 2, Assigned: 1, Evicting: true},
		{At: 15 * time.Second, Free: 2, Assigned: 1, Victims: 1},
		{At: 65 * time.Second, Free: 2, Assigned: 1, Victims: 1},
		{At: 100 * time.Second, Free: 2, Assigned: 1, Victims: 1}, // When the first job would have ended, had it not been stopped.
		{At: 165 * time.Second, Free: 6},
	}
	check.Diff(t, want, o.seen, "what dispatch saw")
	if e := o.Effort(); e.Placed != 3 || e.Answered == 0 || e.Took != time.Duration(e.Passes)*time.Second {
		t.Errorf("effort is %+v", e)
	}
}

// TestWithout: the room that dispatch expects without a job is the room that is free when the job is gone.
func TestWithout(t *testing.T) {
	jobs := []stream.Job{{ID: 0, Duration: time.Second, Pods: []stream.Pods{{Count: 3, GPUs: 2}}}}
	w := world.New([]world.WorkerSpec{{Name: "w", Groups: []world.GroupSpec{{Product: "A100", Nodes: 2, GPUs: 8, Millicores: 1000}}}}, jobs,
		world.Options{})
	f := newFleet(w)
	w.Place(&jobs[0], 0)
	f.touch(0)
	o := f.Occupancy("w")
	check.Diff(t, f.Empty("w").Groups(), o.Without([]types.UID{"0"}).Groups(), "without the only job")
	check.Diff(t, f.Workers()[0].Nodes.Groups(), o.Without(nil).Groups(), "without nobody")
	if got := podSetsOf(&jobs[0]); dispatch.FromList(got[0].Requests)[gpu] != 2 || got[0].Count != 3 {
		t.Errorf("the demand is %+v", got)
	}
}
