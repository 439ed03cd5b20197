// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/nomination"
	"github.com/trainyard/trainyard/internal/hubcache"
)

// hubCaches keeps little of finished jobs, of which a hub has many more than live ones (package hubcache). TrainJobs are
// cached unstructured (package trainjobs), and of the Secrets only those in the manager's namespace. A kind must not be
// named here unless the hub is known to have it.
func hubCaches(caches *hubcache.Hub, namespace, managedBy string, workloads bool) cache.Options {
	options := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		NewInformer:      caches.NewInformer,
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:     {Namespaces: map[string]cache.Config{namespace: {}}},
			trainjobs.New():      {Transform: trainjobs.StripOf(managedBy)},
			&v1alpha1.Dispatch{}: {Transform: hubcache.StripDispatch},
		},
	}
	if workloads {
		options.ByObject[kueues.KindWorkload.New()] = cache.ByObject{Transform: nomination.Strip}
	}
	return options
}
