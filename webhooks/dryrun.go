// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

const (
	ruleBuild          = "Build"
	rulePatchImmutable = "PatchImmutable"
	rulePatchTooEarly  = "PatchBeforeSuspended"

	// dryRunLimit is the time for a dry run. It is well below the webhook's own timeout, which would refuse the request.
	dryRunLimit = 5 * time.Second
)

// dryRun sends the objects of a new TrainJob to the API server as a dry run. A check that is not possible becomes a
// warning: an outage must not block users, and the controller reports the same faults later.
func (v *TrainJobValidator) dryRun(ctx context.Context, job *trainer.TrainJob, r *recipe) checkResult {
	ctx, cancel := context.WithTimeout(ctx, dryRunLimit)
	defer cancel()
	jobSet, found := v.tryBuild(ctx, job, r)
	if jobSet == nil {
		return found
	}
	err := v.client.Get(ctx, client.ObjectKeyFromObject(job), &jobsetv1alpha2.JobSet{})
	found.add(v.tryNew(ctx, job, asNew(jobSet, err == nil)))
	return found
}

// dryRunChange sends the changed JobSet of an existing TrainJob to the API server as a dry run.
func (v *TrainJobValidator) dryRunChange(ctx context.Context, job *trainer.TrainJob, r *recipe) checkResult {
	ctx, cancel := context.WithTimeout(ctx, dryRunLimit)
	defer cancel()
	jobSet, found := v.tryBuild(ctx, job, r)
	if jobSet == nil {
		return found
	}
	existing := &jobsetv1alpha2.JobSet{}
	err := v.live.Get(ctx, client.ObjectKeyFromObject(job), existing)
	switch {
	case apierrors.IsNotFound(err):
		found.add(v.tryNew(ctx, job, asNew(jobSet, false)))
	case err != nil:
		found.warn("cannot check what the change does to the JobSet: %v", err)
	case !metav1.IsControlledBy(existing, job) || existing.DeletionTimestamp != nil:
		found.add(v.tryNew(ctx, job, asNew(jobSet, true)))
	default:
		found.add(v.tryChange(ctx, job, existing, jobSet))
	}
	return found
}

// tryBuild makes the JobSet. nil: the result says why there is none.
func (v *TrainJobValidator) tryBuild(
	ctx context.Context, job *trainer.TrainJob, r *recipe,
) (jobSet *unstructured.Unstructured, found checkResult) {
	defer func() {
		if p := recover(); p != nil {
			jobSet, found = nil, checkResult{faults: []fault{panicked(ctx, p, job, r)}}
		}
	}()
	jobSet, err := v.built(ctx, job, r)
	switch {
	case err == nil:
	case isRefusal(err) || !isOutage(err):
		detail := fmt.Sprintf("the runtime framework cannot make a JobSet of %s and this TrainJob: %v", r, err)
		found.faults = []fault{{rule: ruleBuild, err: invalid(runtimeRefPath.Child("name"), detail)}}
	default:
		found.warn("cannot check the JobSet: %v", err)
	}
	return jobSet, found
}

// tryNew sends a new JobSet, and a pod of each of its replicated jobs.
func (v *TrainJobValidator) tryNew(ctx context.Context, job *trainer.TrainJob, jobSet *unstructured.Unstructured) checkResult {
	answer, err := v.apply(ctx, jobSet)
	if err == nil {
		return v.tryPods(ctx, job, answer)
	}
	answer, notTyped := typed(jobSet)
	if notTyped != nil {
		return checkResult{warnings: []string{fmt.Sprintf("cannot check the JobSet: %v", notTyped)}}
	}
	found := jobSetResult(err, job, answer)
	found.add(v.tryPods(ctx, job, answer))
	return found
}

// tryChange sends a change of a JobSet. Immutable fields may change if it never started: the controller recreates it.
func (v *TrainJobValidator) tryChange(
	ctx context.Context, job *trainer.TrainJob, existing *jobsetv1alpha2.JobSet, jobSet *unstructured.Unstructured,
) checkResult {
	if !isSuspended(job) && !ptr.Deref(existing.Spec.Suspend, false) {
		return checkResult{faults: []fault{{rule: rulePatchTooEarly, err: field.Forbidden(patchesPath, "the JobSet is not "+
			"suspended yet, so patches in the same request as the resumption would not reach it: try again when the JobSet "+
			"is suspended, or write the patches first and resume in a later request")}}}
	}
	answer, err := v.apply(ctx, jobSet)
	switch {
	case err == nil:
		return v.tryPods(ctx, job, answer)
	case !isImmutable(err):
		return jobSetResult(err, job, existing)
	}
	started, notKnown := v.hasStarted(ctx, existing)
	if notKnown != nil {
		return checkResult{warnings: []string{fmt.Sprintf("cannot check whether the JobSet has run, after which it cannot "+
			"change: %v", notKnown)}}
	}
	if !started {
		return v.tryNew(ctx, job, asNew(jobSet, true))
	}
	return checkResult{faults: []fault{{rule: rulePatchImmutable, err: field.Forbidden(patchesPath, fmt.Sprintf(
		"the JobSet cannot take this change: %s; as it may have run already, only labels, annotations, nodeSelector, "+
			"tolerations and schedulingGates of its pods can change: leave the rest as it is, or create the TrainJob again", words(err)))}}}
}

// tryPods sends a pod of each replicated job, all at the same time.
func (v *TrainJobValidator) tryPods(ctx context.Context, job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet) checkResult {
	results := make([]checkResult, len(jobSet.Spec.ReplicatedJobs))
	var pods sync.WaitGroup
	for i := range jobSet.Spec.ReplicatedJobs {
		step := &jobSet.Spec.ReplicatedJobs[i]
		if ptr.Deref(step.Template.Spec.Parallelism, 1) == 0 {
			continue // A TrainJob can have zero nodes. Then this pod is never made.
		}
		pods.Go(func() {
			defer logPanic(ctx)
			err := v.client.Create(ctx, podOf(jobSet, step), client.DryRunAll)
			results[i] = podResult(err, job, step)
		})
	}
	pods.Wait()
	var found checkResult
	for _, one := range results {
		found.add(one)
	}
	return found
}

// logPanic keeps the process alive: controller-runtime recovers from panics only in the goroutine of the request.
func logPanic(ctx context.Context) {
	if p := recover(); p != nil {
		ctrl.LoggerFrom(ctx).Error(nil, "Check of a pod panicked", "panic", p, "stack", string(debug.Stack()))
	}
}
