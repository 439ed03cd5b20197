// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/test/check"
)

// The tests of this file do what a user of a namespace can do who may write TrainJobs, with labels and annotations, on
// a worker without an admission policy.

// trackerOf returns the tracker of a worker whose hub has just answered, and the keys that the tracker wakes.
func trackerOf() (tracker *tracker, waiting, stops *addedKeys) {
	waiting, stops = &addedKeys{}, &addedKeys{}
	tracker = newTracker(clocktesting.NewFakePassiveClock(time.Now()), inboxes{waiting: waiting, stops: stops, leases: &addedKeys{}})
	answer(tracker, "hub")
	return tracker, waiting, stops
}

// answer creates a hub's lease if there is none, and answers the challenge 1.1 for the hub.
func answer(tracker *tracker, id string) {
	tracker.update(id, func(h *hub, now time.Time) {
		h.replaced("lease")
		h.agent.Answered(protocol.Challenge{}, time.Minute, now)
		h.agent.Issued(protocol.Challenge{Run: 1, Number: 1}, now)
		h.agent.Answered(protocol.Challenge{Run: 1, Number: 1}, time.Minute, now)
	})
}

func labelled(key, value string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) { job.Labels[key] = value }
}

func named(namespace, name string) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) { job.Namespace, job.Name = namespace, name }
}

func TestForgedMarksOfAnotherNamespace(t *testing.T) {
	later := annotated(v1alpha1.AnnotationAttempt, "1000")
	for name, forged := range map[string]*trainer.TrainJob{
		"Namespace": aCopy(uid("forged"), later, named("other", "llm")),
		"Name":      aCopy(uid("forged"), later, named("team", "other")),
		"Hub":       aCopy(uid("forged"), later, labelled(v1alpha1.LabelHub, "other")),
	} {
		t.Run(name, func(t *testing.T) {
			tracker, _, _ := trackerOf()
			watch := tracker.watcher()
			watch.OnAdd(aCopy(), true)
			watch.OnAdd(forged, false)
			watch.OnDelete(forged)
			if open, why := (&Fencer{tracker: tracker}).Gate(aCopy()); !open {
				t.Errorf("the copy may not start because of the TrainJob %s/%s: %s", forged.Namespace, forged.Name, why)
			}
			if later := tracker.later(aCopy()); later != 0 {
				t.Errorf("the hub would be told of attempt %d, which the hub has never given", later)
			}
		})
	}
}

func TestAttemptsAreReadAsTheHubReadsThem(t *testing.T) {
	for text, want := range map[string]int64{
		"1": 1, "2147483647": 1<<31 - 1, "2147483648": 0, "9223372036854775807": 0,
		"-1": 0, "0": 0, "": 0, "1.5": 0, "two": 0,
	} {
		check.Equal(t, want, attemptOf(aCopy(annotated(v1alpha1.AnnotationAttempt, text))), "attempt %q", text)
	}
}

// TestAttemptIsSetBack: somebody changes the attempt on a copy, and the hub changes it back. The copy runs on.
func TestAttemptIsSetBack(t *testing.T) {
	tracker, _, _ := trackerOf()
	watch, raised := tracker.watcher(), aCopy(annotated(v1alpha1.AnnotationAttempt, "2147483647"))
	watch.OnAdd(aCopy(), true)
	watch.OnUpdate(aCopy(), raised)
	watch.OnUpdate(raised, aCopy())
	if open, why := (&Fencer{tracker: tracker}).Gate(aCopy()); !open {
		t.Errorf("the copy may not start: %s", why)
	}
	check.Equal(t, 0, tracker.later(aCopy()), "the hub would be told of attempt")
}

// TestChangedMarksLeaveNothing: a copy names another job again and again. The tracker keeps nothing of the earlier
// jobs.
func TestChangedMarksLeaveNothing(t *testing.T) {
	tracker, _, _ := trackerOf()
	watch, last := tracker.watcher(), aCopy()
	watch.OnAdd(last, true)
	for number := range 10_000 {
		id := fmt.Sprint("forged-", number)
		next := aCopy(labelled(v1alpha1.LabelOriginUID, id), labelled(v1alpha1.LabelHub, id))
		watch.OnUpdate(last, next)
		last = next
	}
	check.Diff(t, []string{hubOf(last), "hub"}, sortedKeys(tracker.hubs), "hubs that are known")
	check.Diff(t, []string{hubOf(last)}, sortedKeys(tracker.copies), "hubs with copies")
	watch.OnUpdate(last, aCopy(func(job *trainer.TrainJob) { job.Labels = nil }))
	if len(tracker.copies) > 0 {
		t.Errorf("a TrainJob that nothing marks is taken for a copy of %v", sortedKeys(tracker.copies))
	}
}

// TestMarksThatComeBack: a user removes the marks of a copy, and the hub restores them. The tracker wakes the copy.
func TestMarksThatComeBack(t *testing.T) {
	bare := aCopy(func(job *trainer.TrainJob) { job.Labels = nil })
	if !news().Update(event.UpdateEvent{ObjectOld: bare, ObjectNew: aCopy()}) {
		t.Error("nobody would stop it when its hub is silent")
	}
	if news().Update(event.UpdateEvent{ObjectOld: aCopy(), ObjectNew: aCopy()}) {
		t.Error("nothing has changed")
	}
}

