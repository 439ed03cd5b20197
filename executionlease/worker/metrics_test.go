// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/test/check"
)

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
