// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apivalidation "k8s.io/apimachinery/pkg/api/validation"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// rebuild handles a refused change of a JobSet. On a suspended JobSet, JobSet's webhook allows changes of pods' labels,
// annotations, node selectors, tolerations and scheduling gates. runtimePatches can have more. rebuild deletes a JobSet
// that has never started and returns nil: the new one has the change. Otherwise it returns the refusal.
func (b *objectBuilder) rebuild(ctx context.Context, f observation, refusal error) error {
	if !f.ownsJobSet() || !isImmutable(refusal) {
		return refusal
	}
	jobs, err := b.clients.jobsOf(ctx, client.ObjectKeyFromObject(f.jobSet))
	if err != nil {
		return errors.Join(refusal, err)
	}
	started := trainjobs.HasStarted(f.jobSet, jobs)
	if started && isSuspended(f.trainJob) {
		// The user wants the pods to stop. This part of the change is possible.
		err = b.clients.suspendJobSet(ctx, f.jobSet)
	}
	if started {
		// The refusal comes last: it lists all replicated jobs, and its end does not fit into an Event.
		return &problem{reason: ReasonApplyFailed, action: "ApplyJobSet", err: fmt.Errorf(
			"the JobSet has run already, so it cannot be replaced: take back the change, or create the TrainJob again: %w",
			errors.Join(refusal, err))}
	}
	if err := b.clients.deleteJobSet(ctx, f.jobSet); err != nil {
		return err
	}
	ctrl.LoggerFrom(ctx).Info("Deleted JobSet that has never started, to make it anew", "refusal", refusal.Error())
	b.announce.rebuilt(f.trainJob)
	return nil
}

// isImmutable says whether the API server refuses only because fields are immutable, not because a value is wrong.
func isImmutable(err error) bool {
	var status apierrors.APIStatus
	if !apierrors.IsInvalid(err) || !errors.As(err, &status) || status.Status().Details == nil {
		return false
	}
	causes := status.Status().Details.Causes
	for _, cause := range causes {
		if cause.Type != metav1.CauseTypeFieldValueInvalid || !strings.Contains(cause.Message, apivalidation.FieldImmutableErrorMsg) {
			return false
		}
	}
	return len(causes) > 0
}
