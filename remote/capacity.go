// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
)

// capacitySource says where the inventory of a Cluster comes from: the worker's nodes and pods, or its CapacityReport.
type capacitySource struct {
	capacity.Inventory
	// kinds are the kinds that the worker's cache holds for the inventory.
	kinds []cachedKind
	// serves takes what the worker serves. nil: that does not matter.
	serves func(apis)
	// state says whether the inventory is reliable. connected is the time since which the worker is Connected. listed says
	// whether the kinds are listed. refusal returns the HTTP code with which the worker refuses to show a resource, or 0.
	state func(connected time.Time, listed bool, refusal func(resource string) int) (capacity.State, string)
}

// countCapacity returns a source that counts nodes and pods. A worker that forbids reading them is not Connected.
func countCapacity() capacitySource { return count(capacity.NewTally()) }

func count(tally *capacity.Tally) capacitySource {
	source := capacitySource{
		Inventory: tally,
		serves:    func(found apis) { tally.SetKubernetes(found.kubernetes) },
		kinds: []cachedKind{
			{
				resource: "nodes", gvk: corev1.SchemeGroupVersion.WithKind("Node"), scope: meta.RESTScopeRoot, object: &corev1.Node{},
				options: cache.ByObject{Transform: capacity.StripNode}, handler: tally.NodeHandler(),
			},
			{
				resource: resourcePods, gvk: corev1.SchemeGroupVersion.WithKind("Pod"), scope: meta.RESTScopeNamespace, object: &corev1.Pod{},
				options: cache.ByObject{Transform: capacity.StripPod}, handler: tally.PodHandler(),
			},
		},
	}
	source.countDevices(tally)
	return source
}

// countDevices adds what Dynamic Resource Allocation has, on workers that serve it. A worker that does not let the hub
// read it is Connected, and its devices do not count.
func (s *capacitySource) countDevices(tally *capacity.Tally) {
	for _, kind := range append(slices.Clone(capacity.DeviceKinds), capacity.TemplateKind) {
		s.kinds = append(s.kinds, cachedKind{
			resource: kind.Resource, gvk: capacity.DeviceVersion.WithKind(kind.Kind), scope: scopeOf(kind.Namespaced), object: kind.New(),
			options: cache.ByObject{Transform: capacity.StripDevices}, optional: true, told: true,
			served: func(found apis) bool { return found.devices }, handler: tally.DeviceHandler(),
		})
	}
	for _, version := range capacity.TaintRuleVersions {
		rule := capacity.NewTaintRule(version)
		s.kinds = append(s.kinds, cachedKind{
			resource: capacity.TaintRules, gvk: rule.GroupVersionKind(), scope: meta.RESTScopeRoot, object: rule,
			options: cache.ByObject{Transform: capacity.StripDevices}, optional: true, told: true,
			served: func(found apis) bool { return found.taintRules == version }, handler: tally.DeviceHandler(),
		})
	}
	s.state = func(_ time.Time, listed bool, refusal func(resource string) int) (capacity.State, string) {
		if !listed {
			return capacity.Pending, "the devices of the worker are being read"
		}
		for _, kind := range capacity.DeviceKinds {
			if refusal(kind.Resource) == http.StatusForbidden {
				return capacity.Known, "its devices of Dynamic Resource Allocation are not counted: " + forbids(kind.Resource)
			}
		}
		uncounted := tally.Uncounted()
		if refusal(capacity.TaintRules) == http.StatusForbidden {
			uncounted = append([]string{"devices count also where a DeviceTaintRule keeps jobs off: " + forbids(capacity.TaintRules)}, uncounted...)
		}
		if refusal(capacity.TemplateKind.Resource) == http.StatusForbidden {
			uncounted = append(slices.Clone(uncounted), "claims count with the number of devices that they need at the least: "+forbids(capacity.TemplateKind.Resource))
		}
		return capacity.Known, strings.Join(uncounted, "; ")
	}
}

// forbids says what to do about a worker that does not let the hub read a resource of Dynamic Resource Allocation.
func forbids(resource string) string {
	return fmt.Sprintf("the worker forbids to list and watch %s.%s: grant it to the hub's user (kubectl trainyard join, or "+
		"kubectl apply -k config/worker)", resource, capacity.DeviceVersion.Group)
}

// countQuota returns a source that counts nodes, pods and the quota of Kueue. A worker that does not show the quota is
// Connected all the same.
func countQuota() capacitySource {
	tally := capacity.NewTally()
	tally.CountQuota()
	source := count(tally)
	devices := source.state
	for _, kind := range capacity.KueueKinds {
		counted := cachedQuota(kind)
		counted.handler = tally.KueueHandler()
		source.kinds = append(source.kinds, counted)
	}
	source.state = func(connected time.Time, listed bool, refusal func(resource string) int) (capacity.State, string) {
		for _, kind := range capacity.KueueKinds {
			switch refusal(kind.Resource()) {
			case http.StatusNotFound:
				return capacity.QuotaMissing, fmt.Sprintf("the worker has no %s of Kueue in version %s, and spec.kueue.capacity counts quota: "+
					"install Kueue v0.15 or later there, or set spec.kueue.capacity to Ignore", kind, kueues.Version)
			case http.StatusForbidden:
				return capacity.QuotaMissing, fmt.Sprintf("the worker forbids to list and watch %s.%s: grant it to the hub's user "+
					"(kubectl apply -k config/worker-kueue), or set spec.kueue.capacity to Ignore", kind.Resource(), kueues.Group)
			}
		}
		if !listed {
			return capacity.Pending, "the quota of the worker's Kueue is being read"
		}
		tally.QuotaListed()
		return devices(connected, listed, refusal)
	}
	return source
}

// readCapacity returns a source that reads the worker's CapacityReport. It calls wake when State may have changed.
func readCapacity(clock clock.PassiveClock, wake func(), quota bool) capacitySource {
	reported := capacity.NewReported(clock, wake)
	if quota {
		reported.RequireQuota()
	}
	return capacitySource{
		Inventory: reported,
		kinds: []cachedKind{{
			resource: resourceCapacityReports, gvk: v1alpha1.GroupVersion.WithKind("CapacityReport"), scope: meta.RESTScopeRoot,
			object: &v1alpha1.CapacityReport{},
			options: cache.ByObject{
				Field:     fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.CapacityReportName),
				Transform: cache.TransformStripManagedFields(),
			},
			optional: true, told: true, // Without it the capacity is not known (capacity.Reported), but the hub looks after the jobs there.
			handler: reported.Handler(),
		}},
		state: func(connected time.Time, listed bool, refusal func(resource string) int) (capacity.State, string) {
			return reported.State(connected, listed, refusal(resourceCapacityReports))
		},
	}
}
