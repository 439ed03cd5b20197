// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Worker is the connection to the worker. remote.Cluster is one.
type Worker interface {
	// Client reads copies, and metadata of namespaces and runtimes, from the connection's caches and writes to the worker. It
	// fails while the worker is not connected.
	Client() (client.Client, error)
	// APIReader reads from the worker's API server.
	APIReader() (client.Reader, error)
}

// PolicyFunc returns the DispatchPolicy that applies to a TrainJob, nil if none does.
type PolicyFunc func(ctx context.Context, job *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error)

// Options of a mirror. All are required.
type Options struct {
	// Cluster is the worker's name.
	Cluster v1alpha1.ClusterName
	// ClusterID is the ID of the cluster that Worker is a connection to. A Dispatch that was made for another is left alone.
	ClusterID types.UID
	// HubID marks what is ours on the worker.
	HubID string
	// Hub reads from the hub's caches: TrainJobs unstructured, runtimes as metadata.
	Hub client.Client
	// HubReader reads from the hub's API server.
	HubReader client.Reader
	// Worker is the connection.
	Worker Worker
	// Policy finds what may be propagated for a job.
	Policy PolicyFunc
	// Recorder records Events on hub TrainJobs.
	Recorder events.EventRecorder
	// Clock of this process.
	Clock clock.Clock
}

// NewReconciler makes the mirror of one worker. Its keys are those of the hub's Dispatches and of the worker's copies.
func NewReconciler(options Options) reconcile.Reconciler {
	return &reconciler{Options: options, started: options.Clock.Now()}
}
