// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"

	"github.com/prometheus/client_golang/prometheus"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/health"
)

var (
	timeToPlace = prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "trainyard_time_to_place_seconds",
		Help: "Time from seeing an unplaced TrainJob to having written its placement, waiting included, by policy (empty: none).",
		// From 5 ms to two weeks.
		Buckets: prometheus.ExponentialBuckets(0.005, 4, 15),
	}, []string{"policy"})
	jobs = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trainyard_jobs",
		Help: "Dispatches on the hub, by worker (empty: none) and phase.",
	}, []string{"cluster", "phase"})
	unhealthyJobs = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trainyard_unhealthy_jobs",
		Help: "Dispatches whose copy makes no progress, by worker and reason of the condition Healthy; reasons of other kinds are Other.",
	}, []string{"cluster", "reason"})
)

func init() {
	metrics.Registry.MustRegister(timeToPlace, jobs, unhealthyJobs)
}

// label is where a Dispatch is counted.
type label struct {
	cluster v1alpha1.ClusterName
	phase   v1alpha1.DispatchPhase
	// trouble is empty for a healthy copy.
	trouble string
}

func (l label) add(by float64) {
	jobs.WithLabelValues(string(l.cluster), string(l.phase)).Add(by)
	if l.trouble != "" {
		unhealthyJobs.WithLabelValues(string(l.cluster), l.trouble).Add(by)
	}
}

// troubleOf is the reason for which a Dispatch is unhealthy, empty for none. The reason comes from a worker, so all
// unknown reasons count as one.
func troubleOf(d *v1alpha1.Dispatch) string {
	trouble := record.Trouble(d)
	switch {
	case trouble == nil:
		return ""
	case health.IsReason(trouble.Reason):
		return trouble.Reason
	default:
		return "Other"
	}
}

// count counts a Dispatch that was before what it is after an event. One of the two may be nil. It remembers nothing of
// the Dispatches: a hub has many that have finished.
func count(before, after *v1alpha1.Dispatch) {
	from, to := labelOf(before), labelOf(after)
	if before != nil && after != nil && from == to {
		return
	}
	if before != nil {
		from.add(-1)
	}
	if after != nil {
		to.add(1)
	}
}

// labelOf is empty for no Dispatch.
func labelOf(d *v1alpha1.Dispatch) label {
	if d == nil {
		return label{}
	}
	return label{d.Spec.Cluster, cmp.Or(d.Status.Phase, v1alpha1.PhasePending), troubleOf(d)}
}

func policyName(policy *v1alpha1.DispatchPolicy) string {
	if policy == nil {
		return ""
	}
	return policy.Name
}
