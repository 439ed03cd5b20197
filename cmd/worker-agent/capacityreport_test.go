// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestCapacityReport checks that the agent can report with the rights of config/worker-agent.
func TestCapacityReport(t *testing.T) {
	setUp(t)
	report := &unstructured.Unstructured{}
	report.SetGroupVersionKind(v1alpha1.GroupVersion.WithKind("CapacityReport"))
	report.SetName(v1alpha1.CapacityReportName)
	check.Must(t, client.IgnoreNotFound(world.client.Delete(t.Context(), report)))
	a := startAgent(t)
	eventually(t, "a report of both nodes", func(g gomega.Gomega) {
		g.Expect(world.client.Get(t.Context(), client.ObjectKeyFromObject(report), report)).To(gomega.Succeed())
		nodes := int64(0)
		groups, _, _ := unstructured.NestedSlice(report.Object, "nodeGroups")
		for _, group := range groups {
			rows, _, _ := unstructured.NestedSlice(group.(map[string]any), "rows")
			for _, row := range rows {
				nodes += row.(map[string]any)["nodes"].(int64)
			}
		}
		g.Expect(nodes).To(gomega.BeNumerically(">=", 2))
	})
	a.checkRights(t)
}
