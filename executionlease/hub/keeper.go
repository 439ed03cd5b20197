// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"errors"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/handler"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	"sigs.k8s.io/controller-runtime/pkg/source"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/remote"
)

// DefaultMargin covers changes of leader, of agents and of managers.
const DefaultMargin = 2 * time.Minute

// seedInterval is the pause between two tries to read what is on record when this process becomes the leader.
const seedInterval = time.Second

// Connection is a connection to a worker. remote.Cluster is one.
type Connection interface {
	// Client reads from the worker's caches and writes to it, or is ErrNotConnected.
	Client() (client.Client, error)
	// Status of the connection.
	Status() remote.Status
}

// Options of the Keeper. All are required, but those that say otherwise.
type Options struct {
	// Hub reads WorkerClusters from the hub's caches.
	Hub client.Reader
	// HubReader reads them from the hub's API server.
	HubReader client.Reader
	// HubID is the name of the leases.
	HubID string
	// Manager names this process, for people.
	Manager string
	// Margin is added to what an agent's lease lasts. 0: DefaultMargin.
	Margin time.Duration
	// Leading says whether this process certainly leads now. Nil: it does, as no reconciler runs otherwise.
	Leading func() bool
	// Clock of this process. It has to be monotonic.
	Clock clock.PassiveClock
}

// Keeper keeps the execution leases of this hub on all workers.
type Keeper struct {
	Options
	book *Book
}

// NewKeeper makes a Keeper. It is added to the manager, and its reconcilers are a kind of per-worker controller, apart from those of jobs,
// with one worker goroutine.
func NewKeeper(options Options) *Keeper {
	if options.Margin == 0 {
		options.Margin = DefaultMargin
	}
	if options.Leading == nil {
		options.Leading = func() bool { return true }
	}
	k := &Keeper{Options: options, book: newBook(options.Margin, options.Clock)}
	shown.Store(k.book)
	return k
}

// Book is what the Keeper knows.
func (k *Keeper) Book() *Book { return k.book }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (k *Keeper) NeedLeaderElection() bool { return true }

// Start takes over from the process that led before: whom it knew to have a living agent it may have answered until now. What is on
// record is read from the API server, as a cache may not show yet what the other process has written last.
func (k *Keeper) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, seedInterval, true, func(ctx context.Context) (bool, error) {
		var workers v1alpha1.WorkerClusterList
		if err := k.HubReader.List(ctx, &workers); err != nil {
			log.FromContext(ctx).Error(err, "WorkerClusters could not be listed; trying again")
			return false, nil
		}
		for i := range workers.Items {
			k.believe(&workers.Items[i])
		}
		return true, nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The manager ends.
	}
	return err
}

// believe takes a worker's agent to be alive if its condition says so, and says it of the fenceAfter that is asked for now: that is the
// longest by which the agent works. If it was changed since, nobody knows.
func (k *Keeper) believe(worker *v1alpha1.WorkerCluster) {
	ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterAgentReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != worker.Generation || worker.Status.ClusterID == "" {
		return
	}
	now := k.Clock.Now()
	k.book.note(v1alpha1.ClusterName(worker.Name), worker.Status.ClusterID, func(p *page) {
		p.lease.Believe(protocol.FenceAfterOf(worker), now)
	})
}

// Events brings the lease of a worker into the queue of its reconciler: once at the start, for there may be none, and after each change.
// It does not wait for the worker to list leases, which it may never do.
func (k *Keeper) Events(leases cache.Cache) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		informer, err := leases.GetInformer(ctx, &v1alpha1.ExecutionLease{}, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch ExecutionLeases: %w", err)
		}
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: k.HubID}})
		events := source.Informer{Informer: informer, Handler: &handler.EnqueueRequestForObject{}}
		return events.Start(ctx, queue)
	})
}

// For makes the reconciler of the lease on a worker.
func (k *Keeper) For(worker v1alpha1.ClusterName, connection Connection) reconcile.Reconciler {
	r := &reconciler{Keeper: k, worker: worker, connection: connection, clusterID: connection.Status().ClusterID}
	k.book.note(worker, r.clusterID, func(p *page) { p.status = connection.Status })
	return r
}

// isUnlisted says whether an error is of a lease that the caches cannot show.
func isUnlisted(err error) bool { return errors.Is(err, remote.ErrNotListed) }
