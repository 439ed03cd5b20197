// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is the API group and version of this package.
var GroupVersion = schema.GroupVersion{Group: "trainyard.dev", Version: "v1alpha1"}

// AddToScheme adds the types of this package to a scheme.
func AddToScheme(scheme *runtime.Scheme) error {
	scheme.AddKnownTypes(GroupVersion,
		&Dispatch{}, &DispatchList{},
		&WorkerCluster{}, &WorkerClusterList{},
		&DispatchPolicy{}, &DispatchPolicyList{},
		&Tombstone{}, &TombstoneList{},
		&CapacityReport{}, &CapacityReportList{},
		&ExecutionLease{}, &ExecutionLeaseList{},
	)
	metav1.AddToGroupVersion(scheme, GroupVersion)
	return nil
}
