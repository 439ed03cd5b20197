// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"unique"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/nomination"
	"github.com/trainyard/trainyard/dispatch/record"
)

// hubCaches keeps only the needed fields of finished jobs, of which a hub has many more than live ones. TrainJobs are
// cached unstructured (package trainjobs), and of the Secrets only those in the manager's namespace. A kind must not be
// named here unless the hub is known to have it.
func hubCaches(namespace, managedBy string, workloads bool) cache.Options {
	options := cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Secret{}:     {Namespaces: map[string]cache.Config{namespace: {}}},
			trainjobs.New():      {Transform: trainjobs.StripOf(managedBy)},
			&v1alpha1.Dispatch{}: {Transform: stripDispatch},
		},
	}
	if workloads {
		options.ByObject[kueues.KindWorkload.New()] = cache.ByObject{Transform: nomination.Strip}
	}
	return options
}

// fillCaches makes the caches start with the kinds of which the hub has many. Otherwise only the leader would read
// TrainJobs, after Dispatches, when the controllers start. A new leader would have to wait.
func fillCaches(ctx context.Context, caches cache.Cache) error {
	for _, object := range []client.Object{trainjobs.New(), &v1alpha1.Dispatch{}} {
		if _, err := caches.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

// stripDispatch drops fields of finished Dispatches that nobody needs, and lets Dispatches share equal strings. It
// keeps conditions and history complete, because a patch replaces them as a whole.
func stripDispatch(in any) (any, error) {
	d, ok := in.(*v1alpha1.Dispatch)
	if !ok {
		return in, nil
	}
	d.ManagedFields = nil
	if record.AttemptOf(d) == record.Finished {
		d.Annotations = nil
		d.Spec.PodSets, d.Spec.Dependencies = nil, nil
		d.Status.Steps, d.Status.Explanation, d.Status.Refusals = nil, nil, nil
	}
	share(&d.Namespace)
	for i := range d.Finalizers {
		share(&d.Finalizers[i])
	}
	alias(&d.Spec.TrainJob.Name, d.Name)
	for i := range d.OwnerReferences {
		owner := &d.OwnerReferences[i]
		share(&owner.APIVersion)
		share(&owner.Kind)
		alias(&owner.Name, d.Name)
		alias(&owner.UID, d.Spec.TrainJob.UID)
	}
	share(&d.Spec.Cluster)
	share(&d.Spec.ClusterID)
	alias(&d.Status.Cluster, d.Spec.Cluster)
	for i := range d.Status.Conditions {
		condition := &d.Status.Conditions[i]
		share(&condition.Type)
		share(&condition.Reason)
		share(&condition.Message)
	}
	for i := range d.Status.History {
		alias(&d.Status.History[i].Cluster, d.Spec.Cluster)
		share(&d.Status.History[i].Message)
	}
	return d, nil
}

// share makes equal strings use the same memory.
func share[T ~string](s *T) {
	*s = T(unique.Make(string(*s)).Value())
}

// alias makes s use the memory of an equal string.
func alias[T comparable](s *T, of T) {
	if *s == of {
		*s = of
	}
}
