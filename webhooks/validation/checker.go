// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	trainerruntime "github.com/kubeflow/trainer/v2/pkg/runtime"
	trainjobutil "github.com/kubeflow/trainer/v2/pkg/util/trainjob"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	ruleTTL        = "TTLAnnotation"
	ruleTranslated = "Translated"
)

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

// TranslatedResult refuses a copy that a hub has translated for an older Kubeflow Trainer: the framework would build it
// without what the older field says.
func TranslatedResult(job *trainer.TrainJob) Result {
	into := job.Annotations[v1alpha1.AnnotationTranslatedInto]
	if into == "" || trainjobutil.IsManagedByExternalController(job) {
		return Result{}
	}
	return Result{Faults: []Fault{{Rule: ruleTranslated, Err: field.Forbidden(field.NewPath("spec", into),
		"the worker-agent runs TrainJobs here, and knows only the fields of its own Kubeflow Trainer: install the CRDs of Kubeflow Trainer 2.3, "+
			"with which nothing has to be translated")}}}
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

// Fault is one thing that is wrong with a request.
type Fault struct {
	// Rule is a constant, for metrics.
	Rule string
	Err  *field.Error
}

// Result is what the checks of a TrainJob have found.
type Result struct {
	Faults   []Fault
	Warnings admission.Warnings
}

// Add adds what another check has found.
func (a *Result) Add(b Result) {
	a.Faults = append(a.Faults, b.Faults...)
	a.Warnings = append(a.Warnings, b.Warnings...)
}

// Warn adds a warning.
func (a *Result) Warn(format string, args ...any) {
	a.Warnings = append(a.Warnings, fmt.Sprintf(format, args...))
}

// Refuse returns an answer with each fault once, sorted by path, or nil if there are none.
func (a *Result) Refuse(webhook, job string) error {
	return Refuse(webhook, trainer.TrainJobKind, job, inOrder(a.Faults))
}

func inOrder(faults []Fault) []Fault {
	slices.SortStableFunc(faults, func(a, b Fault) int { return byPath(a.Err.Field, b.Err.Field) })
	return slices.CompactFunc(faults, func(a, b Fault) bool { return a.Err.Error() == b.Err.Error() })
}

// Refuse returns an answer with all faults, or nil if there are none. Like the API server's own validation, it has code
// 422, reason Invalid and one cause for each field, so that clients show it in the same way.
func Refuse(webhook, kind, name string, faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	var list field.ErrorList
	for _, f := range faults {
		recordRefusal(webhook, f.Rule)
		list = append(list, f.Err)
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: trainer.GroupVersion.Group, Kind: kind}, name, list)
}
