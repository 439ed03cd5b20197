// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import "k8s.io/apimachinery/pkg/types"

// UnknownCopy is a copy that is not on record.
type UnknownCopy struct {
	// namespace is the namespace of the copy.
	Namespace string `json:"namespace"`
	// name is the name of the copy.
	Name string `json:"name"`
	// uid is the UID of the copy.
	UID types.UID `json:"uid"`
	// originUID is the UID of the hub TrainJob of this copy.
	OriginUID types.UID `json:"originUID"`
	// attempt is the attempt for which the copy was created.
	// +optional
	Attempt int32 `json:"attempt,omitempty"`
	// reason says why the hub does not adopt the copy although it belongs to a later attempt than the hub knows:
	// AttemptTooHigh, AppearedLate, RunsElsewhere or NotAsked. Empty: it does not, or the job is unknown.
	// +optional
	// +kubebuilder:validation:MaxLength=64
	Reason string `json:"reason,omitempty"`
	// message has details.
	// +optional
	// +kubebuilder:validation:MaxLength=1024
	Message string `json:"message,omitempty"`
}
