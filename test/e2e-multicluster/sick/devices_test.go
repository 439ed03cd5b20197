// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package sick

import (
	"context"
	"fmt"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// npu is a resource that no node lists: a driver of Dynamic Resource Allocation has the devices.
const npu = corev1.ResourceName("example.com/npu")

// TestDevices: devices that a driver publishes fill up, and become free, and a sick one does not count.
func TestDevices(t *testing.T) {
	t.Parallel()
	worker := y.Workers[east]
	create := func(object client.Object) {
		t.Helper()
		check.Must(t, worker.Create(t.Context(), object))
		t.Cleanup(func() { check.Must(t, worker.Delete(context.Background(), object)) })
	}
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: "npus-east-0"},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: "npu.example.com", NodeName: ptr.To(east + "-0"),
			Pool: resourceapi.ResourcePool{Name: east + "-0", Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range 4 {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprint("npu-", i)})
	}
	create(slice)
	create(&resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: "npu"},
		Spec: resourceapi.DeviceClassSpec{
			ExtendedResourceName: ptr.To(string(npu)),
			Selectors: []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: `device.driver == "npu.example.com"`}}},
		},
	})
	submit := func(name string, count string) *trainer.TrainJob {
		is := sickness{at: east, change: func(job *trainer.TrainJob) {
			wants := corev1.ResourceList{npu: resource.MustParse(count)}
			job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: wants, Limits: wants}
		}}
		is.job.RunFor = "1h"
		return is.submit(t, name)
	}
	runs := func(job *trainer.TrainJob) {
		t.Helper()
		y.Eventually(t, func(g gomega.Gomega) {
			d := &v1alpha1.Dispatch{}
			g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
			g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning), "%v", d.Status.Explanation)
		})
	}
	first := submit("three-npus", "3")
	runs(first)
	second := submit("two-npus", "2")
	expectWords(t, second, "State: Waiting (NoFit)", "needs a node with 2 example.com/npu free; the most on one node is 1 example.com/npu")

	// A device that becomes sick reduces what there is: of three that are left, the second job takes two.
	check.Must(t, worker.Get(t.Context(), client.ObjectKeyFromObject(slice), slice))
	slice.Spec.Devices[3].Taints = []resourceapi.DeviceTaint{{Key: "sick", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	check.Must(t, worker.Update(t.Context(), slice))
	check.Must(t, y.Hub.Delete(t.Context(), first))
	runs(second)
	expectWords(t, submit("four-npus", "4"), "needs a node with 4 example.com/npu free; the most on one node is 1 example.com/npu")
}
