// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package kueues

import (
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

const (
	// Group is the API group of Kueue.
	Group = "kueue.x-k8s.io"
	// Version is the version that Trainyard reads and writes. Kueue has served it since v0.15.
	Version = "v1beta2"
)

// GroupVersion is Group and Version.
var GroupVersion = schema.GroupVersion{Group: Group, Version: Version}

// Kind is a kind of Kueue.
type Kind string

// The kinds that Trainyard reads.
const (
	KindAdmissionCheck        Kind = "AdmissionCheck"
	KindClusterQueue          Kind = "ClusterQueue"
	KindCohort                Kind = "Cohort"
	KindLocalQueue            Kind = "LocalQueue"
	KindMultiKueueCluster     Kind = "MultiKueueCluster"
	KindMultiKueueConfig      Kind = "MultiKueueConfig"
	KindResourceFlavor        Kind = "ResourceFlavor"
	KindWorkload              Kind = "Workload"
	KindWorkloadPriorityClass Kind = "WorkloadPriorityClass"
)

// GVK returns the kind in Version.
func (k Kind) GVK() schema.GroupVersionKind { return GroupVersion.WithKind(string(k)) }

// GroupKind returns the kind in any version.
func (k Kind) GroupKind() schema.GroupKind { return k.GVK().GroupKind() }

// Resource returns the name of the kind's resource.
func (k Kind) Resource() string {
	plural, _ := meta.UnsafeGuessKindToResource(k.GVK())
	return plural.Resource
}

// Namespaced is true if the objects of the kind are in namespaces.
func (k Kind) Namespaced() bool { return k == KindWorkload || k == KindLocalQueue }

// New returns an empty object, for a client to read into or for the options of a cache.
func (k Kind) New() *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	object.SetGroupVersionKind(k.GVK())
	return object
}

// NewList returns an empty list of objects, for a client to read into.
func (k Kind) NewList() *unstructured.UnstructuredList {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(GroupVersion.WithKind(string(k) + "List"))
	return list
}

// Keys of labels and annotations.
const (
	// KeyJobUID is the label of a Workload with the UID of its job.
	KeyJobUID = Group + "/job-uid"
	// KeyOrigin is the label of Workloads that a MultiKueue has created.
	KeyOrigin = Group + "/multikueue-origin"
	// KeyPrebuilt, as label or annotation of a job, names a Workload that somebody has created for the job.
	KeyPrebuilt = Group + "/prebuilt-workload-name"
	// KeyGatedBy is the annotation of a job whose admission somebody gates.
	KeyGatedBy = Group + "/admission-gated-by"
)

// Read returns the fields of an object that T has. After an error, which is about a field of an unknown form, all
// fields are empty.
func Read[T any](object *unstructured.Unstructured) (*T, error) {
	read := new(T)
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, read); err != nil {
		return new(T), err
	}
	return read, nil
}
