// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
)

// workerClient is a connected worker whose deleted copies are counted.
type workerClient struct{ copies.Worker }

// connect returns the client of a worker. It fails while there is no connection.
func connect(name v1alpha1.ClusterName, connection copies.Connection) (workerClient, error) {
	worker, err := copies.Connect(name, connection)
	return workerClient{worker}, err
}

// deleteCopy deletes exactly this copy in the foreground.
func (w workerClient) deleteCopy(ctx context.Context, copy client.Object, why string) error {
	if copy.GetDeletionTimestamp() != nil {
		return nil
	}
	return w.deleted(ctx, why, w.DeleteCopy(ctx, copy, client.Preconditions{}))
}

// deleted counts the deletion of a copy, unless it has failed.
func (w workerClient) deleted(ctx context.Context, why string, err error) error {
	if err != nil {
		return err
	}
	log.FromContext(ctx).V(1).Info("Deleted copy", "why", why)
	copiesDeleted.WithLabelValues(string(w.Name), why).Inc()
	return nil
}

// patchCopy changes a copy, unless it is gone, but only if the copy is still as the caller has read it.
func (w workerClient) patchCopy(ctx context.Context, copy, updated *unstructured.Unstructured) error {
	return client.IgnoreNotFound(w.PatchCopy(ctx, copy, updated))
}

// isOurs is true for a TrainJob that is labelled as a copy of this hub.
func isOurs(copy client.Object, hubID string) bool {
	return copy.GetLabels()[v1alpha1.LabelHub] == hubID
}
