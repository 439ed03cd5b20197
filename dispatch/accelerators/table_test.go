// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators_test

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/accelerators"
	"github.com/trainyard/trainyard/test/check"
)

func parse(t *testing.T, texts ...string) accelerators.Table {
	t.Helper()
	table, err := accelerators.Parse(texts)
	check.Must(t, err)
	return table
}

func TestUnitIn(t *testing.T) {
	table := parse(t, "example.com/npu=Device", "example.com/npu-*=Share", "volcano.sh/gpu-number=Share", "nvidia.com/gpu.shared=Percent")
	for name, want := range map[corev1.ResourceName]accelerators.Unit{
		"nvidia.com/gpu": accelerators.Device, "nvidia.com/mig-1g.5gb": accelerators.Share, "nvidia.com/mig-1g.5gb.shared": accelerators.Share,
		"nvidia.com/gpumem": "", "nvidia.com/gpumem-percentage": "", "nvidia.com/gpucores": "", "nvidia.com/priority": "",
		"amd.com/gpu": accelerators.Device, "amd.com/spx_nps1": accelerators.Device, "amd.com/cpx_nps4": accelerators.Share, "amd.com/dpx_nps1": accelerators.Share,
		"gpu.intel.com/i915": accelerators.Device, "gpu.intel.com/xe": accelerators.Device, "gpu.intel.com/i915_monitoring": "",
		"gpu.intel.com/millicores": "", "gpu.intel.com/memory.max": "", "habana.ai/gaudi": accelerators.Device, "google.com/tpu": accelerators.Device,
		"aws.amazon.com/neuron": accelerators.Device, "aws.amazon.com/neurondevice": accelerators.Device, "aws.amazon.com/neuroncore": accelerators.Share,
		"huawei.com/Ascend910": accelerators.Device, "huawei.com/Ascend310P": accelerators.Device, "huawei.com/Ascend910-16c": accelerators.Share,
		"huawei.com/Ascend310P-4c.3cpu": accelerators.Share, "huawei.com/Ascend910B-memory": "", "huawei.com/ascend-1980": accelerators.Device,
		"volcano.sh/vgpu-number": accelerators.Share, "volcano.sh/vgpu-memory": "", "volcano.sh/vgpu-cores": "",
		"aliyun.com/gpu-mem": "", "tencent.com/vcuda-core": "", "mthreads.com/gpu": accelerators.Device, "mthreads.com/sgpu-memory": "",
		"vpc.amazonaws.com/efa": "", "rdma/hca_shared_devices_a": "", "cpu": "", "memory": "", "gpu": "", "": "",
		// Further names for the devices of a class.
		"deviceclass.resource.kubernetes.io/gpu": "", "~deviceclass/gpu": "",
		// What the admin has added.
		"example.com/npu": accelerators.Device, "example.com/npu-2c": accelerators.Share, "example.com/npus": "",
		"volcano.sh/gpu-number": accelerators.Share, "nvidia.com/gpu.shared": "",
	} {
		if got := accelerators.UnitIn(table, name, map[corev1.ResourceName]int64{name: 1}); got != want {
			t.Errorf("%q is counted in %q, want %q", name, got, want)
		}
	}
}

// TestSame: a node has several names for the same devices.
func TestSame(t *testing.T) {
	amounts := map[corev1.ResourceName]int64{"aws.amazon.com/neuron": 16, "aws.amazon.com/neuroncore": 128}
	check.Equal(t, "", accelerators.UnitIn(accelerators.Table{}, "aws.amazon.com/neuroncore", amounts), "beside the devices")
	delete(amounts, "aws.amazon.com/neuron")
	check.Equal(t, accelerators.Share, accelerators.UnitIn(accelerators.Table{}, "aws.amazon.com/neuroncore", amounts), "alone")
}

func TestProduct(t *testing.T) {
	table := parse(t, "example.com/npu=Device:example.com/model", "nvidia.com/gpu=Share")
	labels := map[string]string{
		"nvidia.com/gpu.product": "H100", "amd.com/gpu.product-name": "MI300X", "gpu.intel.com/product": "Max_1550",
		"cloud.google.com/gke-tpu-accelerator": "tpu7x", corev1.LabelInstanceTypeStable: "trn1.2xlarge",
		"node.kubernetes.io/npu.chip.name": "910B4", "mthreads.com/gpu.product": "S4000", "example.com/model": "N1", "rack": "r1",
	}
	for name, want := range map[corev1.ResourceName]string{
		"nvidia.com/gpu": "H100", "nvidia.com/mig-1g.5gb": "H100", "amd.com/gpu": "MI300X", "amd.com/cpx_nps4": "MI300X",
		"gpu.intel.com/xe": "Max_1550", "google.com/tpu": "tpu7x", "aws.amazon.com/neuroncore": "trn1.2xlarge", "huawei.com/Ascend910": "910B4",
		"mthreads.com/gpu": "S4000", "example.com/npu": "N1", "habana.ai/gaudi": "", "cpu": "",
	} {
		check.Equal(t, want, table.Product(name, labels), "product of %s", name)
	}
	for label := range labels {
		check.Equal(t, label != "rack", table.IsProduct(label), "IsProduct(%s)", label)
	}
}