func TestUnknownHubsAreForgotten(t *testing.T) {
	tracker, waiting, _ := trackerOf()
	watch := tracker.watcher()
	job := aCopy(labelled(v1alpha1.LabelHub, "new"), named("team", "early"))
	// The cache can show a copy before the watch does.
	if open, _ := (&Fencer{tracker: tracker}).Gate(job); open {
		t.Error("it may start, and nothing is known of its hub")
	}
	if len(tracker.hubs) != 1 {
		t.Errorf("hubs that are known without a copy: %v", sortedKeys(tracker.hubs))
	}
	watch.OnAdd(job, false)
	answer(tracker, "new")
	tracker.update("new", func(h *hub, now time.Time) {
		h.agent.Issued(protocol.Challenge{Run: 1, Number: 2}, now)
		h.agent.Answered(protocol.Challenge{Run: 1, Number: 2}, time.Minute, now)
	})
	check.Diff(t, addedKeys{keyOf(job)}, *waiting, "the hub has a lease now, and the copy does not come back")
	watch.OnDelete(job)
	for number := range 1000 {
		forged := aCopy(labelled(v1alpha1.LabelHub, fmt.Sprint("forged-", number)), uid(types.UID(fmt.Sprint(number))))
		watch.OnAdd(forged, false)
		_, _ = (&Fencer{tracker: tracker}).Gate(forged)
		_, _ = tracker.stopsFrom(forged)
		watch.OnDelete(forged)
		_ = tracker.decide(forged, protocol.Copy{})
	}
	// The tracker keeps answered challenges until they expire, and never uses the number of a challenge twice.
	check.Diff(t, []string{"hub", "new"}, sortedKeys(tracker.hubs), "hubs that are known when all copies are gone")
}

func TestUnknownHubsHaveNoMetrics(t *testing.T) {
	tracker, _, _ := trackerOf()
	shown.Store(tracker)
	t.Cleanup(func() { shown.Store(nil) })
	watch := tracker.watcher()
	for number := range 1000 {
		id := fmt.Sprint("forged-", number)
		watch.OnAdd(aCopy(labelled(v1alpha1.LabelHub, id), named("team", id)), false)
	}
	got := gathered(t)
	check.Equal(t, 1000, got["unknown_hubs"], "hubs that never had a lease")
	for name := range got {
		if strings.Contains(name, "forged") {
			t.Errorf("somebody who can write labels has made the metric %s", name)
		}
	}
	check.Equal(t, "unknown", tracker.name("forged-1"), "a copy that is stopped would be counted for hub")
	check.Equal(t, "hub", tracker.name("hub"), "a copy of the hub would be counted for hub")
}

func sortedKeys[V any](of map[string]V) []string {
	return slices.Sorted(maps.Keys(of))
}

// TestMetrics has a hub that answers at 0 s, with a fenceAfter of 100 s.
func TestMetrics(t *testing.T) {
	clock := clocktesting.NewFakePassiveClock(time.Now())
	tracker := newTracker(clock, inboxes{waiting: &addedKeys{}, stops: &addedKeys{}, leases: &addedKeys{}})
	shown.Store(tracker)
	t.Cleanup(func() { shown.Store(nil) })
	tracker.update("hub", func(h *hub, now time.Time) {
		h.replaced("uid")
		h.written, h.failed = 3, 1
		h.agent.Answered(protocol.Challenge{}, 100*time.Second, now)
		h.agent.Issued(protocol.Challenge{Run: 1, Number: 3}, now)
		h.agent.Answered(protocol.Challenge{Run: 1, Number: 3}, 100*time.Second, now)
	})
	tracker.update("gone", func(h *hub, _ time.Time) { // This hub has neither a lease nor copies.
		h.replaced("uid")
		h.replaced("")
		h.written = 1
	})
	cases := map[string]struct {
		at   time.Duration
		want map[string]float64
	}{
		"Valid": {at: 30 * time.Second, want: map[string]float64{
			"lease_state hub Valid": 1, "lease_state hub Expired": 0, "lease_state hub Pending": 0,
			"lease_remaining_seconds hub": 70, "challenges_written_total hub": 3, "challenges_failed_total hub": 1,
			"unknown_hubs": 0,
		}},
		"Expired": {at: 101 * time.Second, want: map[string]float64{
			"lease_state hub Valid": 0, "lease_state hub Expired": 1, "lease_state hub Pending": 0,
			"lease_remaining_seconds hub": -1, "challenges_written_total hub": 3, "challenges_failed_total hub": 1,
			"unknown_hubs": 0,
		}},
	}
	start := clock.Now()
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			clock.SetTime(start.Add(tc.at))
			check.Diff(t, tc.want, gathered(t), "metrics")
		})
	}
}

// gathered returns the metrics of fencing, without the counters of stopped copies, by name and labels.
func gathered(t *testing.T) map[string]float64 {
	t.Helper()
	families, err := metrics.Registry.Gather()
	check.Must(t, err)
	got := map[string]float64{}
	for _, family := range families {
		name, ours := strings.CutPrefix(family.GetName(), "trainyard_fencing_")
		if !ours || name == "copies_stopped_total" {
			continue
		}
		for _, metric := range family.GetMetric() {
			key := name
			for _, pair := range metric.GetLabel() {
				key += " " + pair.GetValue()
			}
			got[key] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue()
		}
	}
	return got
}
