// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/capacity"
)

// capacitySource says where the inventory of a Cluster comes from: the worker's nodes and pods, or its CapacityReport.
type capacitySource struct {
	capacity.Inventory
	// kinds are the kinds that the worker's cache holds for the inventory.
	kinds []cachedKind
	// handlers are the event handlers of these kinds, by resource.
	handlers map[string]toolscache.ResourceEventHandler
	// state is the method State of capacity.Reported, or a function that always returns capacity.Known.
	state func(connected time.Time, listed bool, code int) (capacity.State, string)
}

// countCapacity returns a source that counts nodes and pods. A worker that forbids reading them is not Connected.
func countCapacity() capacitySource {
	tally := capacity.NewTally()
	return capacitySource{
		Inventory: tally,
		kinds: []cachedKind{
			{"nodes", corev1.SchemeGroupVersion.WithKind("Node"), meta.RESTScopeRoot, &corev1.Node{},
				cache.ByObject{Transform: capacity.StripNode}},
			{resourcePods, corev1.SchemeGroupVersion.WithKind("Pod"), meta.RESTScopeNamespace, &corev1.Pod{},
				cache.ByObject{Transform: capacity.StripPod}},
		},
		handlers: map[string]toolscache.ResourceEventHandler{"nodes": tally.NodeHandler(), resourcePods: tally.PodHandler()},
		state:    func(time.Time, bool, int) (capacity.State, string) { return capacity.Known, "" },
	}
}

// readCapacity returns a source that reads the worker's CapacityReport. It calls wake when State may have changed.
func readCapacity(clock clock.PassiveClock, wake func()) capacitySource {
	reported := capacity.NewReported(clock, wake)
	return capacitySource{
		Inventory: reported,
		kinds: []cachedKind{{
			resourceCapacityReports, v1alpha1.GroupVersion.WithKind("CapacityReport"), meta.RESTScopeRoot, &v1alpha1.CapacityReport{},
			cache.ByObject{
				Field:     fields.OneTermEqualSelector(metav1.ObjectNameField, v1alpha1.CapacityReportName),
				Transform: cache.TransformStripManagedFields(),
			},
		}},
		handlers: map[string]toolscache.ResourceEventHandler{resourceCapacityReports: reported.Handler()},
		state:    reported.State,
	}
}
