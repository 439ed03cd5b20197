// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/test/check"
)

// addedKeys is an inbox that records its keys.
type addedKeys []types.NamespacedName

func (r *addedKeys) Add(key types.NamespacedName) { *r = append(*r, key) }

// aCopy returns a copy of attempt 2 with failover Fenced and the challenge 1.1, with changes.
func aCopy(changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	job := &trainer.TrainJob{ObjectMeta: metav1.ObjectMeta{
		Namespace: "team", Name: "llm", UID: "first",
		Labels: map[string]string{v1alpha1.LabelHub: "hub", v1alpha1.LabelOriginUID: "origin"},
		Annotations: map[string]string{
			v1alpha1.AnnotationAttempt: "2", v1alpha1.AnnotationFailover: "Fenced", v1alpha1.AnnotationChallenge: "1.1",
		},
	}}
	for _, change := range changes {
		change(job)
	}
	return job
}

func annotated(key, value string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) { job.Annotations[key] = value }
}

func uid(uid types.UID) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) { job.UID = uid }
}

// TestGate has a hub that answers 1.1 at 0 s and 1.2 at 100 s, with a fenceAfter of 2 minutes.
func TestGate(t *testing.T) {
	cases := map[string]struct {
		reason string
		job    *trainer.TrainJob
		at     time.Duration
		open   bool
		why    string
		// waits: the hub's answer wakes the copy. stops: this replica stops the copy, or marks it as outdated.
		waits, stops bool
	}{
		"NoCopy": {
			reason: "What no hub has created is nobody's but the cluster's.",
			job:    aCopy(func(job *trainer.TrainJob) { job.Labels = nil }), open: true,
		},
		"Hold": {
			reason: "It stays where it is whatever becomes of the hub.",
			job:    aCopy(annotated(v1alpha1.AnnotationFailover, "Hold")), at: time.Hour, open: true,
		},
		"Fresh": {
			reason: "The hub was there a moment ago.",
			job:    aCopy(), at: time.Second, open: true,
		},
		"Silence": {
			reason: "The lease is Valid, but not for long.",
			job:    aCopy(), at: 61 * time.Second, why: "its hub has not answered this cluster's agent yet", waits: true,
		},
		"Late": {
			reason: "The hub is there, but may have given this creation up.",
			job:    aCopy(), at: 121 * time.Second, stops: true,
			why: "the request that created it took too long, or was sent before this cluster's agent started; the hub writes a new challenge on it",
		},
		"LateButStarted": {
			reason: "Its JobSet is made anew. When it was made first it came in time.",
			job:    aCopy(func(job *trainer.TrainJob) { job.Status.JobsStatus = []trainer.JobStatus{{Name: "node"}} }),
			at:     121 * time.Second, open: true,
		},
		"StartedAndSilent": {
			reason: "Whatever is made now would have to be stopped.",
			job:    aCopy(func(job *trainer.TrainJob) { job.Status.JobsStatus = []trainer.JobStatus{{Name: "node"}} }),
			at:     time.Hour, why: "its hub has not answered this cluster's agent yet", waits: true,
		},
		"Stopped": {
			reason: "The hub takes the mark off, nobody else.",
			job:    aCopy(annotated(v1alpha1.AnnotationFenced, "1.1")), at: time.Second,
			why: "it was stopped while its hub was silent; the hub resumes it",
		},
		"NoLease": {
			reason: "Nothing is known of this hub. It waits when the watch has shown it: TestUnknownHubsAreForgotten.",
			job:    aCopy(func(job *trainer.TrainJob) { job.Labels[v1alpha1.LabelHub] = "other" }), at: time.Second,
			why: "its hub has not answered this cluster's agent yet",
		},
		"OldAttempt": {
			reason: "Attempt 2 was seen.",
			job:    aCopy(uid("old"), annotated(v1alpha1.AnnotationAttempt, "1")), at: time.Second, stops: true,
			why: "this cluster has had a later attempt of its hub TrainJob; the hub deletes it",
		},
		"SecondCopy": {
			reason: "The job may be elsewhere since the first one was deleted. The hub decides.",
			job:    aCopy(uid("second")), at: time.Second, stops: true,
			why: "this cluster has had another copy of this attempt; the hub resumes this copy if it knows of it",
		},
		"SecondCopyOfHold": {
			reason: "The hub would not look at it again.",
			job:    aCopy(uid("second"), annotated(v1alpha1.AnnotationFailover, "Hold")), at: time.Second, open: true,
		},
		"OldAttemptOfHold": {
			reason: "That is the same for all.",
			job:    aCopy(uid("old"), annotated(v1alpha1.AnnotationAttempt, "1"), annotated(v1alpha1.AnnotationFailover, "Hold")), at: time.Second, stops: true,
			why: "this cluster has had a later attempt of its hub TrainJob; the hub deletes it",
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Now())
			start, fenceAfter := clock.Now(), 2*time.Minute
			var waiting, stops addedKeys
			tracker := newTracker(clock, inboxes{waiting: &waiting, stops: &stops, leases: &addedKeys{}})
			tracker.update("hub", func(h *hub, now time.Time) {
				h.replaced("lease")
				h.agent.Shown(protocol.Challenge{}, now)
				h.agent.Answered(protocol.Challenge{Run: 1, Number: 1}, fenceAfter, now)
				h.agent.Issued(protocol.Challenge{Run: 1, Number: 1}, now)
				h.agent.Answered(protocol.Challenge{Run: 1, Number: 1}, fenceAfter, now)
			})
			tracker.see(aCopy())
			answer := func(number int64, at time.Duration) {
				clock.SetTime(start.Add(at))
				tracker.update("hub", func(h *hub, now time.Time) {
					h.agent.Issued(protocol.Challenge{Run: 1, Number: number}, now)
					h.agent.Answered(protocol.Challenge{Run: 1, Number: number}, fenceAfter, now)
				})
			}
			if tc.at > 100*time.Second {
				answer(2, 100*time.Second)
			}
			clock.SetTime(start.Add(tc.at))
			open, why := (&Fencer{tracker: tracker}).Gate(tc.job)
			if open != tc.open || why != tc.why {
				t.Errorf("%s\ngot %t, %q\nwant %t, %q", tc.reason, open, why, tc.open, tc.why)
			}
			var wantStops addedKeys
			if tc.stops {
				wantStops = addedKeys{keyOf(tc.job)}
			}
			check.Diff(t, wantStops, stops, fmt.Sprintf("%s\ncopies to be stopped", tc.reason))
			if _, waits := tracker.hub(hubOf(tc.job)).waiting[keyOf(tc.job)]; waits != tc.waits {
				t.Errorf("%s\nwaits: got %t, want %t", tc.reason, waits, tc.waits)
			}
			if tc.waits && hubOf(tc.job) == "hub" {
				answer(3, tc.at+time.Second)
				check.Diff(t, addedKeys{keyOf(tc.job)}, waiting,
					"the hub has answered, and what has waited for that does not come back")
			}
		})
	}
}

