// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"maps"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
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
