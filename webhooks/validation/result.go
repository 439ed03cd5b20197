// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package validation

import (
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"sigs.k8s.io/controller-runtime/pkg/webhook/admission"
)

// Fault is one thing that is wrong with a request.
type Fault struct {
	// Rule is a constant, for metrics.
	Rule string
	Err  *field.Error
}

// Result is what the checks of a TrainJob have found.
type Result struct {
	Faults   []Fault
	Warnings admission.Warnings
}

// Add adds what another check has found.
func (a *Result) Add(b Result) {
	a.Faults = append(a.Faults, b.Faults...)
	a.Warnings = append(a.Warnings, b.Warnings...)
}

// Warn adds a warning.
func (a *Result) Warn(format string, args ...any) {
	a.Warnings = append(a.Warnings, fmt.Sprintf(format, args...))
}

// Refuse returns an answer with each fault once, sorted by path, or nil if there are none.
func (a *Result) Refuse(webhook, job string) error {
	return Refuse(webhook, trainer.TrainJobKind, job, inOrder(a.Faults))
}

func inOrder(faults []Fault) []Fault {
	slices.SortStableFunc(faults, func(a, b Fault) int { return byPath(a.Err.Field, b.Err.Field) })
	return slices.CompactFunc(faults, func(a, b Fault) bool { return a.Err.Error() == b.Err.Error() })
}

// Refuse returns an answer with all faults, or nil if there are none. Like the API server's own validation, it has code
// 422, reason Invalid and one cause for each field, so that clients show it in the same way.
func Refuse(webhook, kind, name string, faults []Fault) error {
	if len(faults) == 0 {
		return nil
	}
	var list field.ErrorList
	for _, f := range faults {
		recordRefusal(webhook, f.Rule)
		list = append(list, f.Err)
	}
	return apierrors.NewInvalid(schema.GroupKind{Group: trainer.GroupVersion.Group, Kind: kind}, name, list)
}
