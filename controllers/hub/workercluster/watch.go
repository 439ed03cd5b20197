// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/remote"
)

// watches are what this controller uses for each WorkerCluster.
type watches struct {
	mu sync.Mutex
	// byName is under mu.
	byName map[v1alpha1.ClusterName]*watch
}

// watch is what this controller uses for one WorkerCluster.
type watch struct {
	file            string
	cluster         *remote.Cluster
	cancelInventory func()
	// joined is the membership that Members know of.
	joined membership
	// pinned is the last cluster ID that this process wrote, to the WorkerCluster with the UID pinnedFor. The cache may
	// not show it yet.
	pinned          types.UID
	pinnedFor       types.UID
	capacityWritten time.Time
}

// membership is a time in which a worker could be used without interruption.
type membership struct {
	cluster *remote.Cluster
	since   time.Time
	// jobSetMissing: the worker does not serve JobSets.
	jobSetMissing bool
}

// of returns the watch of a worker. The caller holds mu.
func (s *watches) of(name v1alpha1.ClusterName) *watch {
	if s.byName == nil {
		s.byName = map[v1alpha1.ClusterName]*watch{}
	}
	w := s.byName[name]
	if w == nil {
		w = &watch{}
		s.byName[name] = w
	}
	return w
}

// setFile notes the worker's kubeconfig file. It returns the file before if no worker uses it any more, or else "".
func (s *watches) setFile(name v1alpha1.ClusterName, path string) (unused string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.of(name)
	before := w.file
	w.file = path
	for _, other := range s.byName {
		if other.file == before {
			return ""
		}
	}
	return before
}

// withFile returns the workers whose kubeconfig is this file.
func (s *watches) withFile(path string) (names []v1alpha1.ClusterName) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, w := range s.byName {
		if w.file == path {
			names = append(names, name)
		}
	}
	return names
}

// follow subscribes to the inventory of the worker's connection, in place of the connection before.
func (s *watches) follow(name v1alpha1.ClusterName, cluster *remote.Cluster, changed func()) {
	s.mu.Lock()
	w := s.of(name)
	if w.cluster == cluster {
		s.mu.Unlock()
		return
	}
	cancel := w.cancelInventory
	w.cluster = cluster
	w.cancelInventory = cluster.Inventory().Subscribe(changed)
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

// drop ends the watch of a worker.
func (s *watches) drop(name v1alpha1.ClusterName) {
	s.mu.Lock()
	cancel := s.of(name).cancelInventory
	delete(s.byName, name)
	s.mu.Unlock()
	if cancel != nil {
		cancel()
	}
}

func (s *watches) joined(name v1alpha1.ClusterName) membership {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.of(name).joined
}

func (s *watches) setJoined(name v1alpha1.ClusterName, joined membership) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(name).joined = joined
}

func (s *watches) pinned(name v1alpha1.ClusterName, uid types.UID) types.UID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w := s.of(name); w.pinnedFor == uid {
		return w.pinned
	}
	return ""
}

func (s *watches) setPinned(name v1alpha1.ClusterName, uid, id types.UID) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w := s.of(name)
	w.pinned, w.pinnedFor = id, uid
}

// capacityDue returns how long until capacity may be written again, zero if now.
func (s *watches) capacityDue(name v1alpha1.ClusterName, interval time.Duration, now time.Time) time.Duration {
	s.mu.Lock()
	defer s.mu.Unlock()
	written := s.of(name).capacityWritten
	if written.IsZero() {
		return 0
	}
	return max(0, interval-now.Sub(written))
}

func (s *watches) setCapacityWritten(name v1alpha1.ClusterName, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.of(name).capacityWritten = now
}
