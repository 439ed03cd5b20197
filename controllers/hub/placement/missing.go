// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"maps"
	"slices"
	"sync"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
)

// missing knows what some workers do not do as the hub does. It is shared by needs and watches.
type missing struct {
	mu sync.Mutex
	// byWorker and all are under mu. all is replaced, and never changed.
	byWorker map[v1alpha1.ClusterName]lack
	all      demand.Missing
}

// lack is what a worker does not do. api is nil if there is no field that it does not know.
type lack struct {
	api     *v1alpha1.TrainerAPI
	merging dispatch.Merging
}

func lackOf(worker *v1alpha1.WorkerCluster) lack {
	if worker.DeletionTimestamp != nil {
		return lack{}
	}
	of := lack{api: worker.Status.Trainer, merging: dispatch.MergingOf(worker)}
	if of.api != nil && len(of.api.Missing)+len(of.api.MissingOfRuntimes) == 0 {
		of.api = nil
	}
	return of
}

func (l lack) equal(other lack) bool {
	if l.merging != other.merging || l.api == nil || other.api == nil {
		return l == other
	}
	return slices.Equal(l.api.Missing, other.api.Missing) && slices.Equal(l.api.MissingOfRuntimes, other.api.MissingOfRuntimes) &&
		slices.Equal(l.api.Untranslatable, other.api.Untranslatable)
}

// see takes in a WorkerCluster, and returns whether workers lack something else than before.
func (m *missing) see(worker *v1alpha1.WorkerCluster) bool {
	name, now := v1alpha1.ClusterName(worker.Name), lackOf(worker)
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.byWorker[name].equal(now) {
		return false
	}
	if m.byWorker == nil {
		m.byWorker = map[v1alpha1.ClusterName]lack{}
	}
	if m.byWorker[name] = now; now == (lack{}) {
		delete(m.byWorker, name)
	}
	before := m.all
	m.all = demand.Missing{}
	for name, lack := range m.byWorker {
		m.all.Add(name, lack.api, lack.merging)
	}
	return !slices.Equal(before.OfJobs, m.all.OfJobs) || !slices.Equal(before.OfRuntimes, m.all.OfRuntimes) ||
		!maps.Equal(before.Merging, m.all.Merging)
}

func (m *missing) now() demand.Missing {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all
}
