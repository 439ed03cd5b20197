// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks

import (
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// fault is one thing that is wrong with a request.
type fault struct {
	// rule is a constant, for metrics.
	rule string
	err  *field.Error
}

// refuse returns an answer with all faults, or nil if there are none. Like the API server's own validation, it has code
// 422, reason Invalid and one cause for each field, so that clients show it in the same way.
func refuse(webhook, kind, name string, faults []fault) error {
	if len(faults) == 0 {
		return nil
	}
	var list field.ErrorList
	for _, f := range faults {
		recordRefusal(webhook, f.rule)
		list = append(list, f.err)
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: trainer.GroupVersion.Group, Kind: kind}, name, list)
}
