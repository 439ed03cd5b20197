// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainjobutil "github.com/kubeflow/trainer/v2/pkg/util/trainjob"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/webhooks/validation"
)

const (
	rulePatchSuspended = "PatchOnlyWhileSuspended"
	rulePatchPods      = "PatchOnlyWithoutPods"

	// mostPods is how many pods an answer names.
	mostPods = 3
)

// mayChange says whether a TrainJob's runtime patches may change now. The TrainJob must be suspended before or after
// the request, so that a queue can patch and resume, or suspend and patch, at once. No pod of it may be alive.
func (v *TrainJobValidator) mayChange(ctx context.Context, old, job *trainer.TrainJob) ([]validation.Fault, error) {
	var faults []validation.Fault
	if !validation.IsSuspended(old) && !validation.IsSuspended(job) {
		faults = append(faults, validation.Fault{Rule: rulePatchSuspended, Err: field.Forbidden(validation.PatchesPath,
			"may change only if the TrainJob is suspended before or after the request: set spec.suspend to true, in this request or before")})
	}
	if trainjobutil.IsManagedByExternalController(job) || trainjobutil.IsTrainJobFinished(job) {
		return faults, nil
	}
	alive, err := v.alivePods(ctx, job)
	if err != nil || len(alive) == 0 {
		return faults, err
	}
	return append(faults, validation.Fault{Rule: rulePatchPods, Err: field.Forbidden(validation.PatchesPath, fmt.Sprintf(
		"may change only while no pod of the TrainJob is running or terminating: %s; suspend the TrainJob and try again when they are gone",
		describePods(alive)))}), nil
}

// alivePods asks the API server: a cache may be late, and the counters of Jobs and JobSets omit terminating pods.
func (v *TrainJobValidator) alivePods(ctx context.Context, job *trainer.TrainJob) ([]corev1.Pod, error) {
	var pods corev1.PodList
	err := v.live.List(ctx, &pods, client.InNamespace(job.Namespace), client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: job.Name})
	if err != nil {
		return nil, fmt.Errorf("list pods of the TrainJob: %w", err)
	}
	var alive []corev1.Pod
	for _, pod := range pods.Items {
		if pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed {
			alive = append(alive, pod)
		}
	}
	return alive, nil
}

func describePods(pods []corev1.Pod) string {
	var texts []string
	for _, pod := range pods[:min(mostPods, len(pods))] {
		state := strings.ToLower(string(pod.Status.Phase))
		if pod.DeletionTimestamp != nil {
			state = "terminating"
		}
		text := fmt.Sprintf("%s is %s", pod.Name, state)
		if pod.Spec.NodeName != "" {
			text += " on node " + pod.Spec.NodeName
		}
		texts = append(texts, text)
	}
	if more := len(pods) - mostPods; more > 0 {
		texts = append(texts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(texts, ", ")
}
