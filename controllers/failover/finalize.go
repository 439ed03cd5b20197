// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// discard deletes the Dispatch of a job that is gone or going. Its finalizer keeps it until its copy is gone, or a Tombstone is written.
func (r *Reconciler) discard(ctx context.Context, o *observation, t task) error {
	f, err := r.confirm(ctx, o, t)
	if err != nil {
		return err
	}
	if err := r.Hub.Delete(ctx, f.dispatch.DeepCopy(), client.Preconditions{UID: &f.dispatch.UID}); err != nil {
		return fmt.Errorf("delete Dispatch %s/%s: %w", f.dispatch.Namespace, f.dispatch.Name, err)
	}
	return nil
}

// release lets a deleted Dispatch go. What it would have done is written down first.
func (r *Reconciler) release(ctx context.Context, o *observation, t task) error {
	f, err := r.confirm(ctx, o, t)
	if err != nil {
		return err
	}
	d := f.dispatch
	if f.jobStays() && !d.AttemptEnded() { // The job is about to be placed again, and its next copy to speak.
		if err := r.attempts.TakeBackStatus(ctx, f.job); err != nil {
			return err
		}
	}
	if err := r.bury(ctx, o, d); err != nil {
		return err
	}
	updated := d.DeepCopy()
	controllerutil.RemoveFinalizer(updated, v1alpha1.FinalizerCopy)
	patch := client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Patch(ctx, updated, patch, fieldOwner); err != nil {
		return fmt.Errorf("remove finalizer of Dispatch %s/%s: %w", d.Namespace, d.Name, err)
	}
	log.FromContext(ctx).Info("Let go a deleted Dispatch against a Tombstone", "workerCluster", o.name, "dispatch", client.ObjectKeyFromObject(d))
	return nil
}

// bury writes the Tombstone of what the worker may have of the job.
func (r *Reconciler) bury(ctx context.Context, o *observation, d *v1alpha1.Dispatch) error {
	spec := v1alpha1.TombstoneSpec{
		Cluster: o.name, ClusterID: o.clusterID(d), TrainJob: d.Spec.TrainJob, Namespace: d.Namespace, Attempt: d.Spec.Attempt,
	}
	if spec.ClusterID == "" {
		return nil // Nothing is written to a worker before its ID is on record, so it has nothing.
	}
	for _, name := range tombstoneNames(d) {
		err := r.Hub.Create(ctx, &v1alpha1.Tombstone{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}, fieldOwner)
		if err == nil {
			tombstonesWritten.WithLabelValues(string(o.name)).Inc()
			return nil
		}
		if !apierrors.IsAlreadyExists(err) {
			return fmt.Errorf("create Tombstone of TrainJob %s/%s on worker %q: %w", d.Namespace, d.Name, o.name, err)
		}
		if found, err := isTombstone(ctx, r.HubReader, name, spec); found || err != nil {
			return err
		}
	}
	return nil
}

// tombstoneNames are the names that a Tombstone may have: that of its TrainJob's UID, and another if the job has one already, of another
// worker that was lost before.
func tombstoneNames(d *v1alpha1.Dispatch) []string {
	uid := d.Spec.TrainJob.UID
	return []string{string(uid), fmt.Sprintf("%s-%d", uid, d.Spec.Attempt)}
}

// isBuried is true if there is a Tombstone of the Dispatch's attempt on this worker.
func (r *Reconciler) isBuried(ctx context.Context, o *observation, d *v1alpha1.Dispatch) (bool, error) {
	spec := v1alpha1.TombstoneSpec{ClusterID: o.clusterID(d), TrainJob: d.Spec.TrainJob, Attempt: d.Spec.Attempt}
	for _, name := range tombstoneNames(d) {
		if found, err := isTombstone(ctx, r.Hub, name, spec); found || err != nil {
			return found, err
		}
	}
	return false, nil
}

// isTombstone is true if the Tombstone of that name is about this job, on this cluster, up to this attempt at least.
func isTombstone(ctx context.Context, reader client.Reader, name string, spec v1alpha1.TombstoneSpec) (bool, error) {
	tombstone := &v1alpha1.Tombstone{}
	if err := reader.Get(ctx, client.ObjectKey{Name: name}, tombstone); err != nil {
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return false, fmt.Errorf("get Tombstone %q: %w", name, err)
	}
	there := tombstone.Spec
	return there.ClusterID == spec.ClusterID && there.TrainJob.UID == spec.TrainJob.UID && there.Attempt >= spec.Attempt, nil
}
