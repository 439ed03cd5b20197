// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package sick

import (
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
	"github.com/trainyard/trainyard/test/yard"
)

// npu is a resource that no node lists: a driver of Dynamic Resource Allocation has the devices.
const npu = corev1.ResourceName("example.com/npu")

// TestDevices: devices that a driver publishes fill up, and become free, and a sick one does not count.
func TestDevices(t *testing.T) {
	t.Parallel()
	y.Needs(t, east, "1.36") // Older API servers drop a class's extended resource.
	publish(t, "npu", 0, string(npu))
	submit := func(name string, count string) *trainer.TrainJob {
		is := sickness{at: east, change: func(job *trainer.TrainJob) {
			wants := corev1.ResourceList{npu: resource.MustParse(count)}
			job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: wants, Limits: wants}
		}}
		is.job.RunFor = "1h"
		return is.submit(t, name)
	}
	first := submit("three-npus", "3")
	runs(t, first)
	second := submit("two-npus", "2")
	expectWords(t, second, "State: Waiting (NoFit)", "needs a node with 2 example.com/npu free; the most on one node is 1 example.com/npu")

	slice := &resourceapi.ResourceSlice{ObjectMeta: metav1.ObjectMeta{Name: "npu"}}
	worker := y.Workers[east]
	// A device that becomes sick reduces what there is: of three that are left, the second job takes two.
	check.Must(t, worker.Get(t.Context(), client.ObjectKeyFromObject(slice), slice))
	slice.Spec.Devices[3].Taints = []resourceapi.DeviceTaint{{Key: "sick", Effect: resourceapi.DeviceTaintEffectNoSchedule}}
	check.Must(t, worker.Update(t.Context(), slice))
	check.Must(t, y.Hub.Delete(t.Context(), first))
	runs(t, second)
	expectWords(t, submit("four-npus", "4"), "needs a node with 4 example.com/npu free; the most on one node is 1 example.com/npu")
}

// TestClaims: devices that pods claim by a template fill up, and become free. A job whose template is missing is not
// sent, and neither is one whose claim selects what no device has. It does not run beside other tests: on a busy machine the worker does not say in time what its pods become.
func TestClaims(t *testing.T) {
	y.Needs(t, east, "1.34")
	publish(t, "tpu", 1, "")
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: team}}
	check.Must(t, client.IgnoreAlreadyExists(y.Workers[east].Create(t.Context(), namespace)))
	template := func(name string, count int64, selectors ...resourceapi.DeviceSelector) {
		create(t, y.Workers[east], &resourceapi.ResourceClaimTemplate{
			ObjectMeta: metav1.ObjectMeta{Namespace: team, Name: name},
			Spec: resourceapi.ResourceClaimTemplateSpec{Spec: resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{
				Requests: []resourceapi.DeviceRequest{{Name: "tpus", Exactly: &resourceapi.ExactDeviceRequest{
					DeviceClassName: "tpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count, Selectors: selectors,
				}}},
			}}},
		})
	}
	template("three-tpus", 3)
	template("large-tpu", 1, resourceapi.DeviceSelector{CEL: &resourceapi.CELDeviceSelector{
		Expression: `"large" in device.attributes["tpu.example.com"]`,
	}})
	submit := func(name, template string) *trainer.TrainJob {
		is := sickness{at: east, change: func(job *trainer.TrainJob) { job.Spec.RuntimeRef.Name = template }}
		is.job.RunFor = "1h"
		return is.submit(t, name)
	}
	for _, template := range []string{"three-tpus", "large-tpu", "no-tpus"} {
		runtime := &trainer.ClusterTrainingRuntime{}
		check.Must(t, y.Hub.Get(t.Context(), client.ObjectKey{Name: yard.RuntimeName}, runtime))
		runtime.ObjectMeta = metav1.ObjectMeta{Name: template, Labels: runtime.Labels}
		for i := range runtime.Spec.Template.Spec.ReplicatedJobs {
			pod := &runtime.Spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template.Spec
			pod.ResourceClaims = []corev1.PodResourceClaim{{Name: "tpus", ResourceClaimTemplateName: ptr.To(template)}}
		}
		create(t, y.Workers[east], runtime.DeepCopy()) // So that the first job can be asked about too.
		create(t, y.Hub, runtime)
	}
	first := submit("claims-first", "three-tpus")
	runs(t, first)
	second := submit("claims-second", "three-tpus")
	expectWords(t, second, "State: Waiting (NoFit)", "needs a node with 3 devices of class tpu free; the most on one node is 1 device of class tpu")
	check.Must(t, y.Hub.Delete(t.Context(), first))
	runs(t, second)
	expectWords(t, submit("claims-large", "large-tpu"),
		`no node has devices for a claim of request tpus (1 of class tpu with "large" in device.attributes["tpu.example.com"])`)
	expectWords(t, submit("claims-nothing", "no-tpus"), "State: Waiting (Rejected)", `the ResourceClaimTemplate "no-tpus" is not in namespace "vision"`)
}

// publish makes a class, and four devices of it on a node of the worker east.
func publish(t *testing.T, class string, node int, extended string) {
	t.Helper()
	name := fmt.Sprint(east, "-", node)
	slice := &resourceapi.ResourceSlice{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: resourceapi.ResourceSliceSpec{
			Driver: class + ".example.com", NodeName: &name,
			Pool: resourceapi.ResourcePool{Name: name, Generation: 1, ResourceSliceCount: 1},
		},
	}
	for i := range 4 {
		slice.Spec.Devices = append(slice.Spec.Devices, resourceapi.Device{Name: fmt.Sprint(class, "-", i)})
	}
	create(t, y.Workers[east], slice)
	of := &resourceapi.DeviceClass{
		ObjectMeta: metav1.ObjectMeta{Name: class},
		Spec: resourceapi.DeviceClassSpec{Selectors: []resourceapi.DeviceSelector{{
			CEL: &resourceapi.CELDeviceSelector{Expression: fmt.Sprintf("device.driver == %q", slice.Spec.Driver)},
		}}},
	}
	if extended != "" {
		of.Spec.ExtendedResourceName = &extended
	}
	create(t, y.Workers[east], of)
}

// runs waits until a job runs.
func runs(t *testing.T, job *trainer.TrainJob) *v1alpha1.Dispatch {
	t.Helper()
	d := &v1alpha1.Dispatch{}
	y.Eventually(t, func(g gomega.Gomega) {
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), d)).To(gomega.Succeed())
		g.Expect(d.Status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning), "%v", d.Status.Explanation)
	})
	return d
}
