// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// object is what is stored. It never changes: another object replaces it.
type object struct {
	kind    *kind
	key     types.NamespacedName
	version uint64
	meta    *unstructured.Unstructured
}

// content is all of the object; nobody may change it.
func (o *object) content() map[string]any { return o.meta.Object }

// partial is the object as PartialObjectMetadata.
func (o *object) partial() map[string]any {
	return map[string]any{
		"apiVersion": metav1.SchemeGroupVersion.String(), "kind": "PartialObjectMetadata", "metadata": o.content()["metadata"],
	}
}

// fork returns a copy of content that may be changed at its top and in its metadata.
func fork(content map[string]any) map[string]any {
	forked := maps.Clone(content)
	metadata, _ := forked["metadata"].(map[string]any)
	if forked["metadata"] = map[string]any{}; metadata != nil {
		forked["metadata"] = runtime.DeepCopyJSON(metadata)
	}
	return forked
}

// metadataOf returns accessors of some content. They change the content.
func metadataOf(content map[string]any) *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: content}
}

// mergeJSON is a merge patch (RFC 7386). What it returns shares nothing with target that it has changed.
func mergeJSON(target, patch map[string]any) map[string]any {
	merged := maps.Clone(target)
	if merged == nil {
		merged = map[string]any{}
	}
	for key, value := range patch {
		switch value := value.(type) {
		case nil:
			delete(merged, key)
		case map[string]any:
			inner, _ := merged[key].(map[string]any)
			merged[key] = mergeJSON(inner, value)
		default:
			merged[key] = value
		}
	}
	return merged
}

// differs compares what clients can write: everything except the resource version.
func differs(a, b map[string]any) bool {
	stripped := func(content map[string]any) map[string]any {
		forked := fork(content)
		delete(forked["metadata"].(map[string]any), "resourceVersion")
		return forked
	}
	return !reflect.DeepEqual(stripped(a), stripped(b))
}

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
