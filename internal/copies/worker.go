// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package copies

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
)

// Connection is the connection to a worker; remote.Cluster is one. The methods fail while the worker is not connected.
type Connection interface {
	// Client reads copies, pods, and metadata of namespaces and runtimes from the connection's caches, and writes to the
	// worker.
	Client() (client.Client, error)
	// APIReader reads from the worker's API server.
	APIReader() (client.Reader, error)
}

// Worker is a connected worker.
type Worker struct {
	// Client is the client of the connection.
	client.Client
	// Name is the worker's name.
	Name       v1alpha1.ClusterName
	connection Connection
}

// Connect returns a worker. It fails while there is no connection.
func Connect(name v1alpha1.ClusterName, connection Connection) (Worker, error) {
	c, err := connection.Client()
	return Worker{Client: c, Name: name, connection: connection}, err
}

// Cached returns the TrainJob of a name from the caches, nil if they do not show one.
func (w Worker) Cached(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	return w.get(ctx, w.Client, key)
}

// Find returns the TrainJob of a name from the worker's API server, nil if there is none.
func (w Worker) Find(ctx context.Context, key types.NamespacedName) (*unstructured.Unstructured, error) {
	reader, err := w.connection.APIReader()
	if err != nil {
		return nil, err
	}
	return w.get(ctx, reader, key)
}

func (w Worker) get(
	ctx context.Context, reader client.Reader, key types.NamespacedName,
) (*unstructured.Unstructured, error) {
	job, err := records.Job(ctx, reader, key)
	if err != nil {
		return nil, fmt.Errorf("on worker %q: %w", w.Name, err)
	}
	return job, nil
}

// DeleteCopy deletes exactly this copy if holds is true of it. Kubernetes deletes its JobSet and pods first. It does
// nothing if the copy is being deleted already, or gone.
func (w Worker) DeleteCopy(ctx context.Context, copy client.Object, holds client.Preconditions) error {
	return w.deleteCopy(ctx, copy, metav1.DeletePropagationForeground, holds)
}

// DeleteFinished is DeleteCopy for a copy without a pod that may run. Kubernetes deletes its JobSet and pods later.
func (w Worker) DeleteFinished(ctx context.Context, copy client.Object) error {
	return w.deleteCopy(ctx, copy, metav1.DeletePropagationBackground, client.Preconditions{})
}

func (w Worker) deleteCopy(
	ctx context.Context, copy client.Object, propagation metav1.DeletionPropagation, holds client.Preconditions,
) error {
	if copy.GetDeletionTimestamp() != nil {
		return nil
	}
	holds.UID = ptr.To(copy.GetUID())
	err := w.Delete(ctx, copy, client.PropagationPolicy(propagation), holds)
	if client.IgnoreNotFound(err) != nil {
		return fmt.Errorf("delete TrainJob %s/%s on worker %q: %w", copy.GetNamespace(), copy.GetName(), w.Name, err)
	}
	return nil
}

// PatchCopy changes a copy, but only if the copy is still as the caller has read it. The worker refuses a field that it does
// not know, such as one that an upgrade of its CRDs has taken out of a translated copy.
func (w Worker) PatchCopy(ctx context.Context, read, updated *unstructured.Unstructured) error {
	patch := client.MergeFromWithOptions(read, client.MergeFromWithOptimisticLock{})
	if err := w.Patch(ctx, updated, patch, records.FieldOwner, client.FieldValidation(metav1.FieldValidationStrict)); err != nil {
		return fmt.Errorf("patch TrainJob %s/%s on worker %q: %w", read.GetNamespace(), read.GetName(), w.Name, err)
	}
	return nil
}
