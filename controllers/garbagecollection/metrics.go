// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"sync"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/metrics"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

var (
	copiesDeleted = prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "trainyard_copies_deleted_total",
		Help: "Copies deleted on a worker, by reason (retention, outdated).",
	}, []string{"cluster", "reason"})
	copiesUnknown = prometheus.NewGaugeVec(prometheus.GaugeOpts{
		Name: "trainyard_unknown_copies",
		Help: "Copies on a worker that carry this hub's ID and of which the hub has no record. They are left alone.",
	}, []string{"cluster"})
)

func init() {
	metrics.Registry.MustRegister(copiesDeleted, copiesUnknown)
}

// unknownCopies counts the copies of a worker that the hub has no record of.
type unknownCopies struct {
	cluster v1alpha1.ClusterName

	mu sync.Mutex
	// keys under mu.
	keys map[types.NamespacedName]struct{}
}

func (u *unknownCopies) remove(key types.NamespacedName) {
	u.set(key, false)
}

func (u *unknownCopies) set(key types.NamespacedName, unknown bool) {
	u.mu.Lock()
	defer u.mu.Unlock()
	if _, counted := u.keys[key]; counted == unknown {
		return
	}
	if u.keys == nil {
		u.keys = map[types.NamespacedName]struct{}{}
	}
	if unknown {
		u.keys[key] = struct{}{}
	} else {
		delete(u.keys, key)
	}
	copiesUnknown.WithLabelValues(string(u.cluster)).Set(float64(len(u.keys)))
}
