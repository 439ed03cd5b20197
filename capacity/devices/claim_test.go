// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices_test

import (
	"fmt"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity/devices"
	"github.com/trainyard/trainyard/test/check"
)

func TestClaimed(t *testing.T) {
	exactly := func(count int64, changes ...func(*resourceapi.ExactDeviceRequest)) resourceapi.DeviceRequest {
		r := &resourceapi.ExactDeviceRequest{
			DeviceClassName: "gpu", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: count,
		}
		for _, change := range changes {
			change(r)
		}
		return resourceapi.DeviceRequest{Name: "r", Exactly: r}
	}
	nic := exactly(1, func(r *resourceapi.ExactDeviceRequest) { r.DeviceClassName = "nic" })
	gpus := func(n int64) devices.Amounts { return devices.Amounts{devices.NameOfClass("gpu"): n} }
	for name, tc := range map[string]struct {
		reason   string
		requests []resourceapi.DeviceRequest
		want     devices.Amounts
		// words of the claim, if the numbers do not say whether it fits.
		words string
	}{
		"Sum":     {"All requests are served at once.", []resourceapi.DeviceRequest{exactly(2), exactly(3)}, gpus(5), ""},
		"Classes": {"Each class counts.", []resourceapi.DeviceRequest{exactly(2), nic}, devices.Amounts{devices.NameOfClass("gpu"): 2, devices.NameOfClass("nic"): 1}, "request r (2 of class gpu) and r (1 of class nic)"},
		"NoCount": {"The API server makes it one.", []resourceapi.DeviceRequest{exactly(0)}, gpus(1), ""},
		"All":     {"All devices of a node are at least one.", []resourceapi.DeviceRequest{exactly(0, func(r *resourceapi.ExactDeviceRequest) { r.AllocationMode = resourceapi.DeviceAllocationModeAll })}, gpus(1), "request r (all of class gpu)"},
		"Selected": {"Selected devices are devices of the class.", []resourceapi.DeviceRequest{exactly(2, func(r *resourceapi.ExactDeviceRequest) {
			r.Selectors = []resourceapi.DeviceSelector{{CEL: &resourceapi.CELDeviceSelector{Expression: "true &&\n  false"}}}
		})}, gpus(2), "request r (2 of class gpu with true && false)"},
		"Tolerant": {"It may get a sick device, which counts for nobody else.", []resourceapi.DeviceRequest{exactly(2, func(r *resourceapi.ExactDeviceRequest) { r.Tolerations = []resourceapi.DeviceToleration{{}} })}, nil, "request r (2 of class gpu, if need be with a taint)"},
		"Admin":    {"Monitoring takes nothing.", []resourceapi.DeviceRequest{exactly(2, func(r *resourceapi.ExactDeviceRequest) { r.AdminAccess = ptr.To(true) })}, nil, "request r (2 of class gpu, for monitoring)"},
		"Part": {"A smaller share may fit where no other one does.", []resourceapi.DeviceRequest{exactly(1, func(r *resourceapi.ExactDeviceRequest) {
			r.Capacity = &resourceapi.CapacityRequirements{Requests: map[resourceapi.QualifiedName]resource.Quantity{"memory": resource.MustParse("1Gi")}}
		})}, nil, "request r (1 of class gpu with 1Gi of memory)"},
		"Choice": {"Nobody knows which one it gets.", []resourceapi.DeviceRequest{{Name: "r", FirstAvailable: []resourceapi.DeviceSubRequest{
			{Name: "a", DeviceClassName: "gpu", Count: 8}, {Name: "b", DeviceClassName: "tpu"},
		}}}, nil, "request r (8 of class gpu, or 1 of class tpu)"},
	} {
		t.Run(name, func(t *testing.T) {
			got := devices.Claimed(&resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: tc.requests}})
			words := ""
			for name, count := range got {
				if v1alpha1.IsDeviceClaim(name) {
					words = v1alpha1.WordsOfDeviceClaim(name)
					check.Equal(t, int64(1), count, "claims")
					delete(got, name)
				}
			}
			check.Equal(t, fmt.Sprint(tc.want), fmt.Sprint(got), "%s", tc.reason)
			check.Equal(t, tc.words, words, "words of the claim")
		})
	}
}
