// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"
)

// Claimed returns how many devices of each class a claim needs at the least, by NameOfClass. A selector, a constraint and
// a choice can make it need more, or others: then it may fit nowhere though there are as many. Requests that may be
// served by devices that a Node does not count (tolerations, amounts of a capacity, monitoring) are left out.
func Claimed(spec *resourceapi.ResourceClaimSpec) Amounts {
	amounts := Amounts{}
	for i := range spec.Devices.Requests {
		request := spec.Devices.Requests[i].Exactly
		if request == nil || ptr.Deref(request.AdminAccess, false) || len(request.Tolerations) > 0 || request.Capacity != nil {
			continue
		}
		count := max(request.Count, 1)
		if request.AllocationMode == resourceapi.DeviceAllocationModeAll {
			count = 1 // All of them are at least one.
		}
		amounts[NameOfClass(request.DeviceClassName)] += count
	}
	return amounts
}
