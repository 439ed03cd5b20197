// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"errors"

	"k8s.io/apimachinery/pkg/api/equality"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/answers"
)

// IsFinal says whether an API server will always refuse this write: it is invalid or too large, or admission forbids
// it.
func IsFinal(err error) bool {
	answer := answers.Of(err) // In a namespace that is being deleted, the job is being deleted too.
	return answer == answers.Unacceptable || answer == answers.NoRights
}

// Refused returns the error of a write, nil if it succeeded. If the error is final, it also sets a condition on the
// Dispatch with the API server's message. reason names the refused write. The caller retries with a back-off and
// reports nothing more. The next write that succeeds removes the condition.
func (w Writer) Refused(ctx context.Context, d *v1alpha1.Dispatch, reason string, err error) error {
	if state := record.StateOf(d); !IsFinal(err) || state == record.Finished || state == record.Leaving {
		return err
	}
	updated := d.DeepCopy()
	record.SetWriteRefused(updated, reason, err.Error(), w.Clock.Now())
	if equality.Semantic.DeepEqual(updated.Status, d.Status) {
		return err
	}
	failed := w.patchStatus(ctx, d, updated)
	if IsFinal(failed) { // The status itself may be too large.
		record.ShrinkStatus(&updated.Status)
		failed = w.patchStatus(ctx, d, updated)
	}
	return errors.Join(err, client.IgnoreNotFound(failed))
}

// Accepted removes the condition that Refused has set for this reason. It writes nothing if there is none.
func (w Writer) Accepted(ctx context.Context, d *v1alpha1.Dispatch, reason string) error {
	if !record.IsWriteRefused(&d.Status, reason) {
		return nil
	}
	return w.UpdateStatus(ctx, d, record.ClearWriteRefused)
}
