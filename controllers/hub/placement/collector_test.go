// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/test/check"
)

// Metrics never add shares of devices to devices.
func TestDeviceMetrics(t *testing.T) {
	amounts := func(gpus, slices string) corev1.ResourceList {
		return corev1.ResourceList{
			"nvidia.com/gpu": resource.MustParse(gpus), "nvidia.com/mig-1g.10gb": resource.MustParse(slices), "nvidia.com/gpucores": resource.MustParse("800"),
		}
	}
	worker := v1alpha1.WorkerCluster{}
	worker.Name = "east"
	worker.Status.NodeGroups = []v1alpha1.NodeGroup{{
		Product: "H100", Resource: "nvidia.com/gpu", Unit: "Device", Nodes: 3, Labels: map[string]string{"nvidia.com/gpu.product": "H100"},
		Allocatable: amounts("7", "7"),
		Free:        []v1alpha1.FreeNodes{{GPUs: 7, Nodes: 2, Free: amounts("7", "7")}, {GPUs: 1, Nodes: 1, Free: amounts("1", "2")}},
	}, {Nodes: 1}}
	names := map[*prometheus.Desc]string{workerGPUs: "gpus", freeGPUs: "freeGPUs", workerShares: "shares", freeShares: "freeShares"}
	got := map[string]float64{}
	collectGPUs([]v1alpha1.WorkerCluster{worker}, accelerators.Table{}, func(desc *prometheus.Desc, value float64, labels ...string) {
		got[strings.Join(append([]string{names[desc]}, labels...), " ")] = value
	})
	check.Diff(t, map[string]float64{
		"gpus east nvidia.com/gpu H100": 21, "freeGPUs east nvidia.com/gpu H100": 15,
		"shares east nvidia.com/mig-1g.10gb H100": 21, "freeShares east nvidia.com/mig-1g.10gb H100": 16,
	}, got, "metrics")
}
