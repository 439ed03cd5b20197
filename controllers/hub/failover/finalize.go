// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"

	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
)

// discard deletes the Dispatch of a deleted job. A finalizer keeps it until the copy is gone or a Tombstone is written.
func (r *Reconciler) discard(ctx context.Context, o *observation, t task) error {
	f, err := r.confirm(ctx, o, t)
	if err != nil {
		return err
	}
	return r.records.Delete(ctx, f.dispatch)
}

// release lets a deleted Dispatch go. Before that, it writes a Tombstone for the copy.
func (r *Reconciler) release(ctx context.Context, o *observation, t task) error {
	f, err := r.confirm(ctx, o, t)
	if err != nil {
		return err
	}
	d := f.dispatch
	// The job is placed again, with a new copy whose status counts.
	if record.JobStays(f.dispatch, f.job) && record.AttemptOf(d) != record.Ended {
		if err := r.records.TakeBackStatus(ctx, f.job); err != nil {
			return err
		}
	}
	if err := r.addTombstone(ctx, o, d); err != nil {
		return err
	}
	if err := r.records.Release(ctx, d); err != nil {
		return err
	}
	log.FromContext(ctx).Info("Wrote a Tombstone, and removed the finalizer of a deleted Dispatch", "workerCluster", o.name, "dispatch", client.ObjectKeyFromObject(d))
	return nil
}

func (r *Reconciler) addTombstone(ctx context.Context, o *observation, d *v1alpha1.Dispatch) error {
	spec := records.TombstoneOf(d, o.clusterID(d))
	if spec.ClusterID == "" {
		return nil // Nothing is written to a worker before its ID is on record, so the worker has no copy.
	}
	written, err := records.AddTombstone(ctx, r.Hub, r.HubReader, spec)
	if written {
		tombstonesWritten.WithLabelValues(string(o.name)).Inc()
	}
	return err
}

// hasTombstone is true if the Dispatch's attempt has a Tombstone for this worker.
func (r *Reconciler) hasTombstone(ctx context.Context, o *observation, d *v1alpha1.Dispatch) (bool, error) {
	return records.HasTombstone(ctx, r.Hub, records.TombstoneOf(d, o.clusterID(d)))
}
