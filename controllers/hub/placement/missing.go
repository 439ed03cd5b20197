// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"slices"
	"sync"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
)

// missing knows which fields some worker does not know. It is shared by needs and watches.
type missing struct {
	mu sync.Mutex
	// byWorker and all are under mu. all is replaced, and never changed.
	byWorker map[v1alpha1.ClusterName]*v1alpha1.TrainerAPI
	all      demand.Missing
}

// see takes in a WorkerCluster, and returns whether another set of fields is missing on workers than before.
func (m *missing) see(worker *v1alpha1.WorkerCluster) bool {
	name := v1alpha1.ClusterName(worker.Name)
	lacks := worker.Status.Trainer
	if worker.DeletionTimestamp != nil || lacks != nil && len(lacks.Missing)+len(lacks.MissingOfRuntimes) == 0 {
		lacks = nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if before := m.byWorker[name]; before == nil && lacks == nil || before != nil && lacks != nil &&
		slices.Equal(before.Missing, lacks.Missing) && slices.Equal(before.MissingOfRuntimes, lacks.MissingOfRuntimes) &&
		slices.Equal(before.Untranslatable, lacks.Untranslatable) {
		return false
	}
	if m.byWorker == nil {
		m.byWorker = map[v1alpha1.ClusterName]*v1alpha1.TrainerAPI{}
	}
	if m.byWorker[name] = lacks; lacks == nil {
		delete(m.byWorker, name)
	}
	before := m.all
	m.all = demand.Missing{}
	for _, lacks := range m.byWorker {
		m.all.Add(lacks)
	}
	return !slices.Equal(before.OfJobs, m.all.OfJobs) || !slices.Equal(before.OfRuntimes, m.all.OfRuntimes)
}

func (m *missing) now() demand.Missing {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.all
}
