// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// leftoverTime is how long the garbage collector has to delete objects of an earlier TrainJob of the same name. After
// its restart, an API server serves no custom resources for a moment. A garbage collector that asks then forgets their
// objects, and never deletes what they owned. Then the name would be taken for ever.
const leftoverTime = 20 * time.Second

// isDue says whether the garbage collector has had leftoverTime.
func (r *Reconciler) isDue(past *jobMemory) bool {
	return !past.waitingSince.IsZero() && r.clock.Since(past.waitingSince) >= leftoverTime
}

// deletePredecessorsJobSet deletes the JobSet of an earlier TrainJob of the same name, once isDue says so. The
// cache may be behind. If the API server has this TrainJob, the earlier one is gone, because names are unique.
func (r *Reconciler) deletePredecessorsJobSet(ctx context.Context, f observation, past *jobMemory) error {
	if !r.isDue(past) {
		return nil
	}
	var job trainer.TrainJob
	if err := r.live.Get(ctx, client.ObjectKeyFromObject(f.trainJob), &job); err != nil {
		return client.IgnoreNotFound(err)
	}
	if job.UID != f.trainJob.UID {
		return nil // The event of the other TrainJob will start the next pass.
	}
	return r.deleteLeftover(ctx, f.jobSet)
}

// deleteLeftovers deletes what a build waits for, once isDue says so. observe has read the TrainJob live.
func (r *Reconciler) deleteLeftovers(ctx context.Context, f observation, waiting error, past *jobMemory) error {
	switch {
	case !r.isDue(past):
		return nil
	case errors.Is(waiting, errPredecessor):
		return r.deletePredecessorsSnapshot(ctx, f.trainJob)
	case errors.Is(waiting, errEarlierJobs):
		return r.deleteEarlierJobs(ctx, f.trainJob)
	}
	return nil
}

func (r *Reconciler) deletePredecessorsSnapshot(ctx context.Context, job *trainer.TrainJob) error {
	key := client.ObjectKey{Namespace: job.Namespace, Name: trainjobs.SnapshotName(job.Name)}
	snapshot := &corev1.ConfigMap{}
	if err := r.client.Get(ctx, key, snapshot); err != nil || !isPredecessors(snapshot, job) {
		return client.IgnoreNotFound(err)
	}
	return r.deleteLeftover(ctx, snapshot)
}

// deleteEarlierJobs deletes Jobs whose JobSet is gone.
func (r *Reconciler) deleteEarlierJobs(ctx context.Context, job *trainer.TrainJob) error {
	key := client.ObjectKeyFromObject(job)
	if err := r.live.Get(ctx, key, &jobsetv1alpha2.JobSet{}); err == nil || !apierrors.IsNotFound(err) {
		return err // If there is a JobSet, its event will start the next pass.
	}
	jobs, err := r.jobsOf(ctx, key)
	if err != nil {
		return err
	}
	var errs []error
	for i := range jobs {
		if isOfJobSet(&jobs[i], job.Name) {
			errs = append(errs, r.deleteLeftover(ctx, &jobs[i]))
		}
	}
	return errors.Join(errs...)
}

// isOfJobSet says whether a JobSet of this name controls a Job.
func isOfJobSet(job *batchv1.Job, name string) bool {
	owner := metav1.GetControllerOf(job)
	return owner != nil && owner.Kind == jobSetKind && owner.Name == name
}

func (r *Reconciler) deleteLeftover(ctx context.Context, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting what an earlier TrainJob of the same name has left, and the garbage collector too",
		"type", fmt.Sprintf("%T", object), "object", klog.KObj(object), "uid", object.GetUID())
	if err := r.deleteOwner(ctx, object); err != nil {
		return fmt.Errorf("delete %s, which an earlier TrainJob of the same name has left: %w", klog.KObj(object), err)
	}
	return nil
}
