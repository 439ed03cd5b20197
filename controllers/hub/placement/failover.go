// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// failoverOf is what happens to a job on a worker if that is lost. It is decided when the job is placed, because the copy tells the
// worker's agent. Where no agent answers nobody would stop the copy, so that Fenced is Hold there.
func failoverOf(policy *v1alpha1.DispatchPolicy, worker *v1alpha1.WorkerCluster) v1alpha1.Failover {
	failover := v1alpha1.FailoverFenced
	if policy != nil && policy.Spec.Failover != "" {
		failover = policy.Spec.Failover
	}
	if failover == v1alpha1.FailoverFenced && !meta.IsStatusConditionTrue(worker.Status.Conditions, v1alpha1.WorkerClusterAgentReady) {
		return v1alpha1.FailoverHold
	}
	return failover
}
