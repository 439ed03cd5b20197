// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import "github.com/trainyard/trainyard/api/v1alpha1"

// budgets count the jobs on their way, by policy. Jobs without a policy share one budget.
type budgets map[string]int32

func (b budgets) take(policy *v1alpha1.DispatchPolicy) { b[nameOf(policy)]++ }

func (b budgets) allows(policy *v1alpha1.DispatchPolicy) bool {
	return b[nameOf(policy)] < *policy.Rules().MaxConcurrentMoves
}

func nameOf(policy *v1alpha1.DispatchPolicy) string {
	if policy == nil {
		return ""
	}
	return policy.Name
}
