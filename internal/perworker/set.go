// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote"
)

// Connection is a connection to a worker. remote.Cluster implements it.
type Connection interface {
	comparable
	// Cache returns a cache that has the copies of this hub.
	Cache() cache.Cache
	// Status says whether the worker is connected, and since when. It does not block.
	Status() remote.Status
}

// Kind is a kind of controller. Every worker gets an instance of it.
type Kind[C Connection] struct {
	// Name is the name of the controller in logs and metrics.
	Name string
	// Concurrency is how many keys of one worker are reconciled at the same time.
	Concurrency int
	// New makes the reconciler for a worker. When New is called, no other instance runs for the worker in this process.
	// swept is true if the worker is connected and has been swept for this connection: before that nothing may be created
	// there.
	New func(ctx context.Context, worker v1alpha1.ClusterName, connection C, swept func() bool) (reconcile.Reconciler, error)
	// Sources give keys from a worker's cache in addition to the keys of copies. Nil: there are none.
	Sources func(worker v1alpha1.ClusterName, of cache.Cache) []source.Source
	// Apart is for controllers whose keys are not jobs. They get only the keys of Sources and Enqueue.
	Apart bool
	// Sweep does what must be done on a worker after each new connection, before anything is created there. The sweeper's
	// goroutine calls it, and retries it after a back-off. refused: the worker refuses the sweep. The controllers then get
	// all keys: they must create nothing, and end the attempts that were placed there. Nil: nothing to do.
	Sweep func(ctx context.Context, worker v1alpha1.ClusterName, connection C) (refused bool, err error)
}

// Set holds the controllers of all connected workers. Its methods may be called concurrently.
type Set[C Connection] struct {
	hub   cache.Cache
	kinds []Kind[C]
	log   logr.Logger
	clock clock.Clock

	mu sync.Mutex
	// ctx is the context of the controllers, nil until Start. early are workers that joined before it. Under mu.
	ctx     context.Context
	early   map[v1alpha1.ClusterName]C
	workers map[v1alpha1.ClusterName]*worker[C]
	// changing has a lock for each worker's name. Join and Leave hold it. mu guards the map.
	changing map[v1alpha1.ClusterName]*sync.Mutex
}

// worker is a connected worker with its controllers.
type worker[C Connection] struct {
	connection C
	sweeper    *sweeper[C]
	// instances are in the order of the kinds.
	instances []*instance
}

// NewSet makes a Set that reads Dispatches from the hub's cache. The cache must have the indexes of package records.
func NewSet[C Connection](hub cache.Cache, log logr.Logger, kinds ...Kind[C]) *Set[C] {
	return &Set[C]{
		hub: hub, kinds: kinds, log: log, clock: clock.RealClock{},
		early: map[v1alpha1.ClusterName]C{}, workers: map[v1alpha1.ClusterName]*worker[C]{},
		changing: map[v1alpha1.ClusterName]*sync.Mutex{},
	}
}

// Start routes the hub's events until ctx ends. Then it ends all controllers.
func (s *Set[C]) Start(ctx context.Context) error {
	if err := s.route(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	s.ctx = ctx
	early := s.early
	s.early = nil
	s.mu.Unlock()
	for name, connection := range early {
		if s.has(name) {
			continue // It has joined again in the meantime.
		}
		if err := s.Join(name, connection); err != nil {
			return err
		}
	}
	<-ctx.Done()
	s.mu.Lock()
	names := slices.Collect(maps.Keys(s.workers))
	s.mu.Unlock()
	for _, name := range names {
		s.Leave(name)
	}
	return nil
}

func (s *Set[C]) has(name v1alpha1.ClusterName) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.workers[name] != nil
}

// Join starts the controllers of a worker, unless they run with this connection already. It requests a sweep, and after
// the sweep the keys of all live jobs. It does not wait for them.
func (s *Set[C]) Join(name v1alpha1.ClusterName, connection C) error {
	defer s.change(name).Unlock()
	s.mu.Lock()
	existing, ctx := s.workers[name], s.ctx
	if ctx == nil {
		s.early[name] = connection
	}
	s.mu.Unlock()
	if ctx == nil {
		return nil // Start calls Join again.
	}
	if existing != nil && existing.connection != connection {
		s.leave(name)
		existing = nil
	}
	if existing == nil {
		started, err := s.start(ctx, name, connection)
		if err != nil {
			return err
		}
		existing = started
	}
	existing.sweeper.again()
	return nil
}

