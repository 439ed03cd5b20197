// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
)

const (
	ruleBuild          = "Build"
	rulePatchImmutable = "PatchImmutable"
	rulePatchTooEarly  = "PatchBeforeSuspended"

	// dryRunLimit is the time for a dry run. It is well below the webhook's own timeout, which would refuse the request.
	dryRunLimit = 5 * time.Second
)

// DryRun sends the objects of a new TrainJob to the API server as a dry run. A check that is not possible becomes a
// warning: an outage must not block users, and the controller reports the same faults later. The pods are what admission
// makes of one pod of each replicated job; pods that could not be checked are not among them. on says whether what the
// pods name must be there.
func (c *Checker) DryRun(
	ctx context.Context, job *trainer.TrainJob, r *Runtime, on OnMissing,
) ([]trainjobs.AdmittedPod, Result) {
	ctx, cancel := context.WithTimeout(ctx, dryRunLimit)
	defer cancel()
	made, found := c.tryBuild(ctx, job, r)
	if made == nil {
		return nil, found
	}
	var missing Result
	var reads sync.WaitGroup
	reads.Go(func() {
		defer logPanic(ctx)
		missing = c.dependencies(ctx, job, made, on)
	})
	err := c.client.Get(ctx, client.ObjectKeyFromObject(job), &jobsetv1alpha2.JobSet{})
	pods, tried := c.tryNew(ctx, job, asNew(made.jobSet, err == nil))
	reads.Wait()
	found.Add(tried)
	found.Add(missing)
	return pods, found
}

// DryRunChange sends the changed JobSet of an existing TrainJob to the API server as a dry run.
func (c *Checker) DryRunChange(ctx context.Context, job *trainer.TrainJob, r *Runtime) Result {
	ctx, cancel := context.WithTimeout(ctx, dryRunLimit)
	defer cancel()
	made, found := c.tryBuild(ctx, job, r)
	if made == nil {
		return found
	}
	jobSet := made.jobSet
	existing := &jobsetv1alpha2.JobSet{}
	err := c.live.Get(ctx, client.ObjectKeyFromObject(job), existing)
	switch {
	case apierrors.IsNotFound(err):
		_, tried := c.tryNew(ctx, job, asNew(jobSet, false))
		found.Add(tried)
	case err != nil:
		found.Warn("cannot check what the change does to the JobSet: %v", err)
	case !metav1.IsControlledBy(existing, job) || existing.DeletionTimestamp != nil:
		_, tried := c.tryNew(ctx, job, asNew(jobSet, true))
		found.Add(tried)
	default:
		found.Add(c.tryChange(ctx, job, existing, jobSet))
	}
	return found
}

// tryBuild makes the JobSet. nil: the result says why there is none.
func (c *Checker) tryBuild(ctx context.Context, job *trainer.TrainJob, r *Runtime) (made *built, found Result) {
	defer func() {
		if p := recover(); p != nil {
			made, found = nil, Result{Faults: []Fault{panicked(ctx, p, job, r)}}
		}
	}()
	made, err := c.build(ctx, job, r)
	switch {
	case err == nil:
		found = processWarnings(job, made)
	case isRefusal(err) || !isOutage(err):
		detail := fmt.Sprintf("the runtime framework cannot make a JobSet of %s and this TrainJob: %v", r, err)
		found.Faults = []Fault{{Rule: ruleBuild, Err: invalid(runtimeRefPath.Child("name"), detail)}}
	default:
		found.Warn("cannot check the JobSet: %v", err)
	}
	return made, found
}

// tryNew sends a new JobSet, and a pod of each of its replicated jobs.
func (c *Checker) tryNew(
	ctx context.Context, job *trainer.TrainJob, jobSet *unstructured.Unstructured,
) ([]trainjobs.AdmittedPod, Result) {
	answer, err := c.apply(ctx, jobSet)
	if err == nil {
		return c.tryPods(ctx, job, answer)
	}
	answer, notTyped := typed(jobSet)
	if notTyped != nil {
		return nil, Result{Warnings: []string{fmt.Sprintf("cannot check the JobSet: %v", notTyped)}}
	}
	found := jobSetResult(err, job, answer)
	pods, tried := c.tryPods(ctx, job, answer)
	found.Add(tried)
	return pods, found
}