func TestParseFaults(t *testing.T) {
	for text, want := range map[string]string{
		"example.com/npu":                 "the unit must be Device, Share, Memory or Percent",
		"example.com/npu=GPU":             "the unit must be Device, Share, Memory or Percent",
		"example.com/npu=device":          "the unit must be",
		"npu=Device":                      `"npu" must be the name of an extended resource`,
		"*=Device":                        "must be the name of an extended resource",
		"example.com/n?u=Device":          "must be the name of an extended resource",
		"kubernetes.io/npu=Device":        "must be the name of an extended resource",
		"=Device":                         "must be the name of an extended resource",
		"":                                "must be the name of an extended resource",
		"example.com/npu=Device:":         "must be the key of a node's label",
		"example.com/npu=Device:a label!": "must be the key of a node's label",
	} {
		if _, err := accelerators.Parse([]string{"example.com/fine=Share", text}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Parse(%q) says %v, want %q", text, err, want)
		}
	}
}

func list(pairs ...string) corev1.ResourceList {
	l := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		l[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return l
}

func TestIn(t *testing.T) {
	labels := map[string]string{"nvidia.com/gpu.product": "H100"}
	for name, tc := range map[string]struct {
		reason string
		group  v1alpha1.NodeGroup
		want   []accelerators.Counted
	}{
		"Mixed": {
			reason: "each kind apart",
			group: v1alpha1.NodeGroup{
				Product: "H100", Resource: "nvidia.com/gpu", Labels: labels,
				Allocatable: list("cpu", "8", "nvidia.com/gpu", "4", "nvidia.com/mig-1g.10gb", "7", "nvidia.com/gpucores", "400"),
				Free: []v1alpha1.FreeNodes{
					{GPUs: 4, Nodes: 2, Free: list("nvidia.com/gpu", "4", "nvidia.com/mig-1g.10gb", "3")}, {GPUs: 1, Nodes: 1},
				},
			},
			want: []accelerators.Counted{
				{Resource: "nvidia.com/gpu", Unit: accelerators.Device, Product: "H100", Each: 4, Free: []int64{4, 1}},
				{Resource: "nvidia.com/mig-1g.10gb", Unit: accelerators.Share, Product: "H100", Each: 7, Free: []int64{3, 0}},
			},
		},
		"None": {reason: "no device", group: v1alpha1.NodeGroup{Allocatable: list("cpu", "8", "nvidia.com/gpu", "0")}},
	} {
		t.Run(name, func(t *testing.T) { check.Diff(t, tc.want, accelerators.Table{}.In(&tc.group), tc.reason) })
	}
}

// TestSeen: a reader of statuses counts as the manager that has written them.
func TestSeen(t *testing.T) {
	worker := v1alpha1.WorkerCluster{}
	worker.Status.NodeGroups = []v1alpha1.NodeGroup{
		{Resource: "example.com/npu", Unit: "Device"}, {Resource: "example.com/npu-2c", Unit: "Share"}, {Resource: "nvidia.com/gpu", Unit: "Share"},
		{Resource: "example.com/vgpu"}, {Resource: "volcano.sh/vgpu-cores"}, {Resource: "amd.com/gpu"}, {},
	}
	table := accelerators.Seen([]v1alpha1.WorkerCluster{worker})
	for name, want := range map[corev1.ResourceName]accelerators.Unit{
		"example.com/npu": accelerators.Device, "example.com/npu-2c": accelerators.Share, "nvidia.com/gpu": accelerators.Share, "amd.com/gpu": accelerators.Device,
		"example.com/vgpu": accelerators.Device, "volcano.sh/vgpu-cores": "", "google.com/tpu": accelerators.Device, "": "",
	} {
		check.Equal(t, want, accelerators.UnitIn(table, name, map[corev1.ResourceName]int64{}), "unit of %q", name)
	}
	check.Equal(t, "H100", table.Product("nvidia.com/gpu", map[string]string{"nvidia.com/gpu.product": "H100"}), "the product keeps its label")
}

// TestRows: a row that an earlier one hides has no effect.
func TestRows(t *testing.T) {
	for _, row := range accelerators.Rows() {
		name := corev1.ResourceName(strings.NewReplacer("*", "x", "?", "x").Replace(row.Name))
		found, known := accelerators.Table{}.Of(name)
		if !known || found != row {
			t.Errorf("%s is of row %+v, want %+v", name, found, row)
		}
		if messages := validation.IsQualifiedName(string(name)); len(messages) > 0 {
			t.Errorf("%s cannot be the name of a resource: %v", row.Name, messages)
		}
	}
}
