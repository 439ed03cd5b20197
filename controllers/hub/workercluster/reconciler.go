// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/accelerators"
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
	// Agent returns what is known of a cluster's agent, and the longest fenceAfter with which the agent may work.
	Agent(worker v1alpha1.ClusterName, clusterID types.UID) (state protocol.AgentState, longest time.Duration)
	// Subscribe calls notify when the answer about a worker's agent has changed.
	Subscribe(notify func(worker v1alpha1.ClusterName)) (cancel func())
}

// Runtimes knows how the runtimes of workers differ from the hub's.
type Runtimes interface {
	// Status returns what the status of a worker says, from what it said before.
	Status(worker v1alpha1.ClusterName, before []v1alpha1.WorkerRuntime, now time.Time) []v1alpha1.WorkerRuntime
	// Subscribe calls notify when something else is known of a worker.
	Subscribe(notify func(worker v1alpha1.ClusterName, own []types.NamespacedName)) (cancel func())
	// Forget drops what is known of a worker that is not registered any more.
	Forget(worker v1alpha1.ClusterName)
}

// Options are the options of the controller. All are required but Agents, Release, Runtimes, Accelerators and CapacityInterval.
type Options struct {
	// Hub reads from the hub's caches. They need the indexes of package records.
	Hub client.Client
	// HubID is the hub's own ID, which no worker may have: a copy cannot have the name of its hub TrainJob on the hub.
	HubID types.UID
	// Credentials loads kubeconfigs.
	Credentials *kubeconfigs.Loader
	// Files watches the kubeconfigs that are files.
	Files *kubeconfigs.FileWatcher
	// Fleet holds the connections.
	Fleet *remote.Fleet
	// Members learn which workers can be used, and which no longer can.
	Members Members
	// Agents knows the workers' agents. Nil: the status says nothing about agents.
	Agents Agents
	// Release returns the release of the hub's TrainJobs, as fields.Release. Nil: the status says nothing about skew.
	Release func() string
	// Runtimes knows the workers' runtimes. Nil: the status says nothing about runtimes.
	Runtimes Runtimes
	// Accelerators knows the resources that are accelerators.
	Accelerators accelerators.Table
	// Clock is the clock of this process.
	Clock clock.Clock
	// CapacityInterval is the least time between two writes of amounts that change with every pod. 0: 5 s.
	CapacityInterval time.Duration
}

// Reconciler reconciles WorkerClusters.
type Reconciler struct {
	Options
	inbox   inbox.Inbox
	watches watches
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
	// This happens even if the write failed: the per-worker controllers must learn that the connection was away.
	if joinErr := r.membership(seen, status); joinErr != nil {
		return reconcile.Result{}, joinErr
	}
	return requeue.AfterConflict(reconcile.Result{RequeueAfter: requeue.Sooner(due, seen.expiry())}, err)
}

// expiry is how long until the credentials expire, zero if they do not, as far as is known. No event tells that time.
func (o *observation) expiry() time.Duration {
	if o.credentials == nil || o.credentials.Expires.IsZero() {
		return 0
	}
	return max(o.credentials.Expires.Sub(o.now), time.Second)
}

// observation has everything that a status is computed from.
type observation struct {
	name v1alpha1.ClusterName
	// credentials are the worker's credentials. credentialsFault is why there are none.
	credentials      *kubeconfigs.Credentials
	credentialsFault error
	// cluster is the connection, nil without credentials.
	cluster    *remote.Cluster
	connection remote.Status
	// accepted is the cluster ID that an admin has accepted, or empty.
	accepted types.UID
	// duplicateOf is the WorkerCluster that has the same cluster and keeps it, or empty.
	duplicateOf string
	// jobs is the number of live Dispatches on this worker.
	jobs int32
	now  time.Time
}

// observe loads the credentials, passes them to the fleet, and reads what is known. Errors are not about the worker.
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
	// The connection must find the cluster of the first contact, or the cluster that an admin has accepted since.
	pin := cmp.Or(seen.accepted, r.watches.pinned(seen.name, worker.UID), worker.Status.ClusterID)
	r.Fleet.Ensure(seen.name, remoteCredentials(credentials), pin, capacityOptions(worker)...)
	cluster, ok := r.Fleet.Get(seen.name)
	if !ok {
		return seen, fmt.Errorf("connect worker %q: the fleet has ended", worker.Name)
	}
	seen.cluster, seen.connection = cluster, cluster.Status()
	r.watches.follow(seen.name, cluster, func() { r.enqueueLazily(seen.name) })
	if err := r.findDuplicate(ctx, worker, &seen); err != nil {
		return seen, err
	}
	return seen, r.countJobs(ctx, &seen)
}