// tryChange sends a change of a JobSet. Immutable fields may change if it never started: the controller recreates it.
func (c *Checker) tryChange(
	ctx context.Context, job *trainer.TrainJob, existing *jobsetv1alpha2.JobSet, jobSet *unstructured.Unstructured,
) Result {
	if !IsSuspended(job) && !ptr.Deref(existing.Spec.Suspend, false) {
		return Result{Faults: []Fault{{Rule: rulePatchTooEarly, Err: field.Forbidden(PatchesPath, "the JobSet is not "+
			"suspended yet, so patches in the same request as the resumption would not reach it: try again when the JobSet "+
			"is suspended, or write the patches first and resume in a later request")}}}
	}
	answer, err := c.apply(ctx, jobSet)
	switch {
	case err == nil:
		_, found := c.tryPods(ctx, job, answer)
		return found
	case !isImmutable(err):
		return jobSetResult(err, job, existing)
	}
	started, notKnown := c.hasStarted(ctx, existing)
	if notKnown != nil {
		return Result{Warnings: []string{fmt.Sprintf("cannot check whether the JobSet has run, after which it cannot "+
			"change: %v", notKnown)}}
	}
	if !started {
		_, found := c.tryNew(ctx, job, asNew(jobSet, true))
		return found
	}
	return Result{Faults: []Fault{{Rule: rulePatchImmutable, Err: field.Forbidden(PatchesPath, fmt.Sprintf(
		"the JobSet cannot take this change: %s; as it may have run already, only labels, annotations, nodeSelector, "+
			"tolerations and schedulingGates of its pods can change: leave the rest as it is, or create the TrainJob again", words(err)))}}}
}

// tryPods sends a pod of each replicated job, all at the same time.
func (c *Checker) tryPods(
	ctx context.Context, job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet,
) (admitted []trainjobs.AdmittedPod, found Result) {
	answers := make([]struct {
		pod    *trainjobs.AdmittedPod
		result Result
	}, len(jobSet.Spec.ReplicatedJobs))
	var pods sync.WaitGroup
	for i := range jobSet.Spec.ReplicatedJobs {
		step := &jobSet.Spec.ReplicatedJobs[i]
		if ptr.Deref(step.Template.Spec.Parallelism, 1) == 0 {
			continue // A TrainJob can have zero nodes. Then this pod is never made.
		}
		pods.Go(func() {
			defer logPanic(ctx)
			pod := podOf(jobSet, step)
			err := c.client.Create(ctx, pod, client.DryRunAll)
			answers[i].pod, answers[i].result = admittedPod(err, pod, step), podResult(err, job, step)
		})
	}
	pods.Wait()
	for _, one := range answers {
		found.Add(one.result)
		if one.pod != nil {
			admitted = append(admitted, *one.pod)
		}
	}
	return admitted, found
}

// hasStarted says whether a JobSet may ever have had pods. If not, the controller can recreate it without a loss.
func (c *Checker) hasStarted(ctx context.Context, jobSet *jobsetv1alpha2.JobSet) (bool, error) {
	var jobs batchv1.JobList
	err := c.live.List(ctx, &jobs, client.InNamespace(jobSet.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: jobSet.Name})
	if err != nil {
		return false, fmt.Errorf("list Jobs of JobSet %q: %w", jobSet.Name, err)
	}
	return trainjobs.HasStarted(jobSet, jobs.Items), nil
}

// IsSuspended says whether the user suspends the job.
func IsSuspended(job *trainer.TrainJob) bool {
	return ptr.Deref(job.Spec.Suspend, false)
}

// logPanic keeps the process alive: controller-runtime recovers from panics only in the goroutine of the request.
func logPanic(ctx context.Context) {
	if p := recover(); p != nil {
		ctrl.LoggerFrom(ctx).Error(nil, "Check of a pod panicked", "panic", p, "stack", string(debug.Stack()))
	}
}
