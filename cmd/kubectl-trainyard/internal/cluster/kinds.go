// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// KueueVersion is the version of Kueue's API that the plugin reads.
var KueueVersion = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}

// Scheme has the kinds that the plugin reads as Go types, from clusters and files.
func Scheme() *runtime.Scheme {
	scheme := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{
		v1alpha1.AddToScheme, trainer.AddToScheme, corev1.AddToScheme, appsv1.AddToScheme, schedulingv1.AddToScheme,
		metav1.AddMetaToScheme,
	} {
		if err := add(scheme); err != nil {
			panic(err) // Two types have the same name, which a test would have found.
		}
	}
	return scheme
}

// namespaced are the kinds in namespaces that the plugin reads or writes. All its other kinds are not in namespaces.
var namespaced = []string{
	"ConfigMap", "Deployment", "Dispatch", "Event", "Lease", "LocalQueue", "PodDisruptionBudget", "ResourceQuota", "Role",
	"RoleBinding", "Secret", "Service", "ServiceAccount", "TrainJob", "TrainingRuntime", "Workload",
}

// mapper maps the kinds of the plugin without discovery. It has the method that clients and caches need. Calls of its
// other methods panic.
type mapper struct{ meta.RESTMapper }

// RESTMapping implements meta.RESTMapper.
func (mapper) RESTMapping(kind schema.GroupKind, versions ...string) (*meta.RESTMapping, error) {
	gvk := kind.WithVersion(versions[0])
	mapping := &meta.RESTMapping{GroupVersionKind: gvk, Resource: ResourceOf(gvk), Scope: meta.RESTScopeRoot}
	if slices.Contains(namespaced, kind.Kind) {
		mapping.Scope = meta.RESTScopeNamespace
	}
	return mapping, nil
}

// ResourceOf returns the resource of a kind. All kinds of the plugin but one have regular plurals.
func ResourceOf(kind schema.GroupVersionKind) schema.GroupVersionResource {
	if kind.Kind == "Dispatch" {
		return kind.GroupVersion().WithResource("dispatches")
	}
	resource, _ := meta.UnsafeGuessKindToResource(kind)
	return resource
}
