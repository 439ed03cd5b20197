// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
	"github.com/trainyard/trainyard/internal/inbox"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
	"github.com/trainyard/trainyard/kubeconfigs"
	"github.com/trainyard/trainyard/remote"
)

// Members are the controllers that work on connected workers.
type Members interface {
	// Join starts the controllers of a worker, or brings them all its live jobs again.
	Join(name v1alpha1.ClusterName, connection *remote.Cluster) error
	// Leave ends the controllers of a worker.
	Leave(name v1alpha1.ClusterName)
}

// Agents knows the agents of workers.
type Agents interface {
	// Agent says what is known of the agent of a cluster, and the longest fenceAfter by which it may be working.
	Agent(worker v1alpha1.ClusterName, clusterID types.UID) (presence protocol.Presence, longest time.Duration)
	// Subscribe calls notify when there is something else to say about a worker's agent.
	Subscribe(notify func(worker v1alpha1.ClusterName)) (cancel func())
}

// Options of the controller. All are required but Agents and the intervals.
type Options struct {
	// Hub reads from the hub's caches. They need the indexes of package records.
	Hub client.Client
	// HubID is refused as a worker: a copy cannot have the name of its hub TrainJob on the hub itself.
	HubID types.UID
	// Credentials loads kubeconfigs.
	Credentials *kubeconfigs.Loader
	// Files watches the kubeconfigs that are files.
	Files *kubeconfigs.FileWatcher
	// Fleet holds the connections.
	Fleet *remote.Fleet
	// Members are told of workers that can be used and of those that no longer can.
	Members Members
	// Agents are asked about the workers' agents. Nil: nothing is said about them.
	Agents Agents
	// Clock of this process.
	Clock clock.Clock
	// CapacityInterval is the least time between two writes of what changes with every pod. 0: 5 s.
	CapacityInterval time.Duration
}

// Reconciler reconciles WorkerClusters.
type Reconciler struct {
	Options
	inbox inbox.Inbox

	mu sync.Mutex
	// watched is what is in use for each worker, under mu.
	watched map[v1alpha1.ClusterName]*watch
}

// watch is what is watched on behalf of one WorkerCluster.
type watch struct {
	file            string
	cluster         *remote.Cluster
	cancelInventory func()
	// joined is what Members have been told of last.
	joined membership
	// pinned is the cluster ID that was written to the WorkerCluster of this UID, which the cache may not show yet.
	pinned    types.UID
	pinnedFor types.UID
	// capacityWritten is when capacity was last written.
	capacityWritten time.Time
}

// membership is a time in which a worker could be used without interruption.
type membership struct {
	cluster *remote.Cluster
	since   time.Time
}

