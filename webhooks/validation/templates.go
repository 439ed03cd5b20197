// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"strings"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// mostTemplates is how many pod templates one request makes the API server check. A runtime can have any number.
const mostTemplates = 16

// jobSetWebhook is JobSet's own webhook. It knows rules that its CRD cannot have.
const jobSetWebhook = `admission webhook "vjobset.kb.io" denied the request: `

// DryRunOnHub is DryRun on a hub. It sends the JobSet, if the hub has JobSet's CRD, and the pod templates. No pod runs
// on the hub. So quotas, Pod Security, service accounts and policies of the hub do not count: a PodTemplate is validated
// like a pod, but no admission plugin treats it as a pod.
func (c *Checker) DryRunOnHub(ctx context.Context, job *trainer.TrainJob, r *Runtime) Result {
	made, found := c.tryBuild(ctx, job, r)
	if made == nil {
		return found
	}
	sent := asNew(made.jobSet, true)
	answer, err := c.apply(ctx, sent)
	if err != nil {
		var notTyped error
		if answer, notTyped = typed(sent); notTyped != nil {
			found.Warn("Trainyard cannot check the JobSet: %v", notTyped)
			return found
		}
	}
	switch {
	case err == nil, meta.IsNoMatchError(err), apierrors.IsNotFound(err): // Without JobSet's CRD nobody can say more.
	case apierrors.IsForbidden(err) && !isOfJobSet(err) && isRefusal(err):
		found.Warn("the hub itself would refuse the JobSet, which says nothing about workers: %s", words(err))
	default:
		found.Add(jobSetResult(err, job, answer))
	}
	found.Add(c.tryTemplates(ctx, job, answer))
	return found
}

// isOfJobSet says whether JobSet's webhook has refused.
func isOfJobSet(err error) bool {
	status, ok := statusOfError(err)
	return ok && strings.HasPrefix(status.Message, jobSetWebhook)
}

// tryTemplates sends a PodTemplate for each replicated job, all at the same time.
func (c *Checker) tryTemplates(ctx context.Context, job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet) Result {
	steps := jobSet.Spec.ReplicatedJobs
	steps = steps[:min(len(steps), mostTemplates)]
	results := make([]Result, len(steps))
	var requests sync.WaitGroup
	for i := range steps {
		if ptr.Deref(steps[i].Template.Spec.Parallelism, 1) == 0 {
			continue // As on a worker.
		}
		requests.Go(func() {
			defer logPanic(ctx)
			pod := podOf(jobSet, &steps[i])
			template := &corev1.PodTemplate{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name},
				Template:   corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec},
			}
			template.Template.Name, template.Template.Namespace = "", ""
			results[i] = templateResult(c.client.Create(ctx, template, client.DryRunAll), job, &steps[i])
		})
	}
	requests.Wait()
	var found Result
	for _, one := range results {
		found.Add(one)
	}
	return found
}

// templateResult is podResult for a PodTemplate: only what is invalid counts.
func templateResult(err error, job *trainer.TrainJob, step *jobsetv1alpha2.ReplicatedJob) (found Result) {
	switch {
	case err == nil:
	case !apierrors.IsInvalid(err):
		found.Warn("Trainyard cannot check pods of replicated job %q: %v", step.Name, err)
	default:
		status, _ := statusOfError(err)
		for _, cause := range causesOf(status) {
			cause.Field = strings.TrimPrefix(cause.Field, "template.")
			found.Faults = append(found.Faults, podFault(cause, job, step))
		}
	}
	return found
}
