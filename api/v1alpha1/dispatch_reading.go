// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// IsFinished is true once the copy is Complete or Failed and the hub TrainJob says so.
func (d *Dispatch) IsFinished() bool {
	return meta.IsStatusConditionTrue(d.Status.Conditions, DispatchFinished)
}

// WasCopied is true if the status says that the current attempt has had a copy.
func (d *Dispatch) WasCopied() bool { return d.mirrored() == metav1.ConditionTrue }

// RecordedCopy returns the UID of the current attempt's copy, or "" if the status names none.
func (d *Dispatch) RecordedCopy() types.UID {
	if !d.WasCopied() {
		return ""
	}
	return d.Status.CopyUID
}

// AttemptEnded is true if the status says that the current attempt has no copy and will have none. Only then may the
// Dispatch leave its worker.
func (d *Dispatch) AttemptEnded() bool { return d.mirrored() == metav1.ConditionFalse }

// mirrored returns the status of the Mirrored condition, or "" if the status is not about the current attempt.
func (d *Dispatch) mirrored() metav1.ConditionStatus {
	condition := meta.FindStatusCondition(d.Status.Conditions, DispatchMirrored)
	if condition == nil || d.Status.Attempt != d.Spec.Attempt {
		return ""
	}
	return condition.Status
}
