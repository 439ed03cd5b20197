// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strconv"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/events"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/executionlease/protocol"
)

// hurriedGrace is the grace of pods that must end now. A grace of 0 would only remove the pods from the API server.
const hurriedGrace int64 = 1

// copies stops copies with failover Fenced while this replica leads, and marks outdated copies. A key names a copy.
type copies struct {
	tracker  *tracker
	alarms   *alarms
	client   client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
}

// observation is what one reconcile has read of a copy.
type observation struct {
	job *trainer.TrainJob
	protocol.Copy
	// alive has the pods that Pods counts. The agent may have to shorten their grace.
	alive []*corev1.Pod
}

// Reconcile does what is due for a copy now.
func (c *copies) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	job := &trainer.TrainJob{}
	err := c.client.Get(ctx, request.NamespacedName, job)
	if client.IgnoreNotFound(err) != nil {
		return reconcile.Result{}, err
	}
	if err == nil && isCopy(job) {
		if written, err := c.reportOutdated(ctx, job); apierrors.IsConflict(err) {
			return reconcile.Result{RequeueAfter: minRetryDelay}, nil
		} else if written || err != nil {
			return reconcile.Result{}, err
		}
	}
	var from time.Time
	mine := err == nil && isFenceable(job)
	if mine {
		from, mine = c.tracker.stopsFrom(job)
	}
	if !mine {
		c.alarms.set(request.NamespacedName, time.Time{})
		return reconcile.Result{}, nil
	}
	f, err := c.observe(ctx, job, !c.clock.Now().Before(from))
	if err != nil {
		return reconcile.Result{}, err
	}
	d := c.tracker.decide(job, f.Copy)
	ctrl.LoggerFrom(ctx).V(1).Info("Decided", "action", d.Action.String(), "reason", d.Reason.String(), "alive", f.Pods.Alive)
	if err := c.act(ctx, f, d); apierrors.IsConflict(err) {
		return reconcile.Result{RequeueAfter: minRetryDelay}, nil
	} else if err != nil {
		return reconcile.Result{}, err
	}
	c.alarms.set(request.NamespacedName, d.Again)
	return reconcile.Result{}, nil
}

// observe reads from the caches what a decision about a copy needs. It reads pods only if pods is true.
func (c *copies) observe(ctx context.Context, job *trainer.TrainJob, pods bool) (observation, error) {
	f := observation{job: job, Copy: protocol.Copy{
		Challenge: challengeOf(job),
		Suspended: ptr.Deref(job.Spec.Suspend, false),
		Going:     !job.DeletionTimestamp.IsZero(),
		Started:   len(job.Status.JobsStatus) > 0,
	}}
	f.StoppedFor, f.Stopped = job.Annotations[v1alpha1.AnnotationFenced]
	if f.Started && !pods {
		return f, nil
	}
	jobSet := &jobsetv1alpha2.JobSet{}
	if err := c.client.Get(ctx, keyOf(job), jobSet); client.IgnoreNotFound(err) != nil {
		return f, fmt.Errorf("get JobSet %s: %w", klog.KObj(job), err)
	}
	f.Started = f.Started || metav1.IsControlledBy(jobSet, job)
	if !pods {
		return f, nil
	}
	return f, c.observePods(ctx, &f, jobSet)
}

// observePods reads the pods of the copy, also the pods of an earlier JobSet of the copy. It leaves out the pods of a
// JobSet that has the copy's name but another owner.
func (c *copies) observePods(ctx context.Context, f *observation, jobSet *jobsetv1alpha2.JobSet) error {
	var list corev1.PodList
	err := c.client.List(ctx, &list, client.InNamespace(f.job.Namespace), client.MatchingFields{podIndex: f.job.Name},
		client.UnsafeDisableDeepCopy) // No code here changes these pods.
	if err != nil {
		return fmt.Errorf("list pods of TrainJob %s: %w", klog.KObj(f.job), err)
	}
	foreign := ""
	if jobSet.UID != "" && !metav1.IsControlledBy(jobSet, f.job) {
		foreign = string(jobSet.UID)
	}
	for i := range list.Items {
		pod := &list.Items[i]
		if pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed ||
			foreign != "" && pod.Labels[jobsetv1alpha2.JobSetUIDKey] == foreign {
			continue
		}
		f.alive = append(f.alive, pod)
		f.Pods.Alive++
		if pod.DeletionTimestamp.IsZero() {
			f.Pods.Staying++
		}
		f.Pods.Grace = max(f.Pods.Grace, time.Duration(graceOf(pod))*time.Second)
	}
	return nil
}

