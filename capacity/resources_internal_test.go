// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// TestAmountOf checks that an amount that is too large for an int64 is not read as 0 or as another small number.
func TestAmountOf(t *testing.T) {
	for text, want := range map[string]int64{
		"2": 2000, "1500u": 2, "9000000000000000000": largestAmount, "9223372036854775807": largestAmount, "-9000000000000000000": 0,
	} {
		if got := amountOf(corev1.ResourceCPU, resource.MustParse(text)); got != want {
			t.Errorf("%s cores are read as %d thousandths, want %d", text, got, want)
		}
	}
	if got := amountOf(corev1.ResourceMemory, resource.MustParse("8Ei")); got != largestAmount {
		t.Errorf("8Ei of memory are read as %d", got)
	}
}
