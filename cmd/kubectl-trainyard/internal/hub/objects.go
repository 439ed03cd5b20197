// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// kueueVersion is the version of Kueue's API that the plugin reads.
var kueueVersion = schema.GroupVersion{Group: "kueue.x-k8s.io", Version: "v1beta2"}

// All returns the objects of a kind of Trainyard without a namespace, as the hub has them.
func (h *Hub) All(ctx context.Context, kind schema.GroupVersionKind) ([]*unstructured.Unstructured, error) {
	var all []*unstructured.Unstructured
	err := h.eachObject(ctx, kind, func(object *unstructured.Unstructured) { all = append(all, object) })
	if err != nil {
		return nil, h.explain(fmt.Sprintf("list %s objects", kind.Kind), err)
	}
	return all, nil
}

// EachOfKueue passes the objects of a kind of Kueue, in all namespaces, to take.
func (h *Hub) EachOfKueue(ctx context.Context, kind string, take func(*unstructured.Unstructured)) error {
	err := h.eachObject(ctx, kueueVersion.WithKind(kind), take)
	switch {
	case err == nil:
		return nil
	case isKindMissing(err):
		return fmt.Errorf("this cluster%s has no %s of Kueue in version %s, which Kueue has from v0.15 on; name the hub with --context",
			h.of(" (context %q)"), kind, kueueVersion.Version)
	}
	return h.explain(fmt.Sprintf("list %s objects of Kueue", kind), err)
}

func (h *Hub) eachObject(ctx context.Context, kind schema.GroupVersionKind, take func(*unstructured.Unstructured)) error {
	fresh := func() *unstructured.UnstructuredList {
		page := &unstructured.UnstructuredList{}
		page.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
		return page
	}
	return eachPage(ctx, h, "", fresh, func(page *unstructured.UnstructuredList) {
		for i := range page.Items {
			take(&page.Items[i])
		}
	})
}