// graceOf is how many seconds a pod has to end. For a pod that is being deleted it is the grace of the deletion.
func graceOf(pod *corev1.Pod) int64 {
	if pod.DeletionGracePeriodSeconds != nil {
		return *pod.DeletionGracePeriodSeconds
	}
	return ptr.Deref(pod.Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
}

// act does what was decided, and records an Event.
func (c *copies) act(ctx context.Context, f observation, d decision) error {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	switch d.Action {
	case protocol.Suspend:
		err := c.suspend(ctx, f.job, d.answer)
		if err != nil && d.Urgent && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return errors.Join(err, c.delete(ctx, f.job, d)) // A webhook may refuse changes.
		} else if err != nil {
			return client.IgnoreNotFound(err)
		}
		if !f.Stopped {
			c.recordStop(ctx, f.job, d)
		}
		return nil
	case protocol.Delete:
		return c.delete(ctx, f.job, d)
	case protocol.Shorten:
		return c.hurry(ctx, f)
	case protocol.Leave:
	}
	return nil
}

// reportOutdated writes the later attempt of the job on an outdated copy, once. Such a copy never starts, whatever its
// failover is. If the hub wants to run this copy, the hub has forgotten the later attempt, and must count on from it.
func (c *copies) reportOutdated(ctx context.Context, job *trainer.TrainJob) (written bool, err error) {
	later := c.tracker.later(job)
	text := strconv.FormatInt(later, 10)
	if later == 0 || job.Annotations[v1alpha1.AnnotationLaterAttempt] == text || !job.DeletionTimestamp.IsZero() {
		return false, nil
	}
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	updated := job.DeepCopy()
	metav1.SetMetaDataAnnotation(&updated.ObjectMeta, v1alpha1.AnnotationLaterAttempt, text)
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, updated, patch, fieldOwner); err != nil {
		return false, client.IgnoreNotFound(fmt.Errorf("annotate TrainJob %s: %w", klog.KObj(job), err))
	}
	ctrl.LoggerFrom(ctx).Info("This cluster has had a later attempt of this copy's job", "hub", hubOf(job), "attempt", attemptOf(job), "later", later)
	return true, nil
}

func (c *copies) suspend(ctx context.Context, job *trainer.TrainJob, answer string) error {
	updated := job.DeepCopy()
	updated.Spec.Suspend = new(true)
	updated.Annotations = maps.Clone(job.Annotations)
	updated.Annotations[v1alpha1.AnnotationFenced] = answer
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := c.client.Patch(ctx, updated, patch, fieldOwner); err != nil {
		return fmt.Errorf("suspend TrainJob %s: %w", klog.KObj(job), err)
	}
	return nil
}

// delete deletes a copy in the foreground, so that the copy exists until its pods have ended.
func (c *copies) delete(ctx context.Context, job *trainer.TrainJob, d decision) error {
	err := c.client.Delete(ctx, job, client.Preconditions{UID: &job.UID, ResourceVersion: &job.ResourceVersion},
		client.PropagationPolicy(metav1.DeletePropagationForeground))
	if err != nil {
		return client.IgnoreNotFound(fmt.Errorf("delete TrainJob %s: %w", klog.KObj(job), err))
	}
	d.Action = protocol.Delete
	c.recordStop(ctx, job, d)
	return nil
}

// hurry shortens the grace of the pods that are alive.
func (c *copies) hurry(ctx context.Context, f observation) error {
	errs := make([]error, len(f.alive))
	one := func(i int) {
		pod := f.alive[i]
		if !pod.DeletionTimestamp.IsZero() && graceOf(pod) <= hurriedGrace {
			return
		}
		err := c.client.Delete(ctx, pod, client.Preconditions{UID: &pod.UID}, client.GracePeriodSeconds(hurriedGrace))
		if client.IgnoreNotFound(err) != nil {
			errs[i] = fmt.Errorf("shorten the grace of pod %s: %w", klog.KObj(pod), err)
		}
	}
	if len(f.alive) == 1 {
		one(0)
	} else {
		workqueue.ParallelizeUntil(ctx, concurrency, len(f.alive), one)
	}
	return errors.Join(errs...)
}

// differ says whether an update of a copy can change a decision.
func differ(before, after *trainer.TrainJob) bool {
	return before.Generation != after.Generation || !maps.Equal(before.Annotations, after.Annotations) ||
		!before.DeletionTimestamp.Equal(after.DeletionTimestamp) ||
		(len(before.Status.JobsStatus) > 0) != (len(after.Status.JobsStatus) > 0)
}
