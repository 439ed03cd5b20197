// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"reflect"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// kind is a kind that a fake server has.
type kind struct {
	schema.GroupVersionKind
	plural     string
	namespaced bool
	// status says that the status is a subresource: it is written there, and nowhere else.
	status bool
	// custom resources count their generations, and their deletion is answered with a Status.
	custom bool
}

func (k *kind) resource() schema.GroupResource {
	return schema.GroupResource{Group: k.Group, Resource: k.plural}
}

// path is the path of the kind's group version.
func (k *kind) path() string {
	if k.Group == "" {
		return "/api/" + k.Version
	}
	return "/apis/" + k.Group + "/" + k.Version
}

func (k *kind) discovered() metav1.APIResource {
	return metav1.APIResource{
		Name: k.plural, SingularName: strings.ToLower(k.Kind), Namespaced: k.namespaced, Kind: k.Kind,
		Verbs: metav1.Verbs{"create", "delete", "get", "list", "patch", "update", "watch"},
	}
}

// The kinds that the code names.
var (
	namespaces = &kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Namespace"), plural: "namespaces", status: true}
	nodes      = &kind{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Node"), plural: "nodes", status: true}
	trainJobs  = &kind{
		GroupVersionKind: trainer.SchemeGroupVersion.WithKind(trainer.TrainJobKind), plural: "trainjobs",
		namespaced: true, status: true, custom: true,
	}
	jobSets = &kind{
		GroupVersionKind: jobsetv1alpha2.SchemeGroupVersion.WithKind("JobSet"), plural: "jobsets",
		namespaced: true, status: true, custom: true,
	}
)

// kinds are all there are.
var kinds = []*kind{
	namespaces, nodes, trainJobs, jobSets,
	{GroupVersionKind: corev1.SchemeGroupVersion.WithKind("Pod"), plural: "pods", namespaced: true, status: true},
	{
		GroupVersionKind: trainer.SchemeGroupVersion.WithKind(trainer.TrainingRuntimeKind), plural: "trainingruntimes",
		namespaced: true, custom: true,
	},
	{GroupVersionKind: trainer.SchemeGroupVersion.WithKind(trainer.ClusterTrainingRuntimeKind), plural: "clustertrainingruntimes", custom: true},
}

// specFields are the fields of a TrainJob's spec, sorted.
var specFields = func() []string {
	var fields []string
	spec := reflect.TypeFor[trainer.TrainJobSpec]()
	for i := range spec.NumField() {
		name, _, _ := strings.Cut(spec.Field(i).Tag.Get("json"), ",")
		fields = append(fields, name)
	}
	slices.Sort(fields)
	return fields
}()
