// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"cmp"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// SelectPolicy returns the policy of a job: of those that match its labels and its namespace's the one with the highest
// priority, ties by name. Without any policy it returns nil, and the job may go everywhere. If there are policies and none
// matches, ok is false, and the job may go nowhere.
//
// An invalid selector is an error which names the policy, if the policy could be the one that wins: whether it matches is not
// known then. One that is outranked does no harm.
func SelectPolicy(policies []v1alpha1.DispatchPolicy, job Job) (policy *v1alpha1.DispatchPolicy, ok bool, err error) {
	for i := range policies {
		candidate := &policies[i]
		if policy != nil && !outranks(candidate, policy) {
			continue
		}
		matches, fault := matchesJob(candidate, job)
		if fault != nil || matches {
			policy, err = candidate, fault
		}
	}
	if err != nil {
		return nil, false, err
	}
	return policy, policy != nil || len(policies) == 0, nil
}

// outranks says whether a wins over b.
func outranks(a, b *v1alpha1.DispatchPolicy) bool {
	return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), cmp.Compare(a.Name, b.Name)) < 0
}

func matchesJob(policy *v1alpha1.DispatchPolicy, job Job) (bool, error) {
	jobs := policy.Spec.Jobs
	namespaces, err := selector(jobs.NamespaceSelector)
	if err != nil {
		return false, fmt.Errorf("DispatchPolicy %q: spec.jobs.namespaceSelector: %w", policy.Name, err)
	}
	if !namespaces.Matches(labels.Set(job.NamespaceLabels)) {
		return false, nil
	}
	selected, err := selector(jobs.Selector)
	if err != nil {
		return false, fmt.Errorf("DispatchPolicy %q: spec.jobs.selector: %w", policy.Name, err)
	}
	return selected.Matches(labels.Set(job.Labels)), nil
}

// clusterSelector returns what selects the workers to which the policy lets jobs go. A nil policy selects all.
func clusterSelector(policy *v1alpha1.DispatchPolicy) (labels.Selector, error) {
	if policy == nil {
		return labels.Everything(), nil
	}
	clusters, err := selector(policy.Spec.Clusters.Selector)
	if err != nil {
		return nil, fmt.Errorf("DispatchPolicy %q: spec.clusters.selector: %w", policy.Name, err)
	}
	return clusters, nil
}

// selector converts a label selector of the API, where an absent one selects everything.
func selector(s *metav1.LabelSelector) (labels.Selector, error) {
	if s == nil {
		return labels.Everything(), nil
	}
	return metav1.LabelSelectorAsSelector(s)
}
