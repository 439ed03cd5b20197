// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package traces

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/views/trace"
)

// recent is how long ago the spans may have ended that a new leader exports again. It takes less than a minute to find
// another leader, and an exporter keeps spans in its queue for seconds. With a million jobs a day, the spans of two
// minutes fit into the queue of package internal/traces.
const recent = 2 * time.Minute

// Exporter exports spans. It does not wait for anything.
type Exporter interface {
	Export(ctx context.Context, tree *trace.Tree, spans []trace.Span)
}

// Follower exports the traces of jobs. It is for one leader.
type Follower struct {
	// Cache has Dispatches, and TrainJobs unstructured.
	Cache    cache.Cache
	Exporter Exporter
	Clock    clock.PassiveClock
}

// NeedLeaderElection implements manager.LeaderElectionRunnable.
func (f *Follower) NeedLeaderElection() bool { return true }

// Start follows the Dispatches until ctx ends. It implements manager.Runnable.
func (f *Follower) Start(ctx context.Context) error {
	informer, err := f.Cache.GetInformer(ctx, &v1alpha1.Dispatch{})
	if err != nil {
		return fmt.Errorf("watch Dispatches: %w", err)
	}
	handler, err := informer.AddEventHandler(toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(object any, isInInitialList bool) {
			if d, ok := object.(*v1alpha1.Dispatch); ok {
				f.added(ctx, d, isInInitialList)
			}
		},
		UpdateFunc: func(before, after any) {
			if d, ok := after.(*v1alpha1.Dispatch); ok {
				f.changed(ctx, before.(*v1alpha1.Dispatch), d)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch Dispatches: %w", err)
	}
	<-ctx.Done()
	if err := informer.RemoveEventHandler(handler); err != nil {
		return fmt.Errorf("stop watching Dispatches: %w", err)
	}
	return nil
}

// added exports what has ended in a record that is new, or new to this process.
func (f *Follower) added(ctx context.Context, d *v1alpha1.Dispatch, seen bool) {
	job := f.jobOf(ctx, d)
	if job == nil {
		return
	}
	tree := trace.Of(job, d)
	closed := tree.Closed(nil)
	if seen {
		since := f.Clock.Now().Add(-recent)
		closed = slices.DeleteFunc(closed, func(span trace.Span) bool { return span.To.Before(since) })
	}
	f.Exporter.Export(ctx, tree, closed)
}

// changed exports what has ended with a change of the record.
func (f *Follower) changed(ctx context.Context, before, after *v1alpha1.Dispatch) {
	if before.ResourceVersion == after.ResourceVersion {
		return
	}
	job := f.jobOf(ctx, after)
	if job == nil {
		return
	}
	tree := trace.Of(job, after)
	if before.UID != after.UID { // The watch has missed that another record came in its place.
		f.Exporter.Export(ctx, tree, tree.Closed(nil))
		return
	}
	f.Exporter.Export(ctx, tree, tree.Closed(trace.Of(job, before)))
}

// jobOf returns the TrainJob of a record, nil if it is gone. It has no status: the cache of TrainJobs is not as old as
// that of Dispatches, and a span must end with a change of the Dispatch.
func (f *Follower) jobOf(ctx context.Context, d *v1alpha1.Dispatch) *unstructured.Unstructured {
	job := trainjobs.New()
	key := client.ObjectKey{Namespace: d.Namespace, Name: d.Spec.TrainJob.Name}
	if err := f.Cache.Get(ctx, key, job); err != nil || job.GetUID() != d.Spec.TrainJob.UID {
		return nil
	}
	delete(job.Object, "status") // The cache has given a copy.
	return job
}
