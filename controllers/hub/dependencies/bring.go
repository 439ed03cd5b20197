// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/requeue"
)

// rememberedFor is for how long a Reconciler believes that the worker has what it has written there. Somebody may have deleted
// it since, and the hub may not look.
const rememberedFor = 10 * time.Minute

// cacheTimeout is how long a job waits for the cache of the hub's objects. Without the right to watch them it never fills.
const cacheTimeout = 5 * time.Second

// Options of a Reconciler. All but Unsent are required.
type Options struct {
	// Cluster is the worker's name, and ClusterID the ID of the cluster that it leads to.
	Cluster   v1alpha1.ClusterName
	ClusterID types.UID
	// HubID marks what is ours on the worker.
	HubID string
	// Hub reads Dispatches from the hub's caches, and writes the status of the WorkerCluster.
	Hub client.Client
	// HubReader reads from the hub's API server.
	HubReader client.Reader
	// Consented has metadata of the hub's objects with v1alpha1.LabelPropagate, from a cache.
	Consented client.Reader
	// Worker is the connection.
	Worker copies.Connection
	// Unsent says which labels and annotations of the hub's objects stay there, beside those that always do. Nil: no more.
	Unsent func(key string) bool
	// Enqueue has a namespace reconciled. It does not block.
	Enqueue func(namespace string)
	// Clock is the clock of this process.
	Clock clock.PassiveClock
}

// object is an object of a namespace.
type object = v1alpha1.PropagatedDependency

// Reconciler keeps the dependencies on one worker.
type Reconciler struct {
	Options
	started time.Time
	// turn has a token while somebody writes. Who has put it there may use recorded and guarded.
	turn turn
	// recorded are the objects on record. Nil: the record has not been read.
	recorded map[object]bool
	// guarded is true when the worker's policy has been seen in force.
	guarded bool
	// known is what is known of the worker.
	known *memory
}

// NewReconciler makes the Reconciler of a worker.
func NewReconciler(options Options) *Reconciler {
	return &Reconciler{Options: options, started: options.Clock.Now(), turn: make(turn, 1), known: newMemory(options.Clock)}
}

// Bring makes sure that the worker has the objects that a Dispatch names and that may be brought there, as they are on the
// hub. left says in words which of them it has left alone, and why. Objects without consent are not among them: nothing is
// known of them. An error is a conflict if somebody else writes now.
func (k *Reconciler) Bring(ctx context.Context, d *v1alpha1.Dispatch) (left []string, err error) {
	wanted, err := k.consented(ctx, d.Namespace, d.Spec.Dependencies)
	if err != nil || len(wanted) == 0 {
		return nil, err
	}
	worker, err := copies.Connect(k.Cluster, k.Worker)
	if err != nil {
		return nil, err
	}
	if words, err := k.closed(ctx, worker, d.Namespace); words != "" || err != nil {
		return []string{words}, err
	}
	if err := k.bringOutdated(ctx, worker, wanted, d.Spec.TrainJob.UID); err != nil {
		return nil, err
	}
	pulled, err := k.consented(ctx, d.Namespace, k.known.pulledBy(wanted))
	if err != nil {
		return nil, err
	}
	if err := k.bringOutdated(ctx, worker, pulled, d.Spec.TrainJob.UID); err != nil {
		return nil, err
	}
	for _, w := range append(wanted, pulled...) {
		if known := k.known.of(w.object); known.left != "" {
			left = append(left, known.left)
		}
	}
	return left, nil
}

// IsBrought says whether Bring would send no request for a Dispatch.
func (k *Reconciler) IsBrought(ctx context.Context, d *v1alpha1.Dispatch) bool {
	wanted, err := k.consented(ctx, d.Namespace, d.Spec.Dependencies)
	if err != nil || len(k.known.outdated(wanted)) > 0 {
		return false
	}
	pulled, err := k.consented(ctx, d.Namespace, k.known.pulledBy(wanted))
	return err == nil && len(k.known.outdated(pulled)) == 0
}

