// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package attempts

import (
	"context"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// IsFinal says whether an API server refuses a write for what it says, and so will refuse it again until somebody
// changes something: it is invalid or too large, or admission forbids it.
func IsFinal(err error) bool {
	switch {
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err), apierrors.IsRequestEntityTooLargeError(err):
		return true
	case apierrors.IsForbidden(err): // A namespace that is going takes the job with it.
		return !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
	}
	// What etcd does not take is an error of the API server like any other.
	var status apierrors.APIStatus
	return errors.As(err, &status) && strings.Contains(status.Status().Message, "request is too large")
}

// Refused returns the error of a write, and if it is final says on the Dispatch, in the API server's words, that the
// write is refused. The reason says what of. The caller tries again with a back-off, and says nothing more: the
// condition goes with the next write that succeeds.
func (e Ender) Refused(ctx context.Context, dispatch *v1alpha1.Dispatch, reason string, err error) error {
	if !IsFinal(err) || dispatch.IsFinished() || dispatch.DeletionTimestamp != nil {
		return err
	}
	updated := dispatch.DeepCopy()
	e.tell(updated, reason, err)
	if equality.Semantic.DeepEqual(updated.Status, dispatch.Status) {
		return err
	}
	failed := e.patch(ctx, dispatch, updated)
	if IsFinal(failed) { // The status that is there takes the room.
		shrink(&updated.Status)
		failed = e.patch(ctx, dispatch, updated)
	}
	return errors.Join(err, client.IgnoreNotFound(failed))
}

// tell sets the condition WriteRefused, and for a job that waits what it waits for.
func (e Ender) tell(updated *v1alpha1.Dispatch, reason string, err error) {
	status, now := &updated.Status, e.Clock.Now()
	said := meta.FindStatusCondition(status.Conditions, v1alpha1.DispatchWriteRefused)
	if said != nil && said.Status == metav1.ConditionTrue && said.Reason == reason && said.ObservedGeneration == updated.Generation {
		return // Words that differ each time, with a request's ID say, are not worth a write, which would bring the job back at once.
	}
	SetCondition(status, updated, metav1.Condition{
		Type: v1alpha1.DispatchWriteRefused, Status: metav1.ConditionTrue, Reason: reason, Message: err.Error(),
	}, now)
	if updated.Spec.Cluster == "" {
		SetCondition(status, updated, metav1.Condition{
			Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonWriteRefused, Message: err.Error(),
		}, now)
		status.Phase, status.Reason, status.Explanation = v1alpha1.PhaseWaiting, v1alpha1.ReasonWriteRefused, nil
	}
}

// shrink leaves what controllers decide from, and few words.
func shrink(status *v1alpha1.DispatchStatus) {
	const words = 64
	status.Explanation, status.Steps = nil, nil
	for i := range status.Refusals {
		status.Refusals[i].Message = Shorten(status.Refusals[i].Message, words)
	}
	for i := range status.Conditions {
		if status.Conditions[i].Type != v1alpha1.DispatchWriteRefused {
			status.Conditions[i].Message = Shorten(status.Conditions[i].Message, words)
		}
	}
}

// Accepted takes back what Refused has said with that reason. It is no write if nothing was said.
func (e Ender) Accepted(ctx context.Context, dispatch *v1alpha1.Dispatch, reason string) error {
	condition := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchWriteRefused)
	if condition == nil || condition.Reason != reason {
		return nil
	}
	return e.UpdateStatus(ctx, dispatch, func(status *v1alpha1.DispatchStatus) {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchWriteRefused)
	})
}

// forgetRefusal is for a write of the Dispatch that is about to be made: what was said of the last one is out of date.
func forgetRefusal(status *v1alpha1.DispatchStatus) {
	condition := meta.FindStatusCondition(status.Conditions, v1alpha1.DispatchWriteRefused)
	if condition != nil && condition.Reason != v1alpha1.ReasonTrainJobStatusRefused {
		meta.RemoveStatusCondition(&status.Conditions, v1alpha1.DispatchWriteRefused)
	}
}

// patch writes the status of a Dispatch.
func (e Ender) patch(ctx context.Context, dispatch, updated *v1alpha1.Dispatch) error {
	patch := client.MergeFromWithOptions(dispatch, client.MergeFromWithOptimisticLock{})
	if err := e.Hub.Status().Patch(ctx, updated.DeepCopy(), patch, fieldOwner); err != nil {
		return fmt.Errorf("patch status of Dispatch %s/%s: %w", dispatch.Namespace, dispatch.Name, err)
	}
	return nil
}
