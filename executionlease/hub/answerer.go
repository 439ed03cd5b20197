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
	"github.com/trainyard/trainyard/remote"
)

// DefaultMargin covers changes of leader among the agents and among the managers.
const DefaultMargin = 2 * time.Minute

// seedInterval is the pause between two tries to read the WorkerClusters when this process becomes the leader.
const seedInterval = time.Second

// Connection is a connection to a worker. remote.Cluster is one.
type Connection interface {
	// Client reads from the worker's caches and writes to the worker. It fails with ErrNotConnected.
	Client() (client.Client, error)
	Status() remote.Status
}

// Options of the Answerer. All are required unless the field says otherwise.
type Options struct {
	// Hub reads WorkerClusters from the hub's caches.
	Hub client.Reader
	// HubReader reads WorkerClusters from the hub's API server.
	HubReader client.Reader
	// HubID is the name of the leases.
	HubID string
	// Manager names this process, for people.
	Manager string
	// Margin is added to the time after which an agent must have stopped copies. 0: DefaultMargin.
	Margin time.Duration
	// Leading says whether this process certainly leads now. nil: it leads, because only a leader runs reconcilers.
	Leading func() bool
	// Clock of this process. It must be monotonic.
	Clock clock.PassiveClock
}

// Answerer keeps the execution leases of this hub on all workers, and answers their challenges.
type Answerer struct {
	Options
	agents *Agents
}

// NewAnswerer makes an Answerer. The caller adds it to the manager, and adds its reconcilers as a per-worker controller
// with one goroutine, apart from the controllers of jobs.
func NewAnswerer(options Options) *Answerer {
	if options.Margin == 0 {
		options.Margin = DefaultMargin
	}
	if options.Leading == nil {
		options.Leading = func() bool { return true }
	}
	a := &Answerer{Options: options, agents: newAgents(options.Margin, options.Clock)}
	shown.Store(a.agents)
	return a
}

// Agents is what the Answerer knows of the agents.
func (a *Answerer) Agents() *Agents { return a.agents }

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (a *Answerer) NeedLeaderElection() bool { return true }

// Start takes over from the leader before, which may have answered each agent that it knew to be alive until now. It
// reads from the API server, because a cache may not show the last writes of that leader yet.
func (a *Answerer) Start(ctx context.Context) error {
	err := wait.PollUntilContextCancel(ctx, seedInterval, true, func(ctx context.Context) (bool, error) {
		var workers v1alpha1.WorkerClusterList
		if err := a.HubReader.List(ctx, &workers); err != nil {
			log.FromContext(ctx).Error(err, "Cannot list WorkerClusters; trying again")
			return false, nil
		}
		for i := range workers.Items {
			a.believe(&workers.Items[i])
		}
		return true, nil
	})
	if ctx.Err() != nil {
		return nil //nolint:nilerr // The manager ends.
	}
	return err
}

// believe records that a worker's agent is alive if the AgentReady condition says so for the current fenceAfter. Then
// the agent works with at most this fenceAfter. After a change of fenceAfter nobody knows the longest one.
func (a *Answerer) believe(worker *v1alpha1.WorkerCluster) {
	ready := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterAgentReady)
	if ready == nil || ready.Status != metav1.ConditionTrue || ready.ObservedGeneration != worker.Generation || worker.Status.ClusterID == "" {
		return
	}
	now := a.Clock.Now()
	a.agents.note(v1alpha1.ClusterName(worker.Name), worker.Status.ClusterID, func(s *agent) {
		s.lease.Believe(worker.FenceAfter(), now)
	})
}

// Events adds the lease of a worker to the queue of its reconciler: once at the start, because there may be no lease,
// and after each change. It does not wait for the list of leases, which the worker may never give.
func (a *Answerer) Events(leases cache.Cache) source.Source {
	return source.Func(func(ctx context.Context, queue workqueue.TypedRateLimitingInterface[reconcile.Request]) error {
		informer, err := leases.GetInformer(ctx, &v1alpha1.ExecutionLease{}, cache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch ExecutionLeases: %w", err)
		}
		queue.Add(reconcile.Request{NamespacedName: types.NamespacedName{Name: a.HubID}})
		events := source.Informer{Informer: informer, Handler: &handler.EnqueueRequestForObject{}}
		return events.Start(ctx, queue)
	})
}

// For makes the reconciler of the lease on a worker.
func (a *Answerer) For(worker v1alpha1.ClusterName, connection Connection) reconcile.Reconciler {
	r := &reconciler{Answerer: a, worker: worker, connection: connection, clusterID: connection.Status().ClusterID}
	a.agents.note(worker, r.clusterID, func(s *agent) { s.status = connection.Status })
	return r
}

// isUnlisted says whether the caches cannot show leases because they could not be listed.
func isUnlisted(err error) bool { return errors.Is(err, remote.ErrNotListed) }