// Doubt forgets what is known of the objects that a Dispatch names, because the worker has refused the copy: somebody may
// have deleted them there.
func (k *Reconciler) Doubt(d *v1alpha1.Dispatch) {
	for _, dependency := range d.Spec.Dependencies {
		o := object{Namespace: d.Namespace, Dependency: dependency}
		k.known.note(o, there{pulls: k.known.of(o).pulls}) // Pods that are there need the Secrets as before.
	}
}

// Settle has the namespace of a Dispatch looked at that was not written: what was brought for it may not be needed.
func (k *Reconciler) Settle(d *v1alpha1.Dispatch) {
	if len(d.Spec.Dependencies) > 0 {
		k.Enqueue(d.Namespace)
	}
}

// bringOutdated writes the outdated of the wanted objects, if there are any, with the turn. job is the TrainJob that needs them.
func (k *Reconciler) bringOutdated(ctx context.Context, worker copies.Worker, wanted []wanted, job types.UID) error {
	if len(k.known.outdated(wanted)) == 0 {
		return nil
	}
	if !k.turn.take() {
		return requeue.Outdated("dependencies are being written to the worker")
	}
	defer k.turn.giveBack()
	outdated := k.known.outdated(wanted)
	if err := k.record(ctx, outdated); err != nil {
		return err
	}
	return k.writeAll(ctx, worker, outdated, job)
}

// writeAll writes objects that are on record, and takes those off the record that were left alone: they are not ours.
func (k *Reconciler) writeAll(ctx context.Context, worker copies.Worker, all []wanted, job types.UID) error {
	var left []object
	for _, w := range all {
		if err := k.write(ctx, worker, w, job); err != nil {
			return err
		}
		if k.known.of(w.object).left != "" {
			left = append(left, w.object)
		}
	}
	return k.strike(ctx, left)
}

// wanted is an object that may be brought to the worker, and its version on the hub, as the cache shows it.
type wanted struct {
	object
	source string
}

// consented returns those of the dependencies that have the consent of their owner.
func (k *Reconciler) consented(ctx context.Context, namespace string, dependencies []v1alpha1.Dependency) (all []wanted, err error) {
	ctx, cancel := context.WithTimeout(ctx, cacheTimeout)
	defer cancel()
	for _, dependency := range dependencies {
		onHub := metadataOf(dependency.Kind)
		err := k.Consented.Get(ctx, types.NamespacedName{Namespace: namespace, Name: dependency.Name}, onHub)
		if apierrors.IsNotFound(err) {
			continue
		}
		if err != nil {
			//nolint:errorlint // The hub's answer must not be taken for the worker's.
			return nil, fmt.Errorf("get %s: %v", dependency, err)
		}
		all = append(all, wanted{object{Namespace: namespace, Dependency: dependency}, sourceOf(onHub)})
	}
	return all, nil
}

// closed says why nothing may be brought into a namespace of the worker, empty if it may.
func (k *Reconciler) closed(ctx context.Context, worker copies.Worker, name string) (string, error) {
	namespace := metadataOf("Namespace")
	err := worker.Get(ctx, types.NamespacedName{Name: name}, namespace)
	if apierrors.IsNotFound(err) { // The cache may not show it yet.
		reader, readerErr := k.Worker.APIReader()
		if readerErr != nil {
			return "", readerErr
		}
		err = reader.Get(ctx, types.NamespacedName{Name: name}, namespace)
	}
	if err != nil {
		return "", fmt.Errorf("get Namespace %q on worker %q: %w", name, k.Cluster, err)
	}
	if namespace.Labels[v1alpha1.LabelPropagatedBy] == k.HubID || namespace.Labels[v1alpha1.LabelDependencies] == "true" {
		return "", nil
	}
	return fmt.Sprintf("namespace %q was not made by this hub: to permit it, an admin of the worker labels the namespace %s=true",
		name, v1alpha1.LabelDependencies), nil
}

// sourceOf is the version of an object of the hub.
func sourceOf(onHub metav1.Object) string {
	return fmt.Sprintf("%s.%s", onHub.GetUID(), onHub.GetResourceVersion())
}

// metadataOf returns an empty object of a kind of Kubernetes' core, of which only metadata is read.
func metadataOf(kind string) *metav1.PartialObjectMetadata {
	object := &metav1.PartialObjectMetadata{}
	object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(kind))
	return object
}