// TestSecondCopyComesBack: the tracker wakes a copy that waits at Gate when the hub has seen the copy.
func TestSecondCopyComesBack(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	var waiting addedKeys
	tracker := newTracker(clock, inboxes{waiting: &waiting, stops: &addedKeys{}, leases: &addedKeys{}})
	tracker.update("hub", func(h *hub, now time.Time) {
		h.replaced("lease")
		h.agent.Answered(protocol.Challenge{}, time.Minute, now)
		for number := range int64(2) {
			h.agent.Issued(protocol.Challenge{Run: 1, Number: number + 1}, now)
			h.agent.Answered(protocol.Challenge{Run: 1, Number: number + 1}, time.Minute, now)
		}
	})
	watch := tracker.watcher()
	watch.OnAdd(aCopy(), true)
	watch.OnUpdate(aCopy(), aCopy(uid("second"))) // The watch did not show the deletion of the first one.
	if open, _ := (&Fencer{tracker: tracker}).Gate(aCopy(uid("second"))); open {
		t.Error("a second copy may start")
	}
	watch.OnUpdate(aCopy(uid("second")), aCopy(uid("second"), annotated(v1alpha1.AnnotationFenced, "1.1")))
	if len(waiting) > 0 {
		t.Error("a copy comes back before the hub has looked at it")
	}
	watch.OnUpdate(aCopy(uid("second")), aCopy(uid("second"), annotated(v1alpha1.AnnotationChallenge, "1.2")))
	check.Diff(t, addedKeys{keyOf(aCopy())}, waiting, "who comes back")
	if open, why := (&Fencer{tracker: tracker}).Gate(aCopy(uid("second"), annotated(v1alpha1.AnnotationChallenge, "1.2"))); !open {
		t.Errorf("the hub has resumed it, and it may not start: %s", why)
	}
}

func TestShut(t *testing.T) {
	if open, why := Shut(aCopy()); open || why == "" {
		t.Error("a copy that counts on an agent may start without one")
	}
	if open, _ := Shut(aCopy(annotated(v1alpha1.AnnotationFailover, "Hold"))); !open {
		t.Error("a copy that does not count on an agent may not start")
	}
	if open, _ := Shut(aCopy(func(job *trainer.TrainJob) { job.Labels = nil })); !open {
		t.Error("a TrainJob of the cluster's own may not start")
	}
}

// TestTakeOverFollowsTheWatch: the controller of copies may ask about a copy before the watch has shown it to the
// tracker, and the leader takes over only hubs with copies. A hub without a lease has nothing else that wakes it.
func TestTakeOverFollowsTheWatch(t *testing.T) {
	woken := addedKeys{}
	tracker := newTracker(clocktesting.NewFakePassiveClock(time.Now()), inboxes{waiting: &addedKeys{}, stops: &addedKeys{}, leases: &woken})
	defer tracker.lead()()
	writer := &leases{tracker: tracker}
	if _, mine := tracker.stopsFrom(aCopy()); mine {
		t.Error("the leader stops the copy before it has taken over its hub")
	}
	check.Equal(t, nothing, writer.task("hub", nil), "task while no copy is known")
	woken = nil
	tracker.watcher().OnAdd(aCopy(), false)
	check.Diff(t, addedKeys{{Name: "hub"}}, woken, "hubs that are woken when the watch shows the copy")
	check.Equal(t, takeOver, writer.task("hub", nil), "task when the copy is known")
}
