// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"errors"
	"fmt"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// change is why an attempt ends without a copy although its worker has refused nothing: the copy would be another job
// than the job for which the worker was chosen, which no policy has seen and for which no room was counted.
type change struct {
	outcome v1alpha1.Outcome
	words   string
}

func (c change) Error() string { return c.words }

// jobChange is a change on the hub, or one that placement knows of.
func jobChange(format string, args ...any) change {
	return change{v1alpha1.OutcomeJobChanged, fmt.Sprintf(format, args...)}
}

func isChange(err error) bool {
	var own change
	return errors.As(err, &own)
}

// outcomeOf is the outcome of an attempt that ends with an error of the creation.
func outcomeOf(err error) v1alpha1.Outcome {
	if own := (change{}); errors.As(err, &own) {
		return own.outcome
	}
	return v1alpha1.OutcomeRejected
}

// checkJob fails if the job is not the job for which the attempt was placed. Only if the cache shows another job is the
// API server asked: a cache that has just started may be behind what another manager has counted.
func (v *verifier) checkJob(ctx context.Context) error {
	counted := v.seen.dispatch.Spec.Counted
	if counted == nil || trainjobs.Digest(v.seen.job) == counted.Digest {
		return nil
	}
	live, err := records.Job(ctx, v.hubReader, client.ObjectKeyFromObject(v.seen.job))
	switch {
	case err != nil:
		return err
	case live == nil, live.GetUID() != v.seen.job.GetUID(), trainjobs.Digest(live) == counted.Digest:
		return requeue.Outdated("the cache does not show the TrainJob as it is")
	}
	return jobChange("spec or labels of the TrainJob have changed since the job was placed: generation %d was counted, "+
		"and it is %d now", counted.Generation, live.GetGeneration())
}
