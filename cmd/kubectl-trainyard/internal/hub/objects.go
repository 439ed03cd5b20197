// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hub

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/trainyard/trainyard/cmd/kubectl-trainyard/internal/cluster"
)

// EachObject passes the objects of a kind, in all namespaces, to do as the hub has them.
func (h *Hub) EachObject(ctx context.Context, kind schema.GroupVersionKind, do func(*unstructured.Unstructured)) error {
	list := &unstructured.UnstructuredList{}
	list.SetGroupVersionKind(kind.GroupVersion().WithKind(kind.Kind + "List"))
	err := cluster.Each(ctx, h, list, do)
	switch {
	case kind.GroupVersion() != cluster.KueueVersion:
		return h.explain(fmt.Sprintf("list %s objects", kind.Kind), err)
	case cluster.IsKindMissing(err):
		return fmt.Errorf("this cluster%s has no %s of Kueue in version %s, which Kueue has from v0.15 on; name the hub "+
			"with --context", h.of(" (context %q)"), kind.Kind, kind.Version)
	}
	return h.explain(fmt.Sprintf("list %s objects of Kueue", kind.Kind), err)
}
