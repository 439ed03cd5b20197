// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// populate creates what a cluster has at the beginning: namespaces and nodes. It returns the cluster's ID.
func populate(s *store, options Options) types.UID {
	for _, name := range []string{metav1.NamespaceSystem, metav1.NamespaceDefault} {
		s.mustCreate(namespaces, newNamespace(name))
	}
	for i := range options.Nodes {
		amounts := map[string]any{"cpu": "96", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": fmt.Sprint(options.GPUs)}
		name := fmt.Sprintf("node-%d", i)
		s.mustCreate(nodes, map[string]any{
			"metadata": map[string]any{"name": name, "labels": map[string]any{"kubernetes.io/hostname": name, "nvidia.com/gpu.product": "FAKE"}},
			"spec":     map[string]any{},
			"status": map[string]any{
				"capacity": amounts, "allocatable": amounts,
				"conditions": []any{map[string]any{"type": "Ready", "status": "True", "reason": "KubeletReady"}},
			},
		})
	}
	system, err := s.get(namespaces, types.NamespacedName{Name: metav1.NamespaceSystem})
	if err != nil {
		panic(err) // It was created above.
	}
	return system.meta.GetUID()
}

// newNamespace is what an API server makes of a namespace.
func newNamespace(name string) map[string]any {
	return map[string]any{
		"metadata": map[string]any{"name": name, "labels": map[string]any{"kubernetes.io/metadata.name": name}},
		"spec":     map[string]any{"finalizers": []any{"kubernetes"}}, "status": map[string]any{"phase": "Active"},
	}
}
