// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	"context"
	"fmt"
	"slices"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	trainjobutil "github.com/kubeflow/trainer/v2/pkg/util/trainjob"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// trainJobWebhook is the webhook's name in metrics.
	trainJobWebhook = "trainjob"

	ruleTTL = "TTLAnnotation"
)

type validatorDeps struct {
	// Client reads from a cache and writes to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// NewRuntimes makes the runtime framework, by "Kind.group".
	NewRuntimes NewRuntimes
	// Clock measures how long an answer takes.
	Clock clock.PassiveClock
}

// TrainJobValidator validates TrainJobs without their status.
//
// It checks a request in two steps. First the form: what the TrainJob names must be in its runtime, and an update must
// be allowed. Then a dry run of the objects, so that the cluster's refusal reaches the user now and not the controller
// later. The dry run needs a correct form. TrainJobs that another controller manages have no dry run.
type TrainJobValidator struct {
	client   client.Client
	live     client.Reader
	runtimes map[string]trainerruntime.Runtime
	clock    clock.PassiveClock
}

var _ admission.Validator[*trainer.TrainJob] = (*TrainJobValidator)(nil)

// newTrainJobValidator returns a validator with its own runtime framework, which has no side effects.
func newTrainJobValidator(ctx context.Context, deps validatorDeps) (*TrainJobValidator, error) {
	runtimes, err := deps.NewRuntimes(ctx, newOnPaper(deps.Client), noIndexes{})
	if err != nil {
		return nil, fmt.Errorf("make the runtime framework of the TrainJob webhook: %w", err)
	}
	return &TrainJobValidator{client: deps.Client, live: deps.Live, runtimes: runtimes, clock: deps.Clock}, nil
}

type checkResult struct {
	faults   []fault
	warnings admission.Warnings
}

func (a *checkResult) add(b checkResult) {
	a.faults = append(a.faults, b.faults...)
	a.warnings = append(a.warnings, b.warnings...)
}

func (a *checkResult) warn(format string, args ...any) {
	a.warnings = append(a.warnings, fmt.Sprintf(format, args...))
}

// ValidateCreate refuses a TrainJob that the cluster cannot run as it asks.
func (v *TrainJobValidator) ValidateCreate(ctx context.Context, job *trainer.TrainJob) (admission.Warnings, error) {
	start := v.clock.Now()
	found, err := v.created(ctx, job)
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

func (v *TrainJobValidator) created(ctx context.Context, job *trainer.TrainJob) (checkResult, error) {
	found := ttlResult(job)
	if kinds := v.kindFaults(job); len(kinds) > 0 {
		found.faults = append(found.faults, kinds...)
		return found, nil
	}
	r, missing, err := v.liveRecipe(ctx, job)
	if err != nil || r == nil {
		found.add(withoutRuntime(job, missing))
		return found, err
	}
	found.add(v.form(ctx, job, r))
	if len(found.faults) == 0 && !trainjobutil.IsManagedByExternalController(job) {
		found.add(v.dryRun(ctx, job, r))
	}
	return found, nil
}

func (v *TrainJobValidator) updated(ctx context.Context, old, job *trainer.TrainJob) (checkResult, error) {
	var found checkResult
	if job.Annotations[v1alpha1.AnnotationTTL] != old.Annotations[v1alpha1.AnnotationTTL] {
		found.faults = ttlFaults(job)
	}
	indices, changed := changedPatches(old, job)
	if !changed {
		return found, nil
	}
	ours := !trainjobutil.IsManagedByExternalController(job)
	mayChange, err := v.mayChange(ctx, old, job)
	if err != nil {
		return found, err
	}
	found.faults = append(found.faults, mayChange...)
	if !ours && len(indices) == 0 {
		return found, nil
	}
	r, missing, err := v.currentRecipe(ctx, job)
	if err != nil || r == nil {
		found.add(withoutRuntime(job, missing))
		return found, err
	}
	found.add(v.changedForm(ctx, old, job, indices, r))
	if len(found.faults) == 0 && ours && !trainjobutil.IsTrainJobFinished(job) {
		found.add(v.dryRunChange(ctx, job, r))
	}
	return found, nil
}

// form checks the form of a new TrainJob.
func (v *TrainJobValidator) form(ctx context.Context, job *trainer.TrainJob, r *recipe) checkResult {
	warnings, theirs := v.opinion(ctx, job, r)
	return checkResult{
		faults:   withOpinion(append(patchFaults(job, allPatches(job), r), envFaults(job, r)...), theirs),
		warnings: warnings,
	}
}

// withoutRuntime handles a TrainJob whose runtime is missing. The TrainJob cannot run here. If another controller
// manages it, it may wait for the runtime or need no runtime here, so the user only gets a warning.
func withoutRuntime(job *trainer.TrainJob, missing []fault) (found checkResult) {
	if !trainjobutil.IsManagedByExternalController(job) {
		return checkResult{faults: missing}
	}
	for _, f := range missing {
		found.warn("%s", f.err.Error())
	}
	return found
}

// changedForm checks the form of what an update brings.
func (v *TrainJobValidator) changedForm(ctx context.Context, old, job *trainer.TrainJob, indices []int, r *recipe) checkResult {
	_, before := v.opinion(ctx, old, r)
	warnings, theirs := v.opinion(ctx, job, r)
	return checkResult{faults: withOpinion(patchFaults(job, indices, r), without(theirs, before)), warnings: warnings}
}

// answer returns each fault once, sorted by path.
func (v *TrainJobValidator) answer(
	ctx context.Context, job *trainer.TrainJob, found checkResult, start time.Time, err error,
) (admission.Warnings, error) {
	log := ctrl.LoggerFrom(ctx).WithValues("trainJob", klog.KObj(job))
	log.V(1).Info("Validated", "faults", len(found.faults), "duration", v.clock.Since(start))
	if err != nil {
		return found.warnings, apierrors.NewInternalError(err)
	}
	return found.warnings, refuse(trainJobWebhook, trainer.TrainJobKind, job.Name, inOrder(found.faults))
}

// inOrder returns each fault once, sorted by path.
func inOrder(faults []fault) []fault {
	slices.SortStableFunc(faults, func(a, b fault) int { return byPath(a.err.Field, b.err.Field) })
	return slices.CompactFunc(faults, func(a, b fault) bool { return a.err.Error() == b.err.Error() })
}

// ttlResult checks the TTL of a new TrainJob.
func ttlResult(job *trainer.TrainJob) checkResult {
	found := checkResult{faults: ttlFaults(job)}
	if _, limited, _ := trainjobs.TTL(job.Annotations); limited && trainjobutil.IsManagedByExternalController(job) {
		found.warn("metadata.annotations[%s]: has no effect on a TrainJob that another controller manages", v1alpha1.AnnotationTTL)
	}
	return found
}

// ttlFaults returns faults for TTL annotations that the controller cannot read.
func ttlFaults(job *trainer.TrainJob) []fault {
	if _, _, err := trainjobs.TTL(job.Annotations); err != nil {
		path := field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationTTL)
		return []fault{{rule: ruleTTL, err: field.Invalid(path, job.Annotations[v1alpha1.AnnotationTTL], err.Error())}}
	}
	return nil
}
