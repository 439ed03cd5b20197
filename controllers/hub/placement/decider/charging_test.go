// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/quota"
)

// TestChargingIsLearned: the Workload of the job that was placed last says for what the worker's Kueue charges.
func TestChargingIsLearned(t *testing.T) {
	dawn := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ambiguous := []v1alpha1.PodSet{{
		Name: "node", Count: 2, Requests: corev1.ResourceList{"gpu": resource.MustParse("8")},
		UnmergedRequests: corev1.ResourceList{"gpu": resource.MustParse("0"), "cpu": resource.MustParse("1")},
	}}
	job := func(name string, hours int) *assignment {
		return &assignment{key: types.NamespacedName{Namespace: "team", Name: name}, podSets: ambiguous, since: dawn.Add(time.Duration(hours) * time.Hour)}
	}
	workload := func(job string, requests ...v1alpha1.KueueRequest) v1alpha1.KueueWorkload {
		return v1alpha1.KueueWorkload{Namespace: "team", Job: job, Requests: requests}
	}
	gpus, cpus := v1alpha1.KueueRequest{Resource: "gpu", Amount: 16}, v1alpha1.KueueRequest{Resource: "cpu", Amount: 2000}
	known := charging{basis: quota.Unmerged, since: dawn.Add(2 * time.Hour)}
	for name, test := range map[string]struct {
		reason    string
		known     charging
		jobs      []*assignment
		workloads []v1alpha1.KueueWorkload
		want      quota.Basis
	}{
		"First":         {"it shows it", charging{}, []*assignment{job("a", 1)}, []v1alpha1.KueueWorkload{workload("a", gpus)}, quota.Merged},
		"OtherBuild":    {"it shows it", charging{}, []*assignment{job("a", 1)}, []v1alpha1.KueueWorkload{workload("a", cpus)}, quota.Unmerged},
		"NotLookedAt":   {"Kueue has not said yet what it charges", charging{}, []*assignment{job("a", 1)}, []v1alpha1.KueueWorkload{workload("a")}, quota.Assumed},
		"NotOurs":       {"nobody knows what it should request", charging{}, []*assignment{job("a", 1)}, []v1alpha1.KueueWorkload{workload("b", gpus)}, quota.Assumed},
		"Remembered":    {"its Workload is gone", known, nil, nil, quota.Unmerged},
		"LaterJob":      {"Kueue was replaced meanwhile", known, []*assignment{job("a", 3)}, []v1alpha1.KueueWorkload{workload("a", gpus)}, quota.Merged},
		"EarlierJob":    {"its Workload was made by the Kueue before", known, []*assignment{job("a", 1)}, []v1alpha1.KueueWorkload{workload("a", gpus)}, quota.Unmerged},
		"AfterARestart": {"the order of the jobs does not matter", charging{}, []*assignment{job("b", 3), job("a", 1)}, []v1alpha1.KueueWorkload{workload("a", gpus), workload("b", cpus)}, quota.Unmerged},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.known
			got.learn(quota.New(&v1alpha1.KueueQuota{Workloads: test.workloads}), test.jobs)
			if got.basis != test.want {
				t.Errorf("basis %d, want %d: %s", got.basis, test.want, test.reason)
			}
		})
	}
}
