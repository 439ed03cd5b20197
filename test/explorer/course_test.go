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
