// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote"
)

// startup is the time after the start in which nothing is decided, because a worker that was Ready before is still
// being connected. The worker may have a copy of a waiting job, if the hub was restored from a backup. It may have
// room, so that no job has to be preempted. Its own runtimes, of which its status has only the names, may make other pods
// than the hub's. And the first job in order may be a job of Kueue's, of which it is not
// known yet whether it may be placed.
type startup struct {
	options Options
	until   time.Time
	// awaited are the workers that have not been connected, nil until they are known.
	awaited map[v1alpha1.ClusterName]bool
	over    bool
}

// begin starts the time.
func (s *startup) begin() { s.until = s.options.Clock.Now().Add(records.StartupTime) }

// look says whether the time is over. Then it stays over, whatever happens to workers.
func (s *startup) look(workers []v1alpha1.WorkerCluster) bool {
	if s.over {
		return true
	}
	differing := map[v1alpha1.ClusterName][]v1alpha1.WorkerRuntime{}
	for i := range workers {
		if status := workers[i].Status.Runtimes; len(status) > 0 {
			differing[v1alpha1.ClusterName(workers[i].Name)] = status
		}
	}
	s.awaited = records.Awaited(workers, func(name v1alpha1.ClusterName) bool {
		return s.awaited != nil && !s.awaited[name] || s.isShown(name) && s.isCompared(name, differing[name])
	})
	s.over = len(s.awaited) == 0 && (s.options.KueueKnown == nil || s.options.KueueKnown()) || !s.options.Clock.Now().Before(s.until)
	return s.over
}

// Starting returns for how long a Decider may decide nothing yet because of the start of this process, zero if its first passes
// are over.
func Starting(d *Decider) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.startup.over {
		return 0
	}
	return max(d.startup.until.Sub(d.options.Clock.Now()), time.Second)
}

// isCompared says whether it is known which pods the worker makes with the runtimes that its status names.
func (s *startup) isCompared(name v1alpha1.ClusterName, status []v1alpha1.WorkerRuntime) bool {
	return s.options.Runtimes == nil || len(status) == 0 || s.options.Runtimes(name).Settles(status)
}

// isShown says whether it is known what the worker has.
func (s *startup) isShown(name v1alpha1.ClusterName) bool {
	cluster, ok := s.options.Connections.Get(name)
	return ok && cluster.Status().State == remote.Connected && (s.options.Shown == nil || s.options.Shown(name))
}
