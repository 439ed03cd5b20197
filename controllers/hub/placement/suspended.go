// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/internal/records"
)

// sayWhetherSuspended gives a job that has no copy the condition Suspended, as the controller of a cluster gives it to
// the jobs that it runs. A job that was never suspended has none. Once the job has a copy, its status comes from the
// copy. MultiKueue writes the status of a job that it dispatches.
func (w *writer) sayWhetherSuspended(ctx context.Context, f observation) error {
	if f.kueue.Standing == kueue.MultiKueue {
		return nil
	}
	if trainjobs.Suspended(f.job) == trainjobs.HasCondition(f.job, trainer.TrainJobSuspended) {
		return nil
	}
	conditions, err := withSuspension(f.job, metav1.NewTime(w.Clock.Now()))
	if err != nil {
		return err
	}
	updated := f.job.DeepCopy()
	if err := unstructured.SetNestedSlice(updated.Object, conditions, "status", "conditions"); err != nil {
		return fmt.Errorf("set conditions of TrainJob %s/%s: %w", f.job.GetNamespace(), f.job.GetName(), err)
	}
	patch := client.MergeFromWithOptions(f.job, client.MergeFromWithOptimisticLock{})
	if err := w.Hub.Status().Patch(ctx, updated, patch, records.FieldOwner); err != nil {
		return fmt.Errorf("patch status of TrainJob %s/%s: %w", f.job.GetNamespace(), f.job.GetName(), err)
	}
	return nil
}

// withSuspension returns the job's conditions with a condition Suspended that says what its spec says.
func withSuspension(job *unstructured.Unstructured, now metav1.Time) ([]any, error) {
	typed, err := trainjobs.Typed(job)
	if err != nil {
		return nil, err
	}
	condition := metav1.Condition{Type: trainer.TrainJobSuspended, LastTransitionTime: now}
	if trainjobs.Suspended(job) {
		condition.Status, condition.Reason = metav1.ConditionTrue, trainer.TrainJobSuspendedReason
		condition.Message = constants.TrainJobSuspendedMessage
	} else {
		condition.Status, condition.Reason = metav1.ConditionFalse, trainer.TrainJobResumedReason
		condition.Message = constants.TrainJobResumedMessage
	}
	meta.SetStatusCondition(&typed.Status.Conditions, condition)
	conditions := make([]any, len(typed.Status.Conditions))
	for i := range typed.Status.Conditions {
		if conditions[i], err = runtime.DefaultUnstructuredConverter.ToUnstructured(&typed.Status.Conditions[i]); err != nil {
			return nil, fmt.Errorf("convert condition of TrainJob %s/%s: %w", job.GetNamespace(), job.GetName(), err)
		}
	}
	return conditions, nil
}
