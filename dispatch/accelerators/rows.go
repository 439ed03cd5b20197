// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package accelerators

import corev1 "k8s.io/api/core/v1"

// Row says what the resources of a name are.
type Row struct {
	// Name is the name of the resources. * stands for any text without a slash.
	Name string
	// Vendor is who makes the devices, or the software that divides them.
	Vendor string
	// Unit is in what the resource is counted.
	Unit Unit
	// Label is the label of a node that names the product of its devices. Empty: there is none. * stands for the domain of
	// the resource.
	Label string
	// Same is a resource that counts the same devices once more. On a node that has it, this resource does not count.
	Same corev1.ResourceName
}

// Unit is in what a resource is counted.
type Unit string

// The units of resources.
const (
	// Device: whole devices, which a sum of accelerators counts.
	Device Unit = "Device"
	// Share: parts of devices, such as MIG slices, partitions, cores and replicas. They are counted apart from devices.
	Share Unit = "Share"
	// Memory: memory of devices, in the plugin's own unit. It is not counted.
	Memory Unit = "Memory"
	// Percent: computing time of devices, in percent or so. It is not counted.
	Percent Unit = "Percent"
)

const (
	nvidiaProduct = "nvidia.com/gpu.product"
	amdProduct    = "amd.com/gpu.product-name"
	intelProduct  = "gpu.intel.com/product"
	ascendProduct = "node.kubernetes.io/npu.chip.name"
	neuron        = "aws.amazon.com/neuron"
)

// rows are the names that are known without an admin. The first row that matches a name counts.
var rows = [...]Row{
	{Name: "nvidia.com/gpu", Vendor: "NVIDIA", Unit: Device, Label: nvidiaProduct},
	{Name: "nvidia.com/gpu.shared", Vendor: "NVIDIA", Unit: Share, Label: nvidiaProduct},
	{Name: "nvidia.com/mig-*", Vendor: "NVIDIA", Unit: Share, Label: nvidiaProduct},
	{Name: "amd.com/gpu", Vendor: "AMD", Unit: Device, Label: amdProduct},
	// A GPU in mode SPX is one partition.
	{Name: "amd.com/spx_*", Vendor: "AMD", Unit: Device, Label: amdProduct},
	{Name: "amd.com/?px_*", Vendor: "AMD", Unit: Share, Label: amdProduct},
	{Name: "gpu.intel.com/i915", Vendor: "Intel", Unit: Device, Label: intelProduct},
	{Name: "gpu.intel.com/xe", Vendor: "Intel", Unit: Device, Label: intelProduct},
	{Name: "gpu.intel.com/memory.max", Vendor: "Intel", Unit: Memory, Label: intelProduct},
	{Name: "gpu.intel.com/millicores", Vendor: "Intel", Unit: Percent, Label: intelProduct},
	{Name: "habana.ai/gaudi", Vendor: "Intel", Unit: Device},
	{Name: "google.com/tpu", Vendor: "Google", Unit: Device, Label: "cloud.google.com/gke-tpu-accelerator"},
	// Nodes have two or three of them, for the same devices.
	{Name: neuron, Vendor: "AWS", Unit: Device, Label: corev1.LabelInstanceTypeStable},
	{Name: "aws.amazon.com/neurondevice", Vendor: "AWS", Unit: Device, Label: corev1.LabelInstanceTypeStable, Same: neuron},
	{Name: "aws.amazon.com/neuroncore", Vendor: "AWS", Unit: Share, Label: corev1.LabelInstanceTypeStable, Same: neuron},
	{Name: "huawei.com/Ascend*-memory", Vendor: "Huawei", Unit: Memory, Label: ascendProduct},
	// A virtual NPU has its number of cores in its name, such as huawei.com/Ascend910-16c.
	{Name: "huawei.com/Ascend*-*", Vendor: "Huawei", Unit: Share, Label: ascendProduct},
	{Name: "huawei.com/Ascend*", Vendor: "Huawei", Unit: Device, Label: ascendProduct},
	{Name: "huawei.com/ascend-*", Vendor: "Huawei", Unit: Device, Label: ascendProduct},
	{Name: "huawei.com/npu-core", Vendor: "Huawei", Unit: Share, Label: ascendProduct},
	{Name: "nvidia.com/gpumem", Vendor: "HAMi", Unit: Memory, Label: nvidiaProduct},
	{Name: "nvidia.com/gpumem-percentage", Vendor: "HAMi", Unit: Percent, Label: nvidiaProduct},
	{Name: "nvidia.com/gpucores", Vendor: "HAMi", Unit: Percent, Label: nvidiaProduct},
	{Name: "volcano.sh/vgpu-number", Vendor: "Volcano", Unit: Share, Label: nvidiaProduct},
	{Name: "volcano.sh/vgpu-memory", Vendor: "Volcano", Unit: Memory, Label: nvidiaProduct},
	{Name: "volcano.sh/vgpu-cores", Vendor: "Volcano", Unit: Percent, Label: nvidiaProduct},
	{Name: "volcano.sh/gpu-number", Vendor: "Volcano", Unit: Device, Label: nvidiaProduct},
	{Name: "volcano.sh/gpu-memory", Vendor: "Volcano", Unit: Memory, Label: nvidiaProduct},
	{Name: "aliyun.com/gpu-mem", Vendor: "Alibaba Cloud", Unit: Memory, Label: nvidiaProduct},
	{Name: "tencent.com/vcuda-core", Vendor: "Tencent Cloud", Unit: Percent, Label: nvidiaProduct},
	{Name: "tencent.com/vcuda-memory", Vendor: "Tencent Cloud", Unit: Memory, Label: nvidiaProduct},
	// Most other vendors name their devices so.
	{Name: "*/gpu", Vendor: "others", Unit: Device, Label: "*/gpu.product"},
}

// Rows returns the rows that are known without an admin, in their order.
func Rows() []Row { return rows[:] }
