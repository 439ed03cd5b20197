// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"errors"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
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
func (w Writer) Refused(ctx context.Context, d *v1alpha1.Dispatch, reason string, err error) error {
	if !IsFinal(err) || d.IsFinished() || d.DeletionTimestamp != nil {
		return err
	}
	updated := d.DeepCopy()
	record.Refuse(updated, reason, err.Error(), w.Clock.Now())
	if equality.Semantic.DeepEqual(updated.Status, d.Status) {
		return err
	}
	failed := w.patchStatus(ctx, d, updated)
	if IsFinal(failed) { // The status that is there takes the room.
		record.Shrink(&updated.Status)
		failed = w.patchStatus(ctx, d, updated)
	}
	return errors.Join(err, client.IgnoreNotFound(failed))
}

// Accepted takes back what Refused has said with that reason. It is no write if nothing was said.
func (w Writer) Accepted(ctx context.Context, d *v1alpha1.Dispatch, reason string) error {
	if !record.IsRefused(&d.Status, reason) {
		return nil
	}
	return w.UpdateStatus(ctx, d, record.Accept)
}
