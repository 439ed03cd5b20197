// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

func TestFailoverOf(t *testing.T) {
	says := func(failover v1alpha1.Failover) *v1alpha1.DispatchPolicy {
		return &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{Failover: failover}}
	}
	for name, test := range map[string]struct {
		reason string
		policy *v1alpha1.DispatchPolicy
		claim  string
		agent  metav1.ConditionStatus
		want   v1alpha1.Failover
	}{
		"NoPolicyNoAgent":  {reason: "nobody would stop it", want: v1alpha1.FailoverHold},
		"NoPolicy":         {reason: "the agent stops it", agent: metav1.ConditionTrue, want: v1alpha1.FailoverFenced},
		"Silent":           {reason: "a policy without a word is as none", policy: says(""), agent: metav1.ConditionTrue, want: v1alpha1.FailoverFenced},
		"SilentNoAgent":    {reason: "a policy without a word is as none", policy: says(""), agent: metav1.ConditionFalse, want: v1alpha1.FailoverHold},
		"Hold":             {reason: "the policy says it", policy: says(v1alpha1.FailoverHold), agent: metav1.ConditionTrue, want: v1alpha1.FailoverHold},
		"Fenced":           {reason: "the policy says it", policy: says(v1alpha1.FailoverFenced), agent: metav1.ConditionTrue, want: v1alpha1.FailoverFenced},
		"FencedNoAgent":    {reason: "who would stop it?", policy: says(v1alpha1.FailoverFenced), want: v1alpha1.FailoverHold},
		"FencedAgentIsOut": {reason: "an agent that is silent stops nothing", policy: says(v1alpha1.FailoverFenced), agent: metav1.ConditionFalse, want: v1alpha1.FailoverHold},
		"Claim":            {reason: "the job could go on nowhere else", policy: says(v1alpha1.FailoverImmediate), claim: "ckpt", agent: metav1.ConditionTrue, want: v1alpha1.FailoverHold},
		"Immediate":        {reason: "it needs no agent", policy: says(v1alpha1.FailoverImmediate), want: v1alpha1.FailoverImmediate},
	} {
		t.Run(name, func(t *testing.T) {
			worker := &v1alpha1.WorkerCluster{}
			if test.agent != "" {
				worker.Status.Conditions = []metav1.Condition{{Type: v1alpha1.WorkerClusterAgentReady, Status: test.agent}}
			}
			if got := failoverOf(test.policy, &queue.Job{Job: dispatch.Job{Claim: test.claim}}, worker); got != test.want {
				t.Errorf("failoverOf() = %q, want %q: %s", got, test.want, test.reason)
			}
		})
	}
}