// Reconcile brings one WorkerCluster's connection and status up to date.
func (r *Reconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	name := v1alpha1.ClusterName(request.Name)
	worker := &v1alpha1.WorkerCluster{}
	if err := r.Hub.Get(ctx, request.NamespacedName, worker); err != nil {
		if apierrors.IsNotFound(err) {
			r.disconnect(name)
		}
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	seen, err := r.observe(ctx, worker)
	if err != nil {
		return reconcile.Result{}, err
	}
	status, due := r.status(worker, seen)
	if !equality.Semantic.DeepEqual(status, &worker.Status) {
		err = r.write(ctx, worker, status)
	}
	if err == nil {
		r.pin(seen, worker, status)
	}
	// Also if the status could not be written: the controllers must not miss that the connection was away.
	if joinErr := r.membership(seen, status); joinErr != nil {
		return reconcile.Result{}, joinErr
	}
	return requeue.AfterConflict(reconcile.Result{RequeueAfter: requeue.Sooner(due, seen.expiry())}, err)
}

// expiry is how long until the credentials expire, which nothing else would tell; zero if they do not, as far as is known.
func (o *observation) expiry() time.Duration {
	if o.credentials == nil || o.credentials.Expires.IsZero() {
		return 0
	}
	return max(o.credentials.Expires.Sub(o.now), time.Second)
}

// observation is all that a status is computed from.
type observation struct {
	name v1alpha1.ClusterName
	// credentials, or why there are none.
	credentials      *kubeconfigs.Credentials
	credentialsFault error
	// cluster is the connection, nil without credentials.
	cluster    *remote.Cluster
	connection remote.Status
	// accepted is the cluster ID to which an admin has agreed, or empty.
	accepted types.UID
	// twin is another WorkerCluster that leads to the same cluster and came first, or empty.
	twin string
	// jobs are the live Dispatches here.
	jobs int32
	now  time.Time
}

// observe loads the credentials, hands them to the fleet, and reads what is known. An error is one that says nothing about the
// worker.
func (r *Reconciler) observe(ctx context.Context, worker *v1alpha1.WorkerCluster) (observation, error) {
	seen := observation{
		name:     v1alpha1.ClusterName(worker.Name),
		accepted: types.UID(worker.Annotations[v1alpha1.AnnotationAcceptIdentity]),
		now:      r.Clock.Now(),
	}
	r.watchFile(seen.name, worker.Spec.Connection.KubeconfigPath)
	credentials, err := r.Credentials.Load(ctx, worker.Spec.Connection)
	if err != nil {
		if kubeconfigs.ReasonOf(err) == "" {
			return seen, fmt.Errorf("load credentials of worker %q: %w", worker.Name, err)
		}
		seen.credentialsFault = err
		r.leave(seen.name)
		r.Fleet.Remove(seen.name)
		return seen, r.countJobs(ctx, &seen)
	}
	seen.credentials = credentials
	// What must be found: the cluster of the first contact, or the one that an admin has accepted since.
	pin := cmp.Or(seen.accepted, r.pinned(seen.name, worker.UID), worker.Status.ClusterID)
	r.Fleet.Ensure(seen.name, remoteCredentials(credentials), pin, remote.CapacityFrom(worker.Spec.Capacity))
	cluster, ok := r.Fleet.Get(seen.name)
	if !ok {
		return seen, fmt.Errorf("connect worker %q: the fleet has ended", worker.Name)
	}
	seen.cluster, seen.connection = cluster, cluster.Status()
	r.watchInventory(seen.name, cluster)
	if err := r.findTwin(ctx, worker, &seen); err != nil {
		return seen, err
	}
	return seen, r.countJobs(ctx, &seen)
}

func remoteCredentials(credentials *kubeconfigs.Credentials) remote.Credentials {
	return remote.Credentials{Config: credentials.Config, Fingerprint: credentials.Fingerprint}
}

// findTwin looks for another WorkerCluster of the same cluster. One that has the ID on record stays before one that has not, and
// may have jobs there; then the older one, then the first by name.
func (r *Reconciler) findTwin(ctx context.Context, worker *v1alpha1.WorkerCluster, seen *observation) error {
	id := seen.connection.ClusterID
	if id == "" {
		return nil
	}
	var workers v1alpha1.WorkerClusterList
	if err := r.Hub.List(ctx, &workers, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("list WorkerClusters: %w", err)
	}
	for i := range workers.Items {
		other := &workers.Items[i]
		if other.Name == worker.Name || other.Status.ClusterID != id {
			continue
		}
		if worker.Status.ClusterID != id || other.CreationTimestamp.Before(&worker.CreationTimestamp) ||
			other.CreationTimestamp.Equal(&worker.CreationTimestamp) && other.Name < worker.Name {
			seen.twin = other.Name
			return nil
		}
	}
	return nil
}

// countJobs counts the live Dispatches of the worker.
func (r *Reconciler) countJobs(ctx context.Context, seen *observation) error {
	dispatches, err := records.Live(ctx, r.Hub, seen.name)
	if err != nil {
		return err
	}
	seen.jobs = int32(len(dispatches)) //nolint:gosec // Fewer than etcd can hold.
	return nil
}

// write writes the status.
func (r *Reconciler) write(ctx context.Context, worker *v1alpha1.WorkerCluster, status *v1alpha1.WorkerClusterStatus) error {
	updated := worker.DeepCopy()
	updated.Status = *status
	patch := client.MergeFromWithOptions(worker, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Hub.Status().Patch(ctx, updated, patch, records.FieldOwner)); err != nil {
		return fmt.Errorf("patch status of WorkerCluster %q: %w", worker.Name, err)
	}
	before, after := ready(&worker.Status), ready(status)
	if before != after {
		log.FromContext(ctx).Info("Worker changed", "workerCluster", worker.Name, "from", before, "to", after)
	}
	return nil
}

// usable says whether the controllers of jobs can work with a worker that is Ready, or not, for this reason. Without a capacity report
// nothing new can be placed there, but what is there goes on.
func usable(reason string) bool {
	switch reason {
	case v1alpha1.ReasonConnected, v1alpha1.ReasonCapacityReportMissing, v1alpha1.ReasonCapacityReportStale:
		return true
	}
	return false
}

func ready(status *v1alpha1.WorkerClusterStatus) string {
	if condition := meta.FindStatusCondition(status.Conditions, v1alpha1.WorkerClusterReady); condition != nil {
		return condition.Reason
	}
	return ""
}

// pin tells the fleet the cluster ID that is now on record, or that an admin has accepted, which it needs before it connects.
func (r *Reconciler) pin(seen observation, worker *v1alpha1.WorkerCluster, status *v1alpha1.WorkerClusterStatus) {
	id := cmp.Or(seen.accepted, status.ClusterID)
	if seen.cluster != nil && seen.connection.State == remote.Connecting && id != "" && seen.twin == "" {
		r.setPinned(seen.name, worker.UID, id)
		r.Fleet.Ensure(seen.name, remoteCredentials(seen.credentials), id, remote.CapacityFrom(worker.Spec.Capacity))
	}
}

// membership joins a worker that can be used to the per-worker controllers, again after each time in which it could not be, and
// takes out one that must not be used.
func (r *Reconciler) membership(seen observation, status *v1alpha1.WorkerClusterStatus) error {
	if seen.cluster == nil || seen.twin != "" {
		r.leave(seen.name)
		return nil
	}
	if !usable(ready(status)) {
		return nil // The controllers stay, idle, and get their jobs again with the next connection.
	}
	current := membership{cluster: seen.cluster, since: seen.connection.Since}
	if r.joined(seen.name) == current {
		return nil
	}
	if err := r.Members.Join(seen.name, seen.cluster); err != nil {
		return fmt.Errorf("join worker %q: %w", seen.name, err)
	}
	r.setJoined(seen.name, current)
	return nil
}
