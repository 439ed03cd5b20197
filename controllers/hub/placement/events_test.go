// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TestEventOfReason checks that the Event of a waiting job is a warning if somebody has to repair something, and that it
// shows the workers unless other jobs are the reason.
func TestEventOfReason(t *testing.T) {
	const normal, warning = corev1.EventTypeNormal, corev1.EventTypeWarning
	for reason, want := range map[string]struct {
		kind    string
		workers bool
	}{
		"":                                     {normal, true},
		"OfALaterManager":                      {normal, true},
		v1alpha1.ReasonPlaced:                  {normal, true},
		v1alpha1.ReasonNoWorkers:               {normal, true},
		v1alpha1.ReasonNameConflict:            {normal, true},
		v1alpha1.ReasonRejected:                {normal, true},
		v1alpha1.ReasonNoFit:                   {normal, true},
		v1alpha1.ReasonQueued:                  {normal, false},
		v1alpha1.ReasonReserved:                {normal, false},
		v1alpha1.ReasonPreempting:              {normal, false},
		v1alpha1.ReasonRuntimeNotFound:         {normal, true}, // The order of creation does not matter.
		v1alpha1.ReasonNoPolicy:                {normal, true},
		v1alpha1.ReasonWriteRefused:            {normal, true}, // The condition WriteRefused says it.
		v1alpha1.ReasonInvalidRuntime:          {warning, true},
		v1alpha1.ReasonTooLarge:                {warning, true},
		v1alpha1.ReasonPriorityClassNotFound:   {warning, true},
		v1alpha1.ReasonPriorityClassNotAllowed: {warning, true},
		v1alpha1.ReasonInvalidPolicy:           {warning, true},
		v1alpha1.ReasonInvalidPin:              {warning, true},
		v1alpha1.ReasonUnknownCopy:             {warning, true},
		v1alpha1.ReasonProtectedNamespace:      {warning, true},
		v1alpha1.ReasonAttemptsExhausted:       {warning, true},
		v1alpha1.ReasonWaitingForWorkload:      {normal, true},
		v1alpha1.ReasonSuspended:               {normal, true},
		v1alpha1.ReasonManagedByMultiKueue:     {warning, true},
	} {
		if got := eventType(reason); got != want.kind {
			t.Errorf("the Event of %q is %s, want %s", reason, got, want.kind)
		}
		if got := isAboutWorkers(reason); got != want.workers {
			t.Errorf("isAboutWorkers(%q) = %t, want %t", reason, got, want.workers)
		}
	}
}
