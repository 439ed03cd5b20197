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

// Connection is a connection to a worker. remote.Cluster is one.
type Connection interface {
	comparable
	// Cache has the copies of this hub.
	Cache() cache.Cache
	// Status says whether the worker is connected, and since when. It does not block.
	Status() remote.Status
}

// Kind is a kind of controller of which every worker gets one.
type Kind[C Connection] struct {
	// Name of the controller in logs and metrics.
	Name string
	// Concurrency is how many keys of one worker are reconciled at a time.
	Concurrency int
	// New makes the reconciler for a worker. Nothing of the kind runs for the worker then, of this process.
	New func(ctx context.Context, worker v1alpha1.ClusterName, connection C) (reconcile.Reconciler, error)
	// Source of more keys from a worker's cache than those of the copies. Nil: there are none.
	Source func(cache.Cache) source.Source
	// Apart is for controllers whose keys are of something else than jobs: they get those of Source only, and no others to wait behind.
	Apart bool
	// Sweep does what has to be done on a worker each time it is connected anew, before the controllers with AfterSweep may do anything
	// new there. It is called in the worker's own goroutine, and again after a back-off if it fails. Nil: nothing has to be.
	Sweep func(ctx context.Context, worker v1alpha1.ClusterName, connection C) error
	// AfterSweep is for controllers that create copies. Until all Sweeps have worked they get only keys that have one already.
	AfterSweep bool
	// Hold of a controller with AfterSweep is true while the first copy of a Dispatch's attempt must not be created on the worker that it
	// names. It is asked often, and must not wait. Nil: never.
	Hold func(ctx context.Context, dispatch *v1alpha1.Dispatch) bool
	// Refused of a controller with AfterSweep is true while its worker refuses to be swept. Then the controller gets all
	// keys: it has to create nothing, and to give back what was placed there. It must not wait. Nil: never.
	Refused func(worker v1alpha1.ClusterName) bool
}

// Set holds the controllers of all connected workers. Its methods may be called from several goroutines.
type Set[C Connection] struct {
	hub   cache.Cache
	kinds []Kind[C]
	log   logr.Logger
	clock clock.Clock

	mu sync.Mutex
	// ctx of the controllers, nil until Start; early are the workers that joined before it; workers by name. All under mu.
	ctx     context.Context
	early   map[v1alpha1.ClusterName]C
	workers map[v1alpha1.ClusterName]*worker[C]
	// changing has a lock for each name, held by Join and Leave. The locks are under mu.
	changing map[v1alpha1.ClusterName]*sync.Mutex
}

// worker is a connected worker with its controllers.
type worker[C Connection] struct {
	connection C
	sweeper    *sweeper[C]
	// instances are in the order of the kinds.
	instances []*instance
}

// NewSet makes a Set that reads Dispatches from the hub's cache, which must have the indexes of package records.
func NewSet[C Connection](hub cache.Cache, log logr.Logger, kinds ...Kind[C]) *Set[C] {
	return &Set[C]{
		hub: hub, kinds: kinds, log: log, clock: clock.RealClock{},
		early: map[v1alpha1.ClusterName]C{}, workers: map[v1alpha1.ClusterName]*worker[C]{},
		changing: map[v1alpha1.ClusterName]*sync.Mutex{},
	}
}

// Start routes the hub's events until ctx ends, and ends all controllers then.
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
			continue // It has joined again meanwhile.
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

// Join starts the controllers of a worker over a connection, or finds them running over it already, as after a time without
// connection. It has the worker swept, and then brings them all its live jobs, for which it does not wait.
func (s *Set[C]) Join(name v1alpha1.ClusterName, connection C) error {
	defer s.change(name).Unlock()
	s.mu.Lock()
	existing, ctx := s.workers[name], s.ctx
	if ctx == nil {
		s.early[name] = connection
	}
	s.mu.Unlock()
	if ctx == nil {
		return nil // Start joins it.
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
		if kind.AfterSweep {
			kind.New = s.heldBack(kind, w.sweeper)
		}
		i, err := newInstance(ctx, kind, name, connection, log)
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
	w.sweeper.start(ctx) // It brings keys to what is in workers.
	return w, nil
}

// heldBack makes the reconcilers of a kind wait for the sweeper.
func (s *Set[C]) heldBack(
	kind Kind[C], sweeper *sweeper[C],
) func(context.Context, v1alpha1.ClusterName, C) (reconcile.Reconciler, error) {
	return func(ctx context.Context, name v1alpha1.ClusterName, connection C) (reconcile.Reconciler, error) {
		reconciler, err := kind.New(ctx, name, connection)
		return held[C]{Reconciler: reconciler, worker: name, hub: s.hub, sweeper: sweeper, hold: kind.Hold, refused: kind.Refused}, err
	}
}

// change locks the controllers of one worker against other changes.
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

// enqueueLive brings the controllers of a worker all its Dispatches that have not finished, and all copies that are there: both may
// have changed, or come due, while nothing could be done.
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

// Enqueue brings a key to one kind of controller of a worker, if it has joined. It never blocks.
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

// Busy is true while as many keys wait for a worker's controller of one kind as it has in hand at most. That a key
// waits for a moment, until somebody takes it, is no sign of work that piles up.
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

// enqueue brings a key to the controllers of a worker, if it has joined.
func (s *Set[C]) enqueue(name v1alpha1.ClusterName, key types.NamespacedName) {
	s.mu.Lock()
	w := s.workers[name]
	s.mu.Unlock()
	if w == nil {
		return // Join brings its live jobs.
	}
	for _, i := range w.instances {
		if !i.apart {
			i.inbox.Add(key)
		}
	}
}
