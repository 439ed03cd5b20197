// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"fmt"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainjobutil "github.com/kubeflow/trainer/v2/pkg/util/trainjob"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/webhooks/validation"
)

// trainJobWebhook is the webhook's name in metrics.
const trainJobWebhook = "trainjob"

// TrainJobValidator validates TrainJobs without their status.
//
// An update must be allowed, and the form of the job must be right. Then comes the dry run. TrainJobs that another
// controller manages have no dry run.
type TrainJobValidator struct {
	checker *validation.Checker
	live    client.Reader
	// clock measures how long an answer takes.
	clock clock.PassiveClock
}

var _ admission.Validator[*trainer.TrainJob] = (*TrainJobValidator)(nil)

// NewTrainJobValidator returns a validator that checks jobs against the cluster of the options.
func NewTrainJobValidator(ctx context.Context, opts validation.Options, clock clock.PassiveClock) (*TrainJobValidator, error) {
	checker, err := validation.New(ctx, opts)
	if err != nil {
		return nil, err
	}
	return &TrainJobValidator{checker: checker, live: opts.Live, clock: clock}, nil
}

// ValidateCreate refuses a TrainJob that the cluster cannot run as it asks.
func (v *TrainJobValidator) ValidateCreate(ctx context.Context, job *trainer.TrainJob) (admission.Warnings, error) {
	if _, answered := trainjobs.DecodePods(job); answered && isDryRun(ctx) {
		return nil, nil // The webhook of pods.go has checked it.
	}
	start := v.clock.Now()
	_, found, err := v.created(ctx, job, onMissing(job))
	return v.answer(ctx, job, found, start, err)
}

// ValidateUpdate refuses impossible changes. It ignores faults that the request did not bring: a finalizer can be
// removed and a job suspended whatever happened to the runtime.
func (v *TrainJobValidator) ValidateUpdate(ctx context.Context, old, job *trainer.TrainJob) (admission.Warnings, error) {
	if !job.DeletionTimestamp.IsZero() {
		return nil, nil
	}
	start := v.clock.Now()
	found, err := v.updated(ctx, old, job)
	return v.answer(ctx, job, found, start, err)
}

// ValidateDelete refuses nothing.
func (v *TrainJobValidator) ValidateDelete(context.Context, *trainer.TrainJob) (admission.Warnings, error) {
	return nil, nil
}

// onMissing says what is done about a job whose Secret, say, is not there. The copy of a hub is refused: another worker
// may have the Secret, and the hub asks again later. For other jobs, whose users may apply the Secret next, Kubernetes
// lets the pods wait, and so does the agent.
func onMissing(job *trainer.TrainJob) validation.OnMissing {
	if job.Labels[v1alpha1.LabelHub] != "" {
		return validation.RefuseMissing
	}
	return validation.WarnOfMissing
}

// created also returns what admission makes of the job's pods.
func (v *TrainJobValidator) created(
	ctx context.Context, job *trainer.TrainJob, on validation.OnMissing,
) ([]trainjobs.AdmittedPod, validation.Result, error) {
	found := validation.TTLResult(job)
	found.Add(validation.TranslatedResult(job))
	if kinds := v.checker.KindFaults(job); len(kinds) > 0 {
		found.Faults = append(found.Faults, kinds...)
		return nil, found, nil
	}
	r, missing, err := v.checker.LiveRuntime(ctx, job)
	if err != nil || r == nil {
		found.Add(validation.WithoutRuntime(job, missing))
		return nil, found, err
	}
	found.Add(v.checker.Form(ctx, job, r))
	if len(found.Faults) > 0 || trainjobutil.IsManagedByExternalController(job) {
		return nil, found, nil
	}
	pods, tried := v.checker.DryRun(ctx, job, r, on)
	found.Add(tried)
	found.Add(v.checker.Surprises(job, r))
	found.Add(v.checker.ServiceSurprise(ctx, job, r))
	return pods, found, nil
}

func (v *TrainJobValidator) updated(ctx context.Context, old, job *trainer.TrainJob) (validation.Result, error) {
	found := validation.ChangedTTL(old, job)
	indices, changed := validation.ChangedPatches(old, job)
	if !changed {
		return found, nil
	}
	ours := !trainjobutil.IsManagedByExternalController(job)
	mayChange, err := v.mayChange(ctx, old, job)
	if err != nil {
		return found, err
	}
	found.Faults = append(found.Faults, mayChange...)
	if !ours && len(indices) == 0 {
		return found, nil
	}
	r, missing, err := v.checker.CurrentRuntime(ctx, job)
	if err != nil || r == nil {
		found.Add(validation.WithoutRuntime(job, missing))
		return found, err
	}
	found.Add(v.checker.ChangedForm(ctx, old, job, indices, r))
	if len(found.Faults) == 0 && ours && !trainjobutil.IsTrainJobFinished(job) {
		found.Add(v.checker.DryRunChange(ctx, job, r))
	}
	return found, nil
}

// answer returns each fault once, sorted by path.
func (v *TrainJobValidator) answer(
	ctx context.Context, job *trainer.TrainJob, found validation.Result, start time.Time, err error,
) (admission.Warnings, error) {
	log := ctrl.LoggerFrom(ctx).WithValues("trainJob", klog.KObj(job))
	log.V(1).Info("Validated", "faults", len(found.Faults), "duration", v.clock.Since(start))
	if err != nil {
		return found.Warnings, apierrors.NewInternalError(err)
	}
	return found.Warnings, found.Refuse(trainJobWebhook, job.Name)
}

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
