// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/test/check"
)

// TestAccelerators: what the flag adds is what the controllers get.
func TestAccelerators(t *testing.T) {
	o := defaultOptions()
	o.accelerators = []string{"example.com/npu=Device", "nvidia.com/gpu=Share"}
	check.Must(t, o.validate())
	for name, want := range map[corev1.ResourceName]accelerators.Unit{"example.com/npu": accelerators.Device, "nvidia.com/gpu": accelerators.Share} {
		check.Equal(t, want, accelerators.UnitIn(o.table, name, corev1.ResourceList{}), "unit of %s", name)
	}
	o.accelerators = []string{"example.com/npu=GPU"}
	if err := o.validate(); err == nil || !strings.Contains(err.Error(), `--accelerators: "example.com/npu=GPU" is not RESOURCE=UNIT`) {
		t.Errorf("the options are valid, or the fault does not say why not: %v", err)
	}
}
