// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/kubeflow/trainer/v2/pkg/constants"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/internal/records"
)

// sayWhetherSuspended gives a suspended job that has no copy the condition Suspended, as the controller of a cluster
// gives it to the jobs that it runs. A job that is not suspended has no such condition: clients would take it for a
// state. Once the job has a copy, its status comes from the copy. MultiKueue writes the status of a job that it
// dispatches.
func (w *writer) sayWhetherSuspended(ctx context.Context, f observation) error {
	if f.kueue.Standing == kueue.MultiKueue {
		return nil
	}
	before, _ := f.job.Object["status"].(map[string]any)
	status := trainjobs.WithoutCondition(before, trainer.TrainJobSuspended, metav1.ConditionTrue, metav1.ConditionFalse)
	if trainjobs.Suspended(f.job) {
		if trainjobs.HasCondition(f.job, trainer.TrainJobSuspended) {
			return nil
		}
		status = withSuspended(status, metav1.NewTime(w.Clock.Now()))
	}
	if equality.Semantic.DeepEqual(before, status) {
		return nil
	}
	updated := f.job.DeepCopy()
	if updated.Object["status"] = status; status == nil {
		delete(updated.Object, "status")
	}
	patch := client.MergeFromWithOptions(f.job, client.MergeFromWithOptimisticLock{})
	if err := w.Hub.Status().Patch(ctx, updated, patch, records.FieldOwner); err != nil {
		return fmt.Errorf("patch status of TrainJob %s/%s: %w", f.job.GetNamespace(), f.job.GetName(), err)
	}
	return nil
}

// withSuspended returns a status with the condition Suspended. It does not change its argument.
func withSuspended(status map[string]any, now metav1.Time) map[string]any {
	status = runtime.DeepCopyJSON(status)
	if status == nil {
		status = map[string]any{}
	}
	conditions, _ := status["conditions"].([]any)
	status["conditions"] = append(conditions, map[string]any{
		"type": trainer.TrainJobSuspended, "status": string(metav1.ConditionTrue), "reason": trainer.TrainJobSuspendedReason,
		"message": constants.TrainJobSuspendedMessage, "lastTransitionTime": now.UTC().Format(time.RFC3339),
	})
	return status
}