func (s *Set[C]) start(ctx context.Context, name v1alpha1.ClusterName, connection C) (*worker[C], error) {
	log := s.log.WithValues("workerCluster", name)
	w := &worker[C]{connection: connection, sweeper: newSweeper(s, name, connection)}
	for _, kind := range s.kinds {
		i, err := newInstance(ctx, kind, name, connection, w.sweeper.over, log)
		if err != nil {
			return nil, fmt.Errorf("start controllers of worker %q: %w", name, err)
		}
		w.instances = append(w.instances, i)
	}
	for _, i := range w.instances {
		i.start(ctx, func(err error) { log.Error(err, "Controller of worker ended") })
	}
	s.mu.Lock()
	s.workers[name] = w
	s.mu.Unlock()
	w.sweeper.start(ctx) // The sweeper enqueues keys only for workers in s.workers.
	return w, nil
}

// change locks the controllers of one worker. The caller unlocks the returned lock.
func (s *Set[C]) change(name v1alpha1.ClusterName) *sync.Mutex {
	s.mu.Lock()
	lock := s.changing[name]
	if lock == nil {
		lock = &sync.Mutex{}
		s.changing[name] = lock
	}
	s.mu.Unlock()
	lock.Lock()
	return lock
}

// Leave ends the controllers of a worker.
func (s *Set[C]) Leave(name v1alpha1.ClusterName) {
	defer s.change(name).Unlock()
	s.leave(name)
}

func (s *Set[C]) leave(name v1alpha1.ClusterName) {
	s.mu.Lock()
	w := s.workers[name]
	delete(s.workers, name)
	delete(s.early, name)
	s.mu.Unlock()
	if w == nil {
		return
	}
	w.sweeper.stop()
	for _, i := range w.instances {
		i.stop()
	}
}

// enqueueLive enqueues all Dispatches of a worker that have not finished, and all its copies. Both may have changed or
// become due while the worker was not connected.
func (s *Set[C]) enqueueLive(ctx context.Context, name v1alpha1.ClusterName, connection C) error {
	dispatches, err := records.Live(ctx, s.hub, name)
	if err != nil {
		return err
	}
	for i := range dispatches {
		s.enqueue(name, client.ObjectKeyFromObject(&dispatches[i]))
	}
	copies := trainjobs.NewList()
	if err := connection.Cache().List(ctx, copies, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list copies of worker %q: %w", name, err)
	}
	for i := range copies.Items {
		s.enqueue(name, client.ObjectKeyFromObject(&copies.Items[i]))
	}
	return nil
}

// Enqueue adds a key to one kind of controller of a worker, if the worker has joined. It never blocks.
func (s *Set[C]) Enqueue(kind string, name v1alpha1.ClusterName, key types.NamespacedName) {
	s.mu.Lock()
	w := s.workers[name]
	s.mu.Unlock()
	if w == nil {
		return
	}
	for n, i := range w.instances {
		if s.kinds[n].Name == kind {
			i.inbox.Add(key)
		}
	}
}

// Busy is true while at least Concurrency keys wait for a worker's controller of one kind. Fewer may wait just for a
// moment.
func (s *Set[C]) Busy(kind string, name v1alpha1.ClusterName) bool {
	s.mu.Lock()
	w := s.workers[name]
	s.mu.Unlock()
	if w == nil {
		return false
	}
	for n, i := range w.instances {
		if s.kinds[n].Name == kind {
			return i.inbox.Waiting() >= s.kinds[n].Concurrency
		}
	}
	return false
}

// enqueue adds a key to the controllers of a worker, if the worker has joined.
func (s *Set[C]) enqueue(name v1alpha1.ClusterName, key types.NamespacedName) {
	s.mu.Lock()
	w := s.workers[name]
	s.mu.Unlock()
	if w == nil {
		return // Join enqueues the worker's live jobs.
	}
	for _, i := range w.instances {
		if !i.apart {
			i.inbox.Add(key)
		}
	}
}
