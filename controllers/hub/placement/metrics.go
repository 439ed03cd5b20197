// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
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

// census counts Dispatches by worker and phase, and by what keeps them from making progress.
type census struct {
	mu sync.Mutex
	// counted is where each Dispatch is counted, under mu.
	counted map[types.UID]label
}

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

func (c *census) see(d *v1alpha1.Dispatch) {
	phase := d.Status.Phase
	if phase == "" {
		phase = v1alpha1.PhasePending
	}
	c.move(d.UID, label{d.Spec.Cluster, phase, troubleOf(d)}, true)
}

func (c *census) lose(d *v1alpha1.Dispatch) {
	c.move(d.UID, label{}, false)
}

func (c *census) move(uid types.UID, to label, exists bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if from, ok := c.counted[uid]; ok {
		if exists && from == to {
			return
		}
		from.add(-1)
		delete(c.counted, uid)
	}
	if exists {
		if c.counted == nil {
			c.counted = map[types.UID]label{}
		}
		c.counted[uid] = to
		to.add(1)
	}
}

func policyName(policy *v1alpha1.DispatchPolicy) string {
	if policy == nil {
		return ""
	}
	return policy.Name
}
