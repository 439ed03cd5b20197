// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

var (
	timeToPlace = prometheus.NewHistogram(prometheus.HistogramOpts{
		Name:    "trainyard_time_to_place_seconds",
		Help:    "Time from seeing an unplaced TrainJob to having written its placement, waiting included.",
		Buckets: prometheus.ExponentialBuckets(0.005, 2, 20),
	})
	jobs = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trainyard_jobs",
		Help: "Dispatches on the hub, by worker (empty: none) and phase.",
	}, []string{"cluster", "phase"})
)

func init() {
	metrics.Registry.MustRegister(timeToPlace, jobs)
}

// census counts Dispatches by worker and phase.
type census struct {
	mu sync.Mutex
	// counted is where each Dispatch is counted, under mu.
	counted map[types.UID]label
}

type label struct {
	cluster v1alpha1.ClusterName
	phase   v1alpha1.DispatchPhase
}

func (c *census) see(d *v1alpha1.Dispatch) {
	phase := d.Status.Phase
	if phase == "" {
		phase = v1alpha1.PhasePending
	}
	c.move(d.UID, label{d.Spec.Cluster, phase}, true)
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
		jobs.WithLabelValues(string(from.cluster), string(from.phase)).Dec()
		delete(c.counted, uid)
	}
	if exists {
		if c.counted == nil {
			c.counted = map[types.UID]label{}
		}
		c.counted[uid] = to
		jobs.WithLabelValues(string(to.cluster), string(to.phase)).Inc()
	}
}
