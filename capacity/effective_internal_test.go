// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TestEffectiveQuotas: what an orchestrator of Kueue 0.20 gives a ClusterQueue or a Cohort counts instead of its spec.
func TestEffectiveQuotas(t *testing.T) {
	const spec = `
spec: {resourceGroups: [{coveredResources: [cpu], flavors: [{name: a, resources: [{name: cpu, nominalQuota: "9"}]}]}]}
`
	group := func(amount int64) []v1alpha1.KueueResourceGroup {
		return []v1alpha1.KueueResourceGroup{{
			Resources: []corev1.ResourceName{"cpu"},
			Flavors:   []v1alpha1.KueueFlavorQuotas{{Name: "a", Quotas: []v1alpha1.KueueResourceQuota{{Resource: "cpu", Nominal: amount}}}},
		}}
	}
	for name, test := range map[string]struct {
		reason, status string
		want           []v1alpha1.KueueResourceGroup
	}{
		"None": {reason: "most clusters have no orchestrator", status: "status: {conditions: []}", want: group(9000)},
		"Some": {
			reason: "the cluster has fewer nodes now",
			status: `status: {effectiveQuotas: {resourceGroups: [{coveredResources: [cpu], flavors: [{name: a, resources: [{name: cpu, nominalQuota: "4"}]}]}]}}`,
			want:   group(4000),
		},
		"Empty": {reason: "an empty list means that there is no quota", status: "status: {effectiveQuotas: {resourceGroups: []}}"},
	} {
		for _, kind := range []string{"ClusterQueue", "Cohort"} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				object := &unstructured.Unstructured{}
				must(t, yaml.Unmarshal([]byte("apiVersion: kueue.x-k8s.io/v1beta2\nkind: "+kind+spec+test.status), &object.Object))
				kept, err := StripKueue(object)
				must(t, err)
				got := cohortOf(kept.(*unstructured.Unstructured)).Groups
				if kind == "ClusterQueue" {
					got = clusterQueueOf(kept.(*unstructured.Unstructured)).Groups
				}
				differ(t, test.want, got, test.reason)
			})
		}
	}
}
