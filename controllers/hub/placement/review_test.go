// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
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
		"UnknownWorker": {reason: "a worker of which no node is known may have room", workers: registered},
	} {
		t.Run(name, func(t *testing.T) {
			job := &queue.Job{Job: dispatch.Job{Name: "job"}}
			for _, spec := range tc.policies {
				rules := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "rules"}, Spec: spec}
				job.Policies = append(job.Policies, dispatch.Policy{DispatchPolicy: rules})
			}
			if diff := cmp.Diff(tc.want, prospects(job, tc.workers)); diff != "" {
				t.Errorf("prospects() (-want +got): %s\n%s", tc.reason, diff)
			}
		})
	}
}
