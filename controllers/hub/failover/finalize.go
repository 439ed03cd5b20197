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

// discard deletes the Dispatch of a job that is gone or going. Its finalizer keeps it until its copy is gone, or a Tombstone is written.
func (r *Reconciler) discard(ctx context.Context, o *observation, t task) error {
	f, err := r.confirm(ctx, o, t)
	if err != nil {
		return err
	}
	return r.records.Delete(ctx, f.dispatch)
}

// release lets a deleted Dispatch go. What it would have done is written down first.
func (r *Reconciler) release(ctx context.Context, o *observation, t task) error {
	f, err := r.confirm(ctx, o, t)
	if err != nil {
		return err
	}
	d := f.dispatch
	if f.jobStays() && record.AttemptOf(d) != record.Ended { // The job is about to be placed again, and its next copy to speak.
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
	log.FromContext(ctx).Info("Let go a deleted Dispatch against a Tombstone", "workerCluster", o.name, "dispatch", client.ObjectKeyFromObject(d))
	return nil
}

// addTombstone writes the Tombstone of what the worker may have of the job.
func (r *Reconciler) addTombstone(ctx context.Context, o *observation, d *v1alpha1.Dispatch) error {
	spec := records.TombstoneOf(d, o.clusterID(d))
	if spec.ClusterID == "" {
		return nil // Nothing is written to a worker before its ID is on record, so it has nothing.
	}
	written, err := records.AddTombstone(ctx, r.Hub, r.HubReader, spec)
	if written {
		tombstonesWritten.WithLabelValues(string(o.name)).Inc()
	}
	return err
}

// hasTombstone is true if there is a Tombstone of the Dispatch's attempt on this worker.
func (r *Reconciler) hasTombstone(ctx context.Context, o *observation, d *v1alpha1.Dispatch) (bool, error) {
	return records.HasTombstone(ctx, r.Hub, records.TombstoneOf(d, o.clusterID(d)))
}
