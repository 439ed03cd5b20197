// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TestEventType checks that an Event is a warning if the job waits until somebody repairs something.
func TestEventType(t *testing.T) {
	for reason, want := range map[string]string{
		v1alpha1.ReasonNoFit:             corev1.EventTypeNormal,
		v1alpha1.ReasonRuntimeNotFound:   corev1.EventTypeNormal, // The order of creation does not matter.
		v1alpha1.ReasonTooLarge:          corev1.EventTypeWarning,
		v1alpha1.ReasonAttemptsExhausted: corev1.EventTypeWarning,
	} {
		if got := eventType(reason); got != want {
			t.Errorf("the Event of %s is %s, want %s", reason, got, want)
		}
	}
}
