// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"context"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/trainyard/trainyard/api/dependencies"
	"github.com/trainyard/trainyard/internal/lookup"
)

const ruleDependencies = "Dependencies"

// OnMissing says what is done about objects that the pods of a job name, and that are not there.
type OnMissing int

const (
	// IgnoreMissing looks for no object.
	IgnoreMissing OnMissing = iota
	// WarnOfMissing warns, also of Secrets to pull images with.
	WarnOfMissing
	// RefuseMissing refuses a job whose pods cannot start.
	RefuseMissing
)

// foundByDryRun are the kinds that are not looked for, because the API server refuses a pod without them.
var foundByDryRun = []dependencies.Kind{dependencies.ServiceAccount, dependencies.PriorityClass, dependencies.RuntimeClass}

// dependencies says what the pods of a JobSet name that is not there. Pods without it hang, some of them without a word.
func (c *Checker) dependencies(ctx context.Context, job *trainer.TrainJob, made *built, on OnMissing) (found Result) {
	if on == IgnoreMissing {
		return found
	}
	jobSet, err := typed(made.jobSet)
	if err != nil {
		return found // The dry run says so.
	}
	needs := []dependencies.Need{dependencies.Required}
	if on == WarnOfMissing {
		needs = append(needs, dependencies.ForImages)
	}
	references := slices.DeleteFunc(dependencies.Of(jobSet, made.others...), func(r dependencies.Reference) bool {
		return slices.Contains(foundByDryRun, r.Kind) || !slices.Contains(needs, r.Need)
	})
	states, faults := lookup.Finder{Reader: c.live, Keys: true}.States(ctx, job.Namespace, references)
	for _, err := range faults {
		found.Warn("cannot check whether it is there: %v", err)
	}
	words := func(need dependencies.Need) string {
		return dependencies.Words(dependencies.Missing(references, need, states), job.Namespace)
	}
	if missing := words(dependencies.Required); missing != "" && on == RefuseMissing {
		found.Faults = append(found.Faults, Fault{Rule: ruleDependencies, Err: field.Forbidden(field.NewPath("metadata", "namespace"), missing)})
	} else if missing != "" {
		found.Warn("%s: the pods wait until it is there", missing)
	}
	if missing := words(dependencies.ForImages); missing != "" {
		found.Warn("%s: images that are not public cannot be pulled without it", missing)
	}
	return found
}

// References returns what the pods of a job name, if its runtime is on the cluster and the framework can make a JobSet of
// both. It sends no dry run.
func (c *Checker) References(ctx context.Context, job *trainer.TrainJob) ([]dependencies.Reference, error) {
	if len(c.KindFaults(job)) > 0 {
		return nil, nil
	}
	r, _, err := c.LiveRuntime(ctx, job)
	if err != nil || r == nil {
		return nil, err
	}
	made, _ := c.tryBuild(ctx, job, r)
	if made == nil {
		return nil, nil
	}
	jobSet, err := typed(made.jobSet)
	if err != nil {
		return nil, fmt.Errorf("decode JobSet: %w", err)
	}
	return dependencies.Of(jobSet, made.others...), nil
}
