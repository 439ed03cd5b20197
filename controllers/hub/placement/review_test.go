// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/test/check"
)

// TestProspects checks what the hub says of a job that no policy and no worker takes.
func TestProspects(t *testing.T) {
	other := v1alpha1.DispatchPolicySpec{Jobs: v1alpha1.JobSelector{
		Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"team": "other"}},
	}}
	faulty := v1alpha1.DispatchPolicySpec{Clusters: v1alpha1.ClusterSelector{Selector: &metav1.LabelSelector{
		MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "region", Operator: "Like"}},
	}}}
	registered := []v1alpha1.WorkerCluster{{ObjectMeta: metav1.ObjectMeta{Name: "east"}}}
	full := []v1alpha1.WorkerCluster{{
		ObjectMeta: metav1.ObjectMeta{Name: "east"},
		Spec:       v1alpha1.WorkerClusterSpec{Price: v1alpha1.Prices{"nvidia.com/gpu": resource.MustParse("2")}},
		Status: v1alpha1.WorkerClusterStatus{NodeGroups: []v1alpha1.NodeGroup{{
			Resource: "nvidia.com/gpu", Nodes: 2, Allocatable: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")},
			Free: []v1alpha1.FreeNodes{{GPUs: 0, Nodes: 2}},
		}}},
	}}
	matching := func(expression string) []v1alpha1.DispatchPolicySpec {
		return []v1alpha1.DispatchPolicySpec{{Clusters: v1alpha1.ClusterSelector{Expression: expression}}}
	}
	for name, tc := range map[string]struct {
		reason   string
		policies []v1alpha1.DispatchPolicySpec
		workers  []v1alpha1.WorkerCluster
		want     []string
	}{
		"NoPolicy": {
			reason: "a policy for the job may be created", policies: []v1alpha1.DispatchPolicySpec{other}, workers: registered,
			want: []string{"the job waits: no DispatchPolicy matches the labels of the job and its namespace"},
		},
		"InvalidPolicy": {
			reason: "the policy may be repaired", policies: []v1alpha1.DispatchPolicySpec{faulty}, workers: registered,
			want: []string{`the job waits: DispatchPolicy "rules": spec.clusters.selector: "Like" is not a valid label selector operator`},
		},
		"NoWorkers": {
			reason: "a worker may be registered",
			want:   []string{"the job waits: no WorkerCluster is registered"},
		},
		"NoPolicyBeforeNoWorkers": {
			reason: "the policy is looked at first", policies: []v1alpha1.DispatchPolicySpec{other},
			want: []string{"the job waits: no DispatchPolicy matches the labels of the job and its namespace"},
		},
		"RoomWhenEmpty": {
			reason: "a worker without free GPUs passes once its jobs have ended", workers: full,
			policies: matching(`worker.freeGPUs >= 16.0 && worker.gpus == 16.0 && worker.free["nvidia.com/gpu"] == worker.allocatable["nvidia.com/gpu"]`),
		},
		"WholeNodesWhenEmpty": {
			reason: "and so do its nodes", workers: full,
			policies: matching(`worker.nodeGroups.exists(g, g.free.exists(f, f.gpus == 8 && f.nodes == 2))`),
		},
		"Price": {reason: "the worker's price is known", workers: full, policies: matching(`worker.price["nvidia.com/gpu"] < 3.0`)},
		"TooExpensive": {
			reason: "somebody has to change the policy or the price", workers: full, policies: matching(`worker.price["nvidia.com/gpu"] < 1.0`),
			want: []string{`the job waits: its policy allows no worker; nearest is worker "east": the expression of DispatchPolicy rules is false for the worker: worker.price["nvidia.com/gpu"] is 2`},
		},
		"UnknownWorker": {reason: "a worker of which no node is known may have room", workers: registered},
	} {
		t.Run(name, func(t *testing.T) {
			var policies []v1alpha1.DispatchPolicy
			for _, spec := range tc.policies {
				policies = append(policies, v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "rules"}, Spec: spec})
			}
			job := &queue.Job{Job: dispatch.Job{Name: "job"}, Policies: new(compiled).of(policies)}
			check.Diff(t, tc.want, prospects(job, tc.workers), fmt.Sprintf("prospects() (-want +got): %s", tc.reason))
		})
	}
}
