// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package explorer

import (
	"testing"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/explorer/world"
)

// TestAttemptsCountedAnew runs a sequence that chance seldom finds. Somebody deletes the Dispatch of a job that waits
// after some attempts, while no manager works. So nobody on the hub knows the last attempt. The agents know it, and run
// no lower attempt.
func TestAttemptsCountedAnew(t *testing.T) {
	for _, failover := range []v1alpha1.Failover{v1alpha1.FailoverFenced, v1alpha1.FailoverHold} {
		t.Run(string(failover), func(t *testing.T) {
			elapse := func(d time.Duration) world.Action { return world.Action{Op: world.Elapse, For: d} }
			course := []world.Action{
				elapse(40 * time.Second), // The agents are known.
				{Op: world.Create, Key: "a", What: string(failover), For: 5 * time.Minute},
				elapse(20 * time.Second),
			}
			workers := []string{"w1", "w2"} // The world of this seed has two.
			var deleteCopies []world.Action
			for _, worker := range workers {
				deleteCopies = append(deleteCopies, world.Action{Op: world.DeleteCopy, Who: worker, Key: "a"})
			}
			for range 3 {
				course = append(append(course, deleteCopies...), elapse(20*time.Second))
			}
			for _, worker := range workers {
				course = append(course, world.Action{Op: world.Cordon, Who: worker})
			}
			course = append(append(course, deleteCopies...), elapse(20*time.Second),
				world.Action{Op: world.Crash, Who: "m1"}, world.Action{Op: world.DeleteDispatch, Key: "a"})
			c := Replay(t.Context(), Plan{Seed: 1}, course, nil)
			if c.Violation != "" {
				t.Errorf("%s\n%s", c.Violation, Story(t.Context(), c))
			}
			if c.Seen["CopyDeleted"+string(failover)] < 2 {
				t.Errorf("there were too few attempts: %v", c.Seen)
			}
		})
	}
}

// TestTrialBeforePreemption runs sequences in which a job of higher priority needs the room of another: the other is
// stopped once its worker has said that it takes the first, and stays while the worker cannot be asked.
func TestTrialBeforePreemption(t *testing.T) {
	elapse := func(d time.Duration) world.Action { return world.Action{Op: world.Elapse, For: d} }
	workers := []string{"w1", "w2"} // The world of this seed has two.
	begin := []world.Action{
		elapse(40 * time.Second),
		{Op: world.Create, Key: "a", What: string(v1alpha1.FailoverHold), For: 5 * time.Minute},
		{Op: world.Create, Key: "bb", What: string(v1alpha1.FailoverHold), For: 5 * time.Minute},
		elapse(20 * time.Second),
	}
	outrank := []world.Action{
		{Op: world.Outrank, Key: "c", What: string(v1alpha1.FailoverHold), For: 5 * time.Minute}, elapse(20 * time.Second),
	}
	var foreign []world.Action
	for _, worker := range workers {
		foreign = append(foreign, world.Action{Op: world.Foreign, Who: worker, Key: "c"})
	}
	for name, tc := range map[string]struct {
		reason  string
		given   []world.Action
		broken  world.Broken
		stopped bool
		fails   bool
	}{
		"Accepted": {reason: "the worker takes the job", stopped: true},
		"Refused":  {reason: "no worker takes the job until the others of its name are deleted, at the end", given: foreign, stopped: true},
		"NotAsked": {reason: "the ledger finds a preemption without a question", broken: world.Broken{NoTrials: true}, stopped: true, fails: true},
	} {
		t.Run(name, func(t *testing.T) {
			course := append(append(append([]world.Action{}, begin...), tc.given...), outrank...)
			c := Replay(t.Context(), Plan{Seed: 1, Broken: tc.broken}, course, nil)
			if (c.Violation != "") != tc.fails {
				t.Errorf("%s: the violation is %q\n%s", tc.reason, c.Violation, Story(t.Context(), c))
			}
			if got := c.Seen["Preempting"] > 0; got != tc.stopped {
				t.Errorf("%s: a job was stopped: %t, want %t: %v\n%s", tc.reason, got, tc.stopped, c.Seen, Story(t.Context(), c))
			}
		})
	}
}

// TestJobThatChangesBeforeItsCopy runs a sequence that chance seldom finds: a user changes a job that is placed and has
// no copy yet, because the hub does not reach its worker. The attempt ends, and the job gets a copy in the next attempt.
func TestJobThatChangesBeforeItsCopy(t *testing.T) {
	elapse := func(d time.Duration) world.Action { return world.Action{Op: world.Elapse, For: d} }
	links := func(op world.Op) []world.Action {
		return []world.Action{{Op: op, Who: "m1", What: "w1"}, {Op: op, Who: "m1", What: "w2"}}
	}
	course := append([]world.Action{elapse(40 * time.Second)}, links(world.Cut)...) // The workers are known.
	course = append(course,
		world.Action{Op: world.Create, Key: "a", What: string(v1alpha1.FailoverHold), For: time.Minute}, elapse(time.Second),
		world.Action{Op: world.Relabel, Key: "a"})
	course = append(append(course, links(world.Mend)...), elapse(3*time.Minute))
	c := Replay(t.Context(), Plan{Seed: 1}, course, nil)
	if c.Violation != "" {
		t.Errorf("%s\n%s", c.Violation, Story(t.Context(), c))
	}
	outcome := string(v1alpha1.OutcomeJobChanged) + string(v1alpha1.FailoverHold)
	if c.Seen[outcome] != 1 || c.Seen["Complete"+string(v1alpha1.FailoverHold)] != 1 {
		t.Errorf("want one attempt that ends as JobChanged, and one that completes the job: %v", c.Seen)
	}
}
