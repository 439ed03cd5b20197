// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

var (
	copiesFenced = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_fencing_copies_stopped_total",
		Help: "Copies that were stopped, by hub (unknown if it never had an ExecutionLease here), by what was done " +
			"(Suspend, Delete), and by reason: Silence of the hub, LateCreation, OldAttempt, SecondCopy of an attempt, ResumedByOthers.",
	}, []string{"hub", "action", "reason"})
	leaseState = prometheus.NewDesc("trainyard_fencing_lease_state",
		"1 for the state of a hub's execution lease in the eyes of this replica, 0 for its other states. A replica that does not lead says "+
			"Pending for what it knows nothing of.", []string{"hub", "state"}, nil)
	leaseEnds = prometheus.NewDesc("trainyard_fencing_lease_remaining_seconds",
		"Time until the pods of a hub's fenced copies must have ended if the hub does not answer any more; negative when that is over.",
		[]string{"hub"}, nil)
	challengesWritten = prometheus.NewDesc("trainyard_fencing_challenges_written_total",
		"Challenges that this replica has written into a hub's execution lease.", []string{"hub"}, nil)
	challengesRefused = prometheus.NewDesc("trainyard_fencing_challenges_failed_total",
		"Challenges that this replica could not write, or does not know to be written: conflicts with an answer, and errors.",
		[]string{"hub"}, nil)
	hubsUnknown = prometheus.NewDesc("trainyard_fencing_unknown_hubs",
		"Hubs that labels of TrainJobs with failover Fenced name, and that never had an ExecutionLease here. "+
			"Somebody else may have written the labels.",
		nil, nil)
)

// unknownHub stands for all hubs that never had a lease. A metric must not get a name that a user wrote into a label.
const unknownHub = "unknown"

// shown is the tracker that the metrics show.
var shown atomic.Pointer[tracker]

// collector computes its metrics when Prometheus asks, because they depend on the time.
type collector struct{}

func init() { //nolint:gochecknoinits // controller-runtime's registry is global, and so are its metrics.
	metrics.Registry.MustRegister(copiesFenced, collector{})
}

// Describe implements prometheus.Collector.
func (collector) Describe(to chan<- *prometheus.Desc) {
	for _, desc := range []*prometheus.Desc{leaseState, leaseEnds, challengesWritten, challengesRefused, hubsUnknown} {
		to <- desc
	}
}

// Collect implements prometheus.Collector.
func (collector) Collect(to chan<- prometheus.Metric) {
	if t := shown.Load(); t != nil {
		for _, metric := range t.metrics() {
			to <- metric
		}
	}
}

// metrics are about each hub that has a lease, or that had a lease and has copies.
func (t *tracker) metrics() (all []prometheus.Metric) {
	now := t.clock.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	unknown := 0
	for id, h := range t.hubs {
		if !h.leased {
			unknown++
		}
		if !h.leased || h.uid == "" && len(t.copies[id]) == 0 {
			continue
		}
		state := h.agent.State(now)
		for _, one := range []v1alpha1.LeaseState{v1alpha1.LeasePending, v1alpha1.LeaseValid, v1alpha1.LeaseExpired} {
			value := 0.0
			if state == one {
				value = 1
			}
			all = append(all, prometheus.MustNewConstMetric(leaseState, prometheus.GaugeValue, value, id, string(one)))
		}
		if deadline := h.agent.Deadline(); !deadline.IsZero() {
			all = append(all, prometheus.MustNewConstMetric(leaseEnds, prometheus.GaugeValue, deadline.Sub(now).Seconds(), id))
		}
		all = append(all,
			prometheus.MustNewConstMetric(challengesWritten, prometheus.CounterValue, float64(h.written), id),
			prometheus.MustNewConstMetric(challengesRefused, prometheus.CounterValue, float64(h.failed), id))
	}
	return append(all, prometheus.MustNewConstMetric(hubsUnknown, prometheus.GaugeValue, float64(unknown)))
}
