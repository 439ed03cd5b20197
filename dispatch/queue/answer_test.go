// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue

import (
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TestWaitsBehind checks that the jobs of a class wait behind the first one if the first one needs room. Otherwise they
// have the reason of the first one.
func TestWaitsBehind(t *testing.T) {
	for reason, want := range map[string]bool{
		v1alpha1.ReasonNoFit:      true,
		v1alpha1.ReasonQueued:     true,
		v1alpha1.ReasonReserved:   true,
		v1alpha1.ReasonPreempting: true,

		"":                                     false,
		"OfALaterManager":                      false,
		v1alpha1.ReasonPlaced:                  false,
		v1alpha1.ReasonNoWorkers:               false,
		v1alpha1.ReasonNameConflict:            false,
		v1alpha1.ReasonRejected:                false,
		v1alpha1.ReasonRuntimeNotFound:         false,
		v1alpha1.ReasonNoPolicy:                false,
		v1alpha1.ReasonWriteRefused:            false,
		v1alpha1.ReasonInvalidRuntime:          false,
		v1alpha1.ReasonTooLarge:                false,
		v1alpha1.ReasonPriorityClassNotFound:   false,
		v1alpha1.ReasonPriorityClassNotAllowed: false,
		v1alpha1.ReasonInvalidPolicy:           false,
		v1alpha1.ReasonInvalidPin:              false,
		v1alpha1.ReasonUnknownCopy:             false,
		v1alpha1.ReasonProtectedNamespace:      false,
		v1alpha1.ReasonAttemptsExhausted:       false,
		v1alpha1.ReasonWaitingForWorkload:      false,
		v1alpha1.ReasonSuspended:               false,
		v1alpha1.ReasonManagedByMultiKueue:     false,
	} {
		if got := waitsBehind(reason); got != want {
			t.Errorf("waitsBehind(%q) = %t, want %t", reason, got, want)
		}
	}
}
