// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import "github.com/trainyard/trainyard/api/v1alpha1"

// budgets count the jobs on their way, by policy. Jobs without a policy share one budget.
type budgets map[string]int32

// defaultMoves is the maxConcurrentMoves of a policy that does not set it.
const defaultMoves = 1

func (b budgets) take(policy *v1alpha1.DispatchPolicy) { b[nameOf(policy)]++ }

func (b budgets) allows(policy *v1alpha1.DispatchPolicy) bool {
	limit := int32(defaultMoves)
	if policy != nil && policy.Spec.MaxConcurrentMoves != nil {
		limit = *policy.Spec.MaxConcurrentMoves
	}
	return b[nameOf(policy)] < limit
}

func nameOf(policy *v1alpha1.DispatchPolicy) string {
	if policy == nil {
		return ""
	}
	return policy.Name
}
