// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package worker

import (
	"context"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainjobutil "github.com/kubeflow/trainer/v2/pkg/util/trainjob"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/api/trainjobs"
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
	_, found, err := v.created(ctx, job)
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

// created also returns what admission makes of the job's pods.
func (v *TrainJobValidator) created(ctx context.Context, job *trainer.TrainJob) ([]trainjobs.AdmittedPod, validation.Result, error) {
	found := validation.TTLResult(job)
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
	pods, tried := v.checker.DryRun(ctx, job, r)
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
