// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"unique"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// StripDispatch is a transform of informers. It drops fields of finished Dispatches that nobody needs, and lets Dispatches
// share equal strings. It keeps conditions and history complete, because a patch replaces them as a whole.
func StripDispatch(in any) (any, error) {
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
