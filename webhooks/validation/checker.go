// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	trainjobutil "github.com/kubeflow/trainer/v2/pkg/util/trainjob"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

const ruleTTL = "TTLAnnotation"

// NewRuntimes makes the runtime framework of the trainer module.
type NewRuntimes func(context.Context, client.Client, client.FieldIndexer) (map[string]trainerruntime.Runtime, error)

// Options configures a Checker. All fields are required except Framework.
type Options struct {
	// Client reads from a cache, and sends dry runs to the API server.
	Client client.Client
	// Live reads from the API server.
	Live client.Reader
	// NewRuntimes makes the runtime framework, by "Kind.group". The framework gets its own client and indexer, so it does
	// not disturb a controller of the same manager.
	NewRuntimes NewRuntimes
	// Framework is the client through which the runtime framework reads. nil: Client.
	Framework client.Client
}

// Checker checks TrainJobs without their status against one cluster.
type Checker struct {
	client   client.Client
	live     client.Reader
	runtimes map[string]trainerruntime.Runtime
}

// New returns a Checker with its own runtime framework, which has no side effects.
func New(ctx context.Context, opts Options) (*Checker, error) {
	if opts.Framework == nil {
		opts.Framework = opts.Client
	}
	runtimes, err := opts.NewRuntimes(ctx, newOnPaper(opts.Framework), noIndexes{})
	if err != nil {
		return nil, fmt.Errorf("make the runtime framework of a webhook: %w", err)
	}
	return &Checker{client: opts.Client, live: opts.Live, runtimes: runtimes}, nil
}

// Form checks the form of a new TrainJob.
func (c *Checker) Form(ctx context.Context, job *trainer.TrainJob, r *Runtime) Result {
	warnings, theirs := c.opinion(ctx, job, r)
	return Result{
		Faults:   withOpinion(append(patchFaults(job, allPatches(job), r), envFaults(job, r)...), theirs),
		Warnings: warnings,
	}
}

// ChangedForm checks the form of what an update brings: the patches with these indices, and the rest of the job.
func (c *Checker) ChangedForm(ctx context.Context, old, job *trainer.TrainJob, indices []int, r *Runtime) Result {
	_, before := c.opinion(ctx, old, r)
	warnings, theirs := c.opinion(ctx, job, r)
	return Result{Faults: withOpinion(patchFaults(job, indices, r), without(theirs, before)), Warnings: warnings}
}

// WithoutRuntime handles a TrainJob whose runtime is missing. The TrainJob cannot run here. If another controller
// manages it, it may wait for the runtime or need no runtime here, so the user only gets a warning.
func WithoutRuntime(job *trainer.TrainJob, missing []Fault) (found Result) {
	if !trainjobutil.IsManagedByExternalController(job) {
		return Result{Faults: missing}
	}
	for _, f := range missing {
		found.Warn("%s", f.Err.Error())
	}
	return found
}

// TTLResult checks the TTL of a new TrainJob.
func TTLResult(job *trainer.TrainJob) Result {
	found := Result{Faults: ttlFaults(job)}
	if _, limited, _ := trainjobs.TTL(job.Annotations); limited && trainjobutil.IsManagedByExternalController(job) {
		found.Warn("metadata.annotations[%s]: has no effect on a TrainJob that another controller manages", v1alpha1.AnnotationTTL)
	}
	return found
}

// ChangedTTL checks the TTL of a TrainJob if it has changed.
func ChangedTTL(old, job *trainer.TrainJob) Result {
	if job.Annotations[v1alpha1.AnnotationTTL] == old.Annotations[v1alpha1.AnnotationTTL] {
		return Result{}
	}
	return Result{Faults: ttlFaults(job)}
}

// ttlFaults returns faults for TTL annotations that the controller cannot read.
func ttlFaults(job *trainer.TrainJob) []Fault {
	if _, _, err := trainjobs.TTL(job.Annotations); err != nil {
		path := field.NewPath("metadata", "annotations").Key(v1alpha1.AnnotationTTL)
		return []Fault{{Rule: ruleTTL, Err: field.Invalid(path, job.Annotations[v1alpha1.AnnotationTTL], err.Error())}}
	}
	return nil
}
