// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"strings"
	"sync"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// mostTemplates is how many pod templates one request makes the API server check. A runtime can have any number.
const mostTemplates = 16

// jobSetWebhook is JobSet's own webhook. It knows rules that its CRD cannot have.
const jobSetWebhook = `admission webhook "vjobset.kb.io" denied the request: `

// dryRun sends the JobSet to the hub's API server as a dry run, if the hub has JobSet's CRD, and the pod templates. No
// pod runs on the hub. So quotas, Pod Security, service accounts and policies of the hub do not count: a PodTemplate is
// validated like a pod, but no admission plugin treats it as a pod.
func (h *hubValidator) dryRun(ctx context.Context, job *trainer.TrainJob, r *recipe) checkResult {
	unnamed, found := h.jobs.tryBuild(ctx, job, r)
	if unnamed == nil {
		return found
	}
	sent := asNew(unnamed, true)
	answer, err := h.jobs.apply(ctx, sent)
	if err != nil {
		var notTyped error
		if answer, notTyped = typed(sent); notTyped != nil {
			found.warn("Trainyard cannot check the JobSet: %v", notTyped)
			return found
		}
	}
	switch {
	case err == nil, meta.IsNoMatchError(err), apierrors.IsNotFound(err): // Without JobSet's CRD nobody can say more.
	case apierrors.IsForbidden(err) && !isOfJobSet(err) && isRefusal(err):
		found.warn("the hub itself would refuse the JobSet, which says nothing about workers: %s", words(err))
	default:
		found.add(jobSetResult(err, job, answer))
	}
	found.add(h.tryTemplates(ctx, job, answer))
	return found
}

// isOfJobSet says whether JobSet's webhook has refused.
func isOfJobSet(err error) bool {
	status, ok := statusOfError(err)
	return ok && strings.HasPrefix(status.Message, jobSetWebhook)
}

// tryTemplates sends a PodTemplate for each replicated job, all at the same time.
func (h *hubValidator) tryTemplates(ctx context.Context, job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet) checkResult {
	steps := jobSet.Spec.ReplicatedJobs
	steps = steps[:min(len(steps), mostTemplates)]
	results := make([]checkResult, len(steps))
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
			results[i] = templateResult(h.DryRuns.Create(ctx, template, client.DryRunAll), job, &steps[i])
		})
	}
	requests.Wait()
	var found checkResult
	for _, one := range results {
		found.add(one)
	}
	return found
}

// templateResult is podResult for a PodTemplate: only what is invalid counts.
func templateResult(err error, job *trainer.TrainJob, step *jobsetv1alpha2.ReplicatedJob) (found checkResult) {
	switch {
	case err == nil:
	case !apierrors.IsInvalid(err):
		found.warn("Trainyard cannot check pods of replicated job %q: %v", step.Name, err)
	default:
		status, _ := statusOfError(err)
		for _, cause := range causesOf(status) {
			cause.Field = strings.TrimPrefix(cause.Field, "template.")
			found.faults = append(found.faults, podFault(cause, job, step))
		}
	}
	return found
}

// cachedClient reads from a cache, and sends the rest to the API server.
type cachedClient struct {
	client.Client
	reader client.Reader
}

// Get reads from the cache.
func (c cachedClient) Get(ctx context.Context, key client.ObjectKey, object client.Object, opts ...client.GetOption) error {
	return c.reader.Get(ctx, key, object, opts...)
}

// List reads from the cache.
func (c cachedClient) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	return c.reader.List(ctx, list, opts...)
}

// emptyCluster has no objects. The runtime framework looks for earlier objects of the job. There are none on the hub,
// so the manager needs no right to read Secrets or ConfigMaps of users.
type emptyCluster struct{ client.Client }

// Get finds nothing.
func (emptyCluster) Get(_ context.Context, key client.ObjectKey, _ client.Object, _ ...client.GetOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, key.Name)
}

// List finds nothing.
func (emptyCluster) List(context.Context, client.ObjectList, ...client.ListOption) error { return nil }
