// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// explosive is an expression that panics over one worker, as long as it is armed.
type explosive struct {
	worker v1alpha1.ClusterName
	armed  bool
	tries  int
}

func (e *explosive) For(*dispatch.Job) func(*dispatch.Worker) (bool, error) {
	return func(w *dispatch.Worker) (bool, error) {
		if e.armed && w.Name == e.worker {
			e.tries++
			panic("index out of range")
		}
		return true, nil
	}
}

func (e *explosive) Reads(*dispatch.Worker) string { return "" }

// panicFleet has the fleet of a Decider, whose workers have nodes although nobody is connected.
type panicFleet struct{ *fleet }

func (f panicFleet) Workers() []dispatch.Worker {
	workers := append([]dispatch.Worker(nil), f.fleet.Workers()...)
	for i := range workers {
		if workers[i].NotReady == connecting {
			workers[i].NotReady = ""
			workers[i].Allocatable = dispatch.Resources{corev1.ResourceCPU: 8000}
			workers[i].Nodes = dispatch.NewNodes([]dispatch.NodeGroup{{Free: dispatch.Resources{corev1.ResourceCPU: 8000}, Count: 1}})
		}
	}
	return workers
}

// TestPanicOverOneWorker: the worker over which a decision panics is unknown for a while. The other workers get jobs in
// the same pass, each job once.
func TestPanicOverOneWorker(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	d := newDecider(clock)
	ready := v1alpha1.WorkerClusterStatus{Conditions: []metav1.Condition{{Type: v1alpha1.WorkerClusterReady, Status: metav1.ConditionTrue}}}
	d.fleet.refresh([]v1alpha1.WorkerCluster{
		{ObjectMeta: metav1.ObjectMeta{Name: "bad", UID: "1"}, Status: ready}, {ObjectMeta: metav1.ObjectMeta{Name: "good", UID: "2"}, Status: ready},
	})
	bad := &explosive{worker: "bad", armed: true}
	policies := []dispatch.Policy{{
		DispatchPolicy: &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "all"}}, Expression: bad,
	}}
	list := queue.New()
	stand := func(name string) {
		list.Enter(queue.Job{Class: name, Since: clock.Now(), Policies: policies, Job: dispatch.Job{
			UID: types.UID(name), Name: name, Namespace: "team", PodSets: []v1alpha1.PodSet{{Name: "node", Count: 1}},
		}})
	}
	pass := func() map[string]v1alpha1.ClusterName {
		placed := map[string]v1alpha1.ClusterName{}
		for _, o := range list.Pass(clock.Now(), panicFleet{d.fleet}) {
			if name := o.Job.Name; o.Decision.Cluster != "" {
				if placed[name] != "" {
					t.Errorf("job %s is placed twice", name)
				}
				placed[name] = o.Decision.Cluster
			}
		}
		return placed
	}
	for _, name := range []string{"a", "b", "c"} {
		stand(name)
	}
	if placed := pass(); placed["a"] != "good" || placed["b"] != "good" || placed["c"] != "good" {
		t.Errorf("placed are %v, want all jobs on the good worker", placed)
	}
	if bad.tries != 1 {
		t.Errorf("a decision has panicked %d times, want once", bad.tries)
	}
	doubts := d.fleet.losses.doubts()
	if why := doubts["bad"].why; len(doubts) != 1 || !strings.Contains(why, "index out of range") || len(doubts["bad"].stack) == 0 {
		t.Errorf("told is %q with a stack of %d bytes about %d workers", why, len(doubts["bad"].stack), len(doubts))
	}
	if next := d.fleet.losses.next(); !next.Equal(clock.Now().Add(lostAtFirst)) {
		t.Errorf("the worker is tried again at %s", next)
	}

	clock.Step(lostAtFirst)
	d.fleet.outdate("bad")
	stand("d")
	if placed := pass(); placed["d"] != "good" || bad.tries != 2 {
		t.Errorf("after a minute placed is %v, and a decision has panicked %d times; want twice", placed, bad.tries)
	}
	clock.Step(lostAtFirst)
	if d.fleet.losses.why("bad") == "" {
		t.Error("the worker is tried again after a minute, want two")
	}
	clock.Step(lostAtFirst)
	bad.armed = false
	if doubts := d.fleet.losses.doubts(); len(doubts) != 1 || doubts["bad"].why != "" {
		t.Errorf("told is %v, want that the worker is known again", doubts)
	}
}

// TestPanicWhileCounting: what one worker has is counted under the lock of all.
func TestPanicWhileCounting(t *testing.T) {
	// Asking no Connections panics.
	f := newFleet(Options{Clock: clocktesting.NewFakeClock(time.Unix(1000, 0))}, newAssignments())
	if got := f.freeNodes("bad"); got != nil || !strings.Contains(f.losses.why("bad"), "nil pointer") {
		t.Errorf("the free nodes are %v, and the worker is lost because of %q", got, f.losses.why("bad"))
	}
	if got := f.freeNodes("bad"); got != nil {
		t.Errorf("the free nodes are %v, want none while the worker is lost", got)
	}
}
