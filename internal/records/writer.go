// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/answers"
)

// FieldOwner is the field manager of all writes of the manager on the hub, and of its writes on workers except copies.
const FieldOwner = client.FieldOwner("trainyard")

// Writer writes Dispatches.
type Writer struct {
	// Hub is the hub.
	Hub client.Client
	// Clock is the clock of this process.
	Clock clock.PassiveClock
	// Accelerators knows the resources that are accelerators. A Writer that ends attempts needs it.
	Accelerators accelerators.Table
}

// Create creates a Dispatch.
func (w Writer) Create(ctx context.Context, d *v1alpha1.Dispatch) error {
	if err := w.Hub.Create(ctx, d, FieldOwner); err != nil {
		return fmt.Errorf("create Dispatch %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}

// Patch writes the differences between two versions of a Dispatch, without the status.
func (w Writer) Patch(ctx context.Context, before, after *v1alpha1.Dispatch) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := w.Hub.Patch(ctx, after, patch, FieldOwner); err != nil {
		return fmt.Errorf("patch Dispatch %s/%s: %w", after.Namespace, after.Name, err)
	}
	return nil
}

// Release removes the finalizer of a deleted Dispatch. The copy has a Tombstone, or ReleaseCopy says that it is gone.
func (w Writer) Release(ctx context.Context, d *v1alpha1.Dispatch) error {
	updated := d.DeepCopy()
	record.RemoveGuard(updated)
	patch := client.MergeFromWithOptions(d, client.MergeFromWithOptimisticLock{})
	if err := w.Hub.Patch(ctx, updated, patch, FieldOwner); err != nil {
		return fmt.Errorf("remove finalizer of Dispatch %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}

// ReleaseCopy is Release for a Dispatch whose copy is known to be gone. An attempt that has not ended on record ends with
// its Dispatch, and what it has cost is counted. With show the caller says what it saw of the copy last, as for EndCopy.
func (w Writer) ReleaseCopy(ctx context.Context, d *v1alpha1.Dispatch, show func(*v1alpha1.DispatchStatus)) error {
	if err := w.Release(ctx, d); err != nil {
		return err
	}
	if record.AttemptOf(d).Live() {
		last := d.Status.DeepCopy()
		show(last)
		w.count(ctx, d, usageOf(d, last, w.Accelerators, w.Clock.Now()))
	}
	return nil
}

// Delete deletes exactly this Dispatch, by UID. The object stays until its finalizers are removed.
func (w Writer) Delete(ctx context.Context, d *v1alpha1.Dispatch) error {
	return w.delete(ctx, d, client.Preconditions{UID: &d.UID})
}

// DeleteUnchanged deletes exactly this version of a Dispatch. A Dispatch that waits may name a worker by now.
func (w Writer) DeleteUnchanged(ctx context.Context, d *v1alpha1.Dispatch) error {
	return w.delete(ctx, d, client.Preconditions{UID: &d.UID, ResourceVersion: &d.ResourceVersion})
}

func (w Writer) delete(ctx context.Context, d *v1alpha1.Dispatch, exactly client.Preconditions) error {
	if err := w.Hub.Delete(ctx, d.DeepCopy(), exactly); err != nil {
		return fmt.Errorf("delete Dispatch %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}

// UpdateStatus writes the status of a Dispatch if change changes it. It does not change d. All controllers write
// through UpdateStatus: it cuts texts to sizes that the API server accepts, and reports a final refusal on the
// Dispatch.
func (w Writer) UpdateStatus(ctx context.Context, d *v1alpha1.Dispatch, change func(*v1alpha1.DispatchStatus)) error {
	updated := d.DeepCopy()
	record.ClearOutdatedRefusal(&updated.Status)
	change(&updated.Status)
	record.BoundStatus(&updated.Status)
	if equality.Semantic.DeepEqual(updated.Status, d.Status) {
		return nil
	}
	err := w.patchStatus(ctx, d, updated)
	return w.Refused(ctx, d, v1alpha1.ReasonDispatchStatusRefused, err)
}

// patchStatus writes the status of a Dispatch.
func (w Writer) patchStatus(ctx context.Context, before, after *v1alpha1.Dispatch) error {
	patch := client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{})
	if err := w.Hub.Status().Patch(ctx, after.DeepCopy(), patch, FieldOwner); err != nil {
		return fmt.Errorf("patch status of Dispatch %s/%s: %w", before.Namespace, before.Name, err)
	}
	return nil
}

// End records on the Dispatch that the current attempt has no copy and will have none, so that the job is placed again.
// It does one write, or none if the attempt has ended already.
func (w Writer) End(ctx context.Context, d *v1alpha1.Dispatch, outcome v1alpha1.Outcome, message string) error {
	return w.EndCopy(ctx, d, outcome, message, func(*v1alpha1.DispatchStatus) {})
}

// EndCopy is End for an attempt whose copy is known to be gone. With show the caller says what it saw of the copy last:
// startTime, firstRunningTime, progress and, as completionTime, when its deletion began. That counts for the history
// only.
func (w Writer) EndCopy(
	ctx context.Context, d *v1alpha1.Dispatch, outcome v1alpha1.Outcome, message string, show func(*v1alpha1.DispatchStatus),
) error {
	if !record.AttemptOf(d).Live() {
		return nil
	}
	var spent usage
	err := w.UpdateStatus(ctx, d, func(status *v1alpha1.DispatchStatus) {
		show(status)
		spent = usageOf(d, status, w.Accelerators, w.Clock.Now())
		run := record.RunOf(status, w.Clock.Now())
		record.End(status, d, outcome, message, w.Clock.Now())
		spent.addTo(status)
		run.AddTo(status)
	})
	if err != nil {
		return err
	}
	attemptsEnded.WithLabelValues(string(d.Spec.Cluster), string(outcome)).Inc()
	w.count(ctx, d, spent)
	return nil
}

// Finish records on the Dispatch how its job has ended. The caller has written the TrainJob before. Finish does one
// write. With show the caller adds the rest of the copy's status.
func (w Writer) Finish(
	ctx context.Context, d *v1alpha1.Dispatch, end *metav1.Condition, show func(*v1alpha1.DispatchStatus),
) error {
	if state := record.AttemptOf(d); state == record.Finished || state == record.Waiting || state == record.GivenUp {
		return nil
	}
	var spent usage
	err := w.UpdateStatus(ctx, d, func(status *v1alpha1.DispatchStatus) {
		record.Finish(status, d, end, w.Clock.Now())
		show(status)
		spent = usageOf(d, status, w.Accelerators, w.Clock.Now())
		spent.addTo(status)
		record.RunOf(status, w.Clock.Now()).AddTo(status)
	})
	if err != nil {
		return err
	}
	jobsFinished.WithLabelValues(string(d.Spec.Cluster), end.Type).Inc()
	w.count(ctx, d, spent)
	return nil
}

// FinishGivenUp records on the Dispatch of a job that was given up that its TrainJob says so. It does one write.
func (w Writer) FinishGivenUp(ctx context.Context, d *v1alpha1.Dispatch, end *metav1.Condition) error {
	err := w.UpdateStatus(ctx, d, func(status *v1alpha1.DispatchStatus) {
		record.FinishGivenUp(status, d, end, w.Clock.Now())
	})
	if err == nil {
		jobsFinished.WithLabelValues("", v1alpha1.ReasonGivenUp).Inc()
	}
	return err
}

// TakeBackStatus removes the status of a deleted or abandoned copy from the hub TrainJob: its counters are of pods that
// do not exist, and the Dispatch has the job's current state. The end of a job stays. It writes even if job shows no
// status: the cache may be older than the last status, and then the write fails with Conflict.
func (w Writer) TakeBackStatus(ctx context.Context, job *unstructured.Unstructured) error {
	if trainjobs.Terminal(job) != nil {
		return nil
	}
	updated := job.DeepCopy()
	delete(updated.Object, "status") // The CRD does not accept an empty status.
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := w.Hub.Status().Patch(ctx, updated, patch, FieldOwner); err != nil {
		return fmt.Errorf("patch status of TrainJob %s/%s: %w", job.GetNamespace(), job.GetName(), err)
	}
	return nil
}

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
