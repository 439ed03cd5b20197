// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package devices

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Claimed returns what a pod with a claim needs at the least: devices of each class by NameOfClass, and one of
// NameOfClaim where numbers of devices do not say whether the claim fits. Requests that may be served by devices that a
// Node does not count (tolerations, amounts of a capacity, monitoring) have no number of devices.
func Claimed(spec *resourceapi.ResourceClaimSpec) Amounts {
	amounts := Amounts{}
	for i := range spec.Devices.Requests {
		request := spec.Devices.Requests[i].Exactly
		if request == nil || ptr.Deref(request.AdminAccess, false) || len(request.Tolerations) > 0 || request.Capacity != nil {
			continue
		}
		amounts[NameOfClass(request.DeviceClassName)] += leastOf(request.AllocationMode, request.Count)
	}
	if name := NameOfClaim(spec); name != "" {
		amounts[name] = 1
	}
	return amounts
}

// leastOf returns how many devices a request needs at the least.
func leastOf(mode resourceapi.DeviceAllocationMode, count int64) int64 {
	if mode == resourceapi.DeviceAllocationModeAll {
		return 1 // All of them are at least one.
	}
	return max(count, 1)
}

// NameOfClaim is the name under which the claims of these requests and constraints are counted. It has the requests in
// words, for people. It is empty if the claim fits wherever there are enough devices of its class.
func NameOfClaim(spec *resourceapi.ResourceClaimSpec) corev1.ResourceName {
	if isPlain(&spec.Devices) {
		return ""
	}
	content, err := json.Marshal([]any{spec.Devices.Requests, spec.Devices.Constraints})
	if err != nil {
		return ""
	}
	sum := sha256.Sum256(content)
	return v1alpha1.NameOfDeviceClaim(hex.EncodeToString(sum[:6]), wordsOf(&spec.Devices))
}

// isPlain says whether any devices of one class will do.
func isPlain(claim *resourceapi.DeviceClaim) bool {
	classes, devices := map[string]bool{}, int64(0)
	for i := range claim.Requests {
		r := claim.Requests[i].Exactly
		if r == nil || r.AllocationMode == resourceapi.DeviceAllocationModeAll || ptr.Deref(r.AdminAccess, false) ||
			len(r.Selectors) > 0 || len(r.Tolerations) > 0 || r.Capacity != nil {
			return false
		}
		classes[r.DeviceClassName] = true
		devices += leastOf(r.AllocationMode, r.Count)
	}
	return len(classes) <= 1 && len(claim.Constraints) == 0 && devices <= resourceapi.AllocationResultsMaxSize
}

// Bounds of the words in a NameOfClaim, in bytes.
const (
	maxExpression = 80
	maxWords      = 200
)

// wordsOf says what a claim asks for.
func wordsOf(claim *resourceapi.DeviceClaim) string {
	requests := make([]string, 0, len(claim.Requests))
	for i := range claim.Requests {
		r := &claim.Requests[i]
		var choices []string
		for _, e := range exactlyOf(r) {
			choices = append(choices, wordsOfRequest(e))
		}
		requests = append(requests, fmt.Sprintf("%s (%s)", r.Name, strings.Join(choices, ", or ")))
	}
	words := "request " + strings.Join(requests, " and ")
	for i := range claim.Constraints {
		if attribute := claim.Constraints[i].MatchAttribute; attribute != nil {
			words += ", all of one " + string(*attribute)
		}
		if attribute := claim.Constraints[i].DistinctAttribute; attribute != nil {
			words += ", each of another " + string(*attribute)
		}
	}
	return cut(words, maxWords)
}

func wordsOfRequest(r *resourceapi.ExactDeviceRequest) string {
	words := fmt.Sprintf("%d of class %s", leastOf(r.AllocationMode, r.Count), r.DeviceClassName)
	if r.AllocationMode == resourceapi.DeviceAllocationModeAll {
		words = "all of class " + r.DeviceClassName
	}
	for i := range r.Selectors {
		if r.Selectors[i].CEL != nil {
			words += " with " + cut(strings.Join(strings.Fields(r.Selectors[i].CEL.Expression), " "), maxExpression)
		}
	}
	if len(r.Tolerations) > 0 {
		words += ", if need be with a taint"
	}
	if ptr.Deref(r.AdminAccess, false) {
		words += ", for monitoring"
	}
	if r.Capacity != nil {
		for _, name := range slices.Sorted(maps.Keys(r.Capacity.Requests)) {
			amount := r.Capacity.Requests[name]
			words += fmt.Sprintf(" with %s of %s", amount.String(), name)
		}
	}
	return words
}

// cut shortens a text that is too long.
func cut(text string, most int) string {
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most-len("...")], "") + "..."
}

// exactlyOf returns the request, or its choices.
func exactlyOf(r *resourceapi.DeviceRequest) []*resourceapi.ExactDeviceRequest {
	if r.Exactly != nil {
		return []*resourceapi.ExactDeviceRequest{r.Exactly}
	}
	choices := make([]*resourceapi.ExactDeviceRequest, 0, len(r.FirstAvailable))
	for i := range r.FirstAvailable {
		sub := &r.FirstAvailable[i]
		choices = append(choices, &resourceapi.ExactDeviceRequest{
			DeviceClassName: sub.DeviceClassName, Selectors: sub.Selectors, AllocationMode: sub.AllocationMode, Count: sub.Count,
			Tolerations: sub.Tolerations, Capacity: sub.Capacity,
		})
	}
	return choices
}
