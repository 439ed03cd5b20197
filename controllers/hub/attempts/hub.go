// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package attempts

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// OfAnotherHub is true for a copy that says so. Another hub may have been made from the same backup as this one, and knows the same TrainJobs.
// One from which somebody has taken the label does not say it: whose it is, the UID of its TrainJob tells.
func OfAnotherHub(copy metav1.Object, hubID string) bool {
	hub, labelled := copy.GetLabels()[v1alpha1.LabelHub]
	return labelled && hub != hubID
}
