// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package attempts

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// fieldOwner is the field manager of everything that is written here.
const fieldOwner = client.FieldOwner("trainyard")

// Ender ends attempts.
type Ender struct {
	// Hub is the hub.
	Hub client.Client
	// Clock of this process.
	Clock clock.PassiveClock
}

// End says on the Dispatch that the current attempt has no copy and will have none, so that placement decides again. It is one write,
// and none for an attempt that is over already.
func (e Ender) End(ctx context.Context, dispatch *v1alpha1.Dispatch, outcome v1alpha1.Outcome, message string) error {
	if dispatch.Spec.Cluster == "" || dispatch.AttemptEnded() || dispatch.IsFinished() {
		return nil
	}
	err := e.UpdateStatus(ctx, dispatch, func(status *v1alpha1.DispatchStatus) {
		end(status, dispatch, outcome, message, e.Clock.Now())
	})
	if err != nil {
		return err
	}
	attemptsEnded.WithLabelValues(string(dispatch.Spec.Cluster), string(outcome)).Inc()
	return nil
}

// Finish says on the Dispatch how its job has ended, after the TrainJob says it. It is one write. With show the caller adds what else there is
// to say of the copy.
func (e Ender) Finish(ctx context.Context, dispatch *v1alpha1.Dispatch, end *metav1.Condition, show func(*v1alpha1.DispatchStatus)) error {
	if dispatch.Spec.Cluster == "" || dispatch.IsFinished() {
		return nil
	}
	err := e.UpdateStatus(ctx, dispatch, func(status *v1alpha1.DispatchStatus) {
		finish(status, dispatch, end, e.Clock.Now())
		show(status)
	})
	if err != nil {
		return err
	}
	jobsFinished.WithLabelValues(string(dispatch.Spec.Cluster), end.Type).Inc()
	return nil
}

// UpdateStatus writes a Dispatch's status if change changes it. The Dispatch that was given stays as it is. All
// controllers write through here: what workers and users have said is cut to what the API server takes, and a refusal
// for good is told on the Dispatch.
func (e Ender) UpdateStatus(ctx context.Context, dispatch *v1alpha1.Dispatch, change func(*v1alpha1.DispatchStatus)) error {
	updated := dispatch.DeepCopy()
	forgetRefusal(&updated.Status)
	change(&updated.Status)
	bound(&updated.Status)
	if equality.Semantic.DeepEqual(updated.Status, dispatch.Status) {
		return nil
	}
	return e.Refused(ctx, dispatch, v1alpha1.ReasonDispatchStatusRefused, e.patch(ctx, dispatch, updated))
}

// TakeBackStatus removes from the hub TrainJob what a copy has said that is gone, or given up: its counters are of pods that are no more,
// and what is true of the job now says the Dispatch. What a job's end says stays. It is one write also where job shows no status: the
// cache that it is from may lag behind one that was written, and then it is a conflict.
func (e Ender) TakeBackStatus(ctx context.Context, job *unstructured.Unstructured) error {
	if trainjobs.Terminal(job) != nil {
		return nil
	}
	updated := job.DeepCopy()
	delete(updated.Object, "status") // The CRD does not take an empty one.
	patch := client.MergeFromWithOptions(job, client.MergeFromWithOptimisticLock{})
	if err := e.Hub.Status().Patch(ctx, updated, patch, fieldOwner); err != nil {
		return fmt.Errorf("patch status of TrainJob %s/%s: %w", job.GetNamespace(), job.GetName(), err)
	}
	return nil
}