// capacityOptions say where the capacity of a worker is read.
func capacityOptions(worker *v1alpha1.WorkerCluster) []remote.EnsureOption {
	return []remote.EnsureOption{remote.CapacityFrom(worker.Spec.Capacity), remote.CountQuota(worker.Spec.Kueue.Capacity.CountsQuota())}
}

func remoteCredentials(credentials *kubeconfigs.Credentials) remote.Credentials {
	return remote.Credentials{Config: credentials.Config, Fingerprint: credentials.Fingerprint}
}

// findDuplicate finds out whether another WorkerCluster keeps the cluster of this one. Of two WorkerClusters of one
// cluster, the WorkerCluster that alone has the ID on record keeps the cluster: it may have jobs there. If both have the
// ID, the older one keeps the cluster, and of two equally old ones the first by name.
func (r *Reconciler) findDuplicate(ctx context.Context, worker *v1alpha1.WorkerCluster, seen *observation) error {
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
			seen.duplicateOf = other.Name
			return nil
		}
	}
	return nil
}

func (r *Reconciler) countJobs(ctx context.Context, seen *observation) error {
	dispatches, err := records.Live(ctx, r.Hub, seen.name)
	if err != nil {
		return err
	}
	seen.jobs = int32(len(dispatches)) //nolint:gosec // Fewer than etcd can hold.
	return nil
}

func (r *Reconciler) write(ctx context.Context, worker *v1alpha1.WorkerCluster, status *v1alpha1.WorkerClusterStatus) error {
	updated := worker.DeepCopy()
	updated.Status = *status
	patch := client.MergeFromWithOptions(worker, client.MergeFromWithOptimisticLock{})
	if err := client.IgnoreNotFound(r.Hub.Status().Patch(ctx, updated, patch, records.FieldOwner)); err != nil {
		return fmt.Errorf("patch status of WorkerCluster %q: %w", worker.Name, err)
	}
	before, after := worker.Status.ReadyReason(), status.ReadyReason()
	if before != after {
		log.FromContext(ctx).Info("Worker changed", "workerCluster", worker.Name, "from", before, "to", after)
	}
	return nil
}

// pin tells the fleet the cluster ID that is now on record or accepted by an admin. The fleet needs it to connect.
func (r *Reconciler) pin(seen observation, worker *v1alpha1.WorkerCluster, status *v1alpha1.WorkerClusterStatus) {
	id := cmp.Or(seen.accepted, status.ClusterID)
	if seen.cluster != nil && seen.connection.State == remote.Connecting && id != "" && seen.duplicateOf == "" {
		r.watches.setPinned(seen.name, worker.UID, id)
		r.Fleet.Ensure(seen.name, remoteCredentials(seen.credentials), id, capacityOptions(worker)...)
	}
}

// membership joins a usable worker to the per-worker controllers, again after each interruption, or takes it out.
func (r *Reconciler) membership(seen observation, status *v1alpha1.WorkerClusterStatus) error {
	if seen.cluster == nil || seen.duplicateOf != "" {
		r.leave(seen.name)
		return nil
	}
	if !status.Answers() {
		// The controllers stay, but do nothing. They get their jobs again with the next connection.
		return nil
	}
	// Jobs on a worker without JobSets cannot go on there, so their controllers look at each of them.
	current := membership{
		cluster: seen.cluster, since: seen.connection.Since, jobSetMissing: seen.connection.JobSetMissing != "",
	}
	if r.watches.joined(seen.name) == current {
		return nil
	}
	if err := r.Members.Join(seen.name, seen.cluster); err != nil {
		return fmt.Errorf("join worker %q: %w", seen.name, err)
	}
	r.watches.setJoined(seen.name, current)
	return nil
}

// leave takes a worker out of the per-worker controllers.
func (r *Reconciler) leave(name v1alpha1.ClusterName) {
	r.Members.Leave(name)
	r.watches.setJoined(name, membership{})
}

// watchFile watches the worker's kubeconfig file, if it has one, in place of the file before.
func (r *Reconciler) watchFile(name v1alpha1.ClusterName, path string) {
	if unused := r.watches.setFile(name, path); unused != "" {
		r.Files.Remove(unused)
	}
	if path != "" {
		r.Files.Add(path)
	}
}

// disconnect ends everything that this controller does for a worker.
func (r *Reconciler) disconnect(name v1alpha1.ClusterName) {
	r.Members.Leave(name)
	r.watchFile(name, "")
	r.watches.drop(name)
	if r.Runtimes != nil {
		r.Runtimes.Forget(name)
	}
	r.Fleet.Remove(name)
}
