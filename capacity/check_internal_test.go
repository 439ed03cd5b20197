// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"testing"

	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// TestCheck: the hub takes nothing from a report that makes no sense, and says what it is.
func TestCheck(t *testing.T) {
	group := func(name string, quotas ...v1alpha1.KueueResourceQuota) []v1alpha1.KueueResourceGroup {
		return []v1alpha1.KueueResourceGroup{{
			Resources: []corev1.ResourceName{"cpu"}, Flavors: []v1alpha1.KueueFlavorQuotas{{Name: name, Quotas: quotas}},
		}}
	}
	quota := func(change func(*v1alpha1.KueueQuota)) func(*v1alpha1.CapacityReport) {
		return func(r *v1alpha1.CapacityReport) {
			r.Kueue = &v1alpha1.KueueQuota{}
			change(r.Kueue)
		}
	}
	for name, test := range map[string]struct {
		reason string
		change func(*v1alpha1.CapacityReport)
		want   string
	}{
		"Usual": {reason: "it makes sense", change: func(*v1alpha1.CapacityReport) {}},
		"EmptyCohort": {
			reason: "a cohort that no queue can name would get the place of another",
			change: quota(func(q *v1alpha1.KueueQuota) { q.Cohorts = []v1alpha1.KueueCohort{{Parent: "x"}} }),
			want:   `kueue.cohorts[0]: its name is empty, or a part of it ("")`,
		},
		"CohortTwice": {
			reason: "nobody knows which one counts",
			change: quota(func(q *v1alpha1.KueueQuota) { q.Cohorts = []v1alpha1.KueueCohort{{Name: "a"}, {Name: "a"}} }),
			want:   `kueue.cohorts[1]: "a" is there twice`,
		},
		"QueueTwice": {
			reason: "nobody knows which one counts",
			change: quota(func(q *v1alpha1.KueueQuota) { q.ClusterQueues = []v1alpha1.KueueClusterQueue{{Name: "a"}, {Name: "a"}} }),
			want:   `kueue.clusterQueues[1]: "a" is there twice`,
		},
		"QuotaTwice": {
			reason: "a flavor has one quota of a resource",
			change: quota(func(q *v1alpha1.KueueQuota) {
				r := v1alpha1.KueueResourceQuota{Resource: "cpu"}
				q.ClusterQueues = []v1alpha1.KueueClusterQueue{{Name: "a", Groups: group("f", r, r)}}
			}),
			want: `kueue.clusterQueues[0]: groups[0].flavors[0].quotas[1]: "{f cpu}" is there twice`,
		},
		"FlavorWithoutName": {
			reason: "it cannot exist",
			change: quota(func(q *v1alpha1.KueueQuota) { q.Cohorts = []v1alpha1.KueueCohort{{Name: "a", Groups: group("")}} }),
			want:   `kueue.cohorts[0]: groups[0].flavors[0]: its name is empty`,
		},
		"NegativeUse": {
			reason: "it would give quota",
			change: quota(func(q *v1alpha1.KueueQuota) {
				q.ClusterQueues = []v1alpha1.KueueClusterQueue{{Name: "a", Used: []v1alpha1.KueueAmount{{Flavor: "f", Resource: "cpu", Amount: -1}}}}
			}),
			want: `kueue.clusterQueues[0]: used[0]: -1 of cpu is negative`,
		},
		"WorkloadWithoutJob": {
			reason: "only Workloads of TrainJobs are listed",
			change: quota(func(q *v1alpha1.KueueQuota) { q.Workloads = []v1alpha1.KueueWorkload{{Namespace: "a"}} }),
			want:   `kueue.workloads[0]: its namespace or job is empty`,
		},
		"NegativeRequest": {
			reason: "no pod requests it",
			change: quota(func(q *v1alpha1.KueueQuota) {
				q.Workloads = []v1alpha1.KueueWorkload{{Namespace: "a", Job: "b", Requests: []v1alpha1.KueueRequest{{Resource: "cpu", Amount: -1}}}}
			}),
			want: `kueue.workloads[0]: requests[0]: -1 of cpu is negative`,
		},
		"RequestTwice": {
			reason: "nobody knows which one counts",
			change: quota(func(q *v1alpha1.KueueQuota) {
				q.Workloads = []v1alpha1.KueueWorkload{{Namespace: "a", Job: "b", Requests: []v1alpha1.KueueRequest{{Resource: "cpu"}, {Resource: "cpu"}}}}
			}),
			want: `kueue.workloads[0]: requests[1]: "cpu" is there twice`,
		},
		"ResourceTwice": {
			reason: "the columns of all amounts would be about the same resource",
			change: func(r *v1alpha1.CapacityReport) { r.Resources = append(r.Resources, "cpu") },
			want:   `resources[1]: "cpu" is there twice`,
		},
		"NegativePods": {
			reason: "more pods would be missing than the job has",
			change: func(r *v1alpha1.CapacityReport) {
				r.Gangs = []v1alpha1.ReportedGang{{Namespace: "a", Name: "b", Pods: []v1alpha1.ReportedPods{{Bound: -1}}}}
			},
			want: `gangs[0]: pods[0]: -1 pods are bound and 0 have succeeded; neither may be negative`,
		},
		"NegativeAmount": {
			reason: "it would give room",
			change: func(r *v1alpha1.CapacityReport) { r.NodeGroups[0].Rows[0].Used[0] = -1 },
			want:   `nodeGroups[0]: rows[0]: -1 of cpu is negative`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			report := newCapacityReport(1, 8)
			test.change(report)
			got := ""
			if _, err := snapshotOf(report); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("%s: %q, want %q", test.reason, got, test.want)
			}
		})
	}
}
