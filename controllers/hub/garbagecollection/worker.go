// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
)

// place is a worker: its name, and the cluster that it leads to.
type place struct {
	Cluster   v1alpha1.ClusterName
	ClusterID types.UID
}

// leadsHere is true if the Dispatch names this worker.
func (p place) leadsHere(d *v1alpha1.Dispatch) bool {
	if d.Spec.ClusterID != "" {
		return d.Spec.ClusterID == p.ClusterID
	}
	return d.Spec.Cluster == p.Cluster
}

// Worker is the connection to a worker. remote.Cluster implements it.
type Worker interface {
	// Client reads copies from the connection's caches and writes to the worker. It fails while there is no connection.
	Client() (client.Client, error)
	// APIReader reads from the worker's API server, and fails as Client does.
	APIReader() (client.Reader, error)
}

// workerClient is the client of a connected worker: it reads, changes and deletes copies there.
type workerClient struct {
	// Client reads from the connection's caches.
	client.Client
	name       v1alpha1.ClusterName
	connection Worker
}

// connect returns the client of a worker. It fails while there is no connection.
func connect(name v1alpha1.ClusterName, connection Worker) (workerClient, error) {
	c, err := connection.Client()
	return workerClient{Client: c, name: name, connection: connection}, err
}

// cached returns the TrainJob of a name from the caches, nil if they do not show one.
func (w workerClient) cached(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	return w.get(ctx, w.Client, key)
}

// find returns the TrainJob of a name from the worker's API server, nil if there is none.
func (w workerClient) find(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	reader, err := w.connection.APIReader()
	if err != nil {
		return nil, err
	}
	return w.get(ctx, reader, key)
}

func (w workerClient) get(ctx context.Context, reader client.Reader, key types.NamespacedName) (*unstructured.Unstructured, error) {
	job := trainjobs.New()
	if err := reader.Get(ctx, key, job); err != nil {
		if client.IgnoreNotFound(err) == nil {
			return nil, nil
		}
		return nil, fmt.Errorf("get TrainJob %s on worker %q: %w", key, w.name, err)
	}
	return job, nil
}

// podsAlive is true while the worker has a pod of the job of that name that may run.
func (w workerClient) podsAlive(ctx context.Context, key types.NamespacedName) (bool, error) {
	var pods corev1.PodList
	err := w.List(ctx, &pods, client.InNamespace(key.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: key.Name})
	if err != nil {
		return false, fmt.Errorf("list pods of TrainJob %s on worker %q: %w", key, w.name, err)
	}
	return slices.ContainsFunc(pods.Items, isAlive), nil
}

// isAlive is true for a pod that runs, or may run.
func isAlive(pod corev1.Pod) bool {
	return pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// deleteCopy deletes exactly this copy in the foreground: Kubernetes deletes its JobSet and pods first.
func (w workerClient) deleteCopy(ctx context.Context, copy client.Object, why string) error {
	return w.deleteCopyBy(ctx, copy, why, metav1.DeletePropagationForeground)
}

// deleteCopyBy deletes exactly this copy, and its JobSet and pods with it.
func (w workerClient) deleteCopyBy(
	ctx context.Context, copy client.Object, why string, propagation metav1.DeletionPropagation,
) error {
	if copy.GetDeletionTimestamp() != nil {
		return nil
	}
	uid := copy.GetUID()
	err := w.Delete(ctx, copy, client.PropagationPolicy(propagation), client.Preconditions{UID: &uid})
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete TrainJob %s/%s on worker %q: %w", copy.GetNamespace(), copy.GetName(), w.name, err)
	}
	log.FromContext(ctx).V(1).Info("Deleted copy", "why", why, "propagation", propagation)
	copiesDeleted.WithLabelValues(string(w.name), why).Inc()
	return nil
}

// patchCopy changes a copy, but only if the copy is still as the caller has read it.
func (w workerClient) patchCopy(ctx context.Context, copy, updated *unstructured.Unstructured) error {
	err := w.Patch(ctx, updated, client.MergeFromWithOptions(copy, client.MergeFromWithOptimisticLock{}), records.FieldOwner)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("patch TrainJob %s/%s on worker %q: %w", copy.GetNamespace(), copy.GetName(), w.name, err)
	}
	return nil
}
