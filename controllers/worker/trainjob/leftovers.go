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
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/internal/health"
)

var errPredecessor = errors.New("waiting for the objects of an earlier TrainJob of the same name to be garbage-collected")

// errPodsLeft: pods of an earlier JobSet may still run. Pods of a new JobSet would have the same host names.
var errPodsLeft = errors.New("waiting for the pods of an earlier JobSet of the same name to end")

// errEarlierJobs: Jobs of an earlier JobSet of the same name may still make pods.
var errEarlierJobs = errors.New("waiting for the Jobs of an earlier JobSet of the same name to be garbage-collected")

// leftoverTime is how long the garbage collector has to delete objects of an earlier TrainJob of the same name. After
// its restart, an API server serves no custom resources for a moment. A garbage collector that asks then forgets their
// objects, and never deletes what they owned. Then the name would be taken for ever.
const leftoverTime = 20 * time.Second

// leftovers are objects of an earlier TrainJob or JobSet of the same name. A job waits until they are gone. If the
// garbage collector forgets some, they are deleted here.
type leftovers struct {
	clients   Clients
	framework *framework
	clock     clock.PassiveClock
}

// await returns errPodsLeft or errEarlierJobs while pods of an earlier JobSet may run or may still be made.
// Deletion in the background removes the JobSet first, then its Jobs, then their pods. A controller that has not seen
// the deletion of a JobSet or Job can still make a Job or pod for it. await cannot exclude that.
func (l *leftovers) await(ctx context.Context, job *trainer.TrainJob) error {
	if err := l.awaitPods(ctx, job); err != nil { // First, because it costs no request.
		return err
	}
	jobs, err := l.clients.jobsOf(ctx, client.ObjectKeyFromObject(job))
	if err != nil {
		return err
	}
	for i := range jobs {
		if !isFinished(&jobs[i]) {
			return fmt.Errorf("%w: Job %s", errEarlierJobs, klog.KObj(&jobs[i]))
		}
	}
	return l.awaitPods(ctx, job) // A Job that was deleted since the first check may have made pods.
}

// awaitPods returns errPodsLeft while pods of an earlier JobSet may run. The end of a pod brings an event.
func (l *leftovers) awaitPods(ctx context.Context, job *trainer.TrainJob) error {
	var pods corev1.PodList
	err := l.clients.Cached.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingFields{health.JobSetIndex: job.Name},
		client.UnsafeDisableDeepCopy) // This function only reads the pods.
	if err != nil {
		return fmt.Errorf("list pods of earlier JobSets of TrainJob %s: %w", klog.KObj(job), err)
	}
	for i := range pods.Items {
		if phase := pods.Items[i].Status.Phase; phase != corev1.PodSucceeded && phase != corev1.PodFailed {
			return fmt.Errorf("%w: pod %s on node %q", errPodsLeft, klog.KObj(&pods.Items[i]), pods.Items[i].Spec.NodeName)
		}
	}
	return nil
}

// isDue says whether the garbage collector has had leftoverTime.
func (l *leftovers) isDue(past *knownJob) bool {
	return !past.waitingSince.IsZero() && l.clock.Since(past.waitingSince) >= leftoverTime
}

// deleteJobSet deletes the JobSet of an earlier TrainJob of the same name, once isDue says so. The cache may be behind.
// If the API server has this TrainJob, the earlier one is gone, because names are unique.
func (l *leftovers) deleteJobSet(ctx context.Context, f observation, past *knownJob) error {
	if !l.isDue(past) {
		return nil
	}
	var job trainer.TrainJob
	if err := l.clients.Live.Get(ctx, client.ObjectKeyFromObject(f.trainJob), &job); err != nil {
		return client.IgnoreNotFound(err)
	}
	if job.UID != f.trainJob.UID {
		return nil // The event of the other TrainJob will start the next pass.
	}
	return l.delete(ctx, f.jobSet)
}

// deleteAwaited deletes what a build waits for, once isDue says so. observe has read the TrainJob live.
func (l *leftovers) deleteAwaited(ctx context.Context, f observation, waiting error, past *knownJob) error {
	switch {
	case !l.isDue(past):
		return nil
	case errors.Is(waiting, errPredecessor):
		return l.deleteSnapshot(ctx, f.trainJob)
	case errors.Is(waiting, errEarlierJobs):
		return l.deleteEarlierJobs(ctx, f.trainJob)
	}
	return nil
}

func (l *leftovers) deleteSnapshot(ctx context.Context, job *trainer.TrainJob) error {
	snapshot, err := l.framework.predecessorsSnapshot(ctx, job)
	if err != nil || snapshot == nil {
		return err
	}
	return l.delete(ctx, snapshot)
}

// deleteEarlierJobs deletes Jobs whose JobSet is gone.
func (l *leftovers) deleteEarlierJobs(ctx context.Context, job *trainer.TrainJob) error {
	key := client.ObjectKeyFromObject(job)
	if err := l.clients.Live.Get(ctx, key, &jobsetv1alpha2.JobSet{}); err == nil || !apierrors.IsNotFound(err) {
		return err // If there is a JobSet, its event will start the next pass.
	}
	jobs, err := l.clients.jobsOf(ctx, key)
	if err != nil {
		return err
	}
	var errs []error
	for i := range jobs {
		if isOfJobSet(&jobs[i], job.Name) {
			errs = append(errs, l.delete(ctx, &jobs[i]))
		}
	}
	return errors.Join(errs...)
}

func isOfJobSet(job *batchv1.Job, name string) bool {
	owner := metav1.GetControllerOf(job)
	return owner != nil && owner.Kind == jobSetKind && owner.Name == name
}

func (l *leftovers) delete(ctx context.Context, object client.Object) error {
	if !object.GetDeletionTimestamp().IsZero() {
		return nil
	}
	ctrl.LoggerFrom(ctx).Info("Deleting what an earlier TrainJob of the same name has left, and the garbage collector too",
		"type", fmt.Sprintf("%T", object), "object", klog.KObj(object), "uid", object.GetUID())
	if err := l.clients.deleteOwner(ctx, object); err != nil {
		return fmt.Errorf("delete %s, which an earlier TrainJob of the same name has left: %w", klog.KObj(object), err)
	}
	return nil
}

// isPredecessors says whether an earlier TrainJob of the same name controls an object.
func isPredecessors(object metav1.Object, job *trainer.TrainJob) bool {
	owner := metav1.GetControllerOf(object)
	return owner != nil && owner.Kind == trainer.TrainJobKind && owner.Name == job.Name && owner.UID != job.UID
}
