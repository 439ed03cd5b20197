// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package jobs

import (
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/views/output"
)

// SelectPolicy is dispatch.SelectPolicy.
func SelectPolicy(policies []v1alpha1.DispatchPolicy, job dispatch.Job) (policy *dispatch.Policy, ok bool, err error) {
	ready := make([]dispatch.Policy, len(policies))
	for i := range policies {
		ready[i].DispatchPolicy = &policies[i]
	}
	return dispatch.SelectPolicy(ready, job)
}

// PolicyName returns the name of a job's policy, or a text that says that there is none.
func PolicyName(policies []v1alpha1.DispatchPolicy, job dispatch.Job) string {
	policy, ok, err := SelectPolicy(policies, job)
	switch {
	case err != nil:
		return "invalid: " + err.Error()
	case policy == nil && ok:
		return output.None
	case policy == nil:
		return "none matches"
	}
	return policy.Name
}
