// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// Policies finds the DispatchPolicy of a job in the hub's caches.
type Policies struct {
	Hub client.Reader
}

// For returns the policy that applies to a hub TrainJob, nil if there is none. dispatch.Decide says whether the job may
// be placed without a policy.
func (p Policies) For(ctx context.Context, job *unstructured.Unstructured) (*v1alpha1.DispatchPolicy, error) {
	policies, labels, err := p.inputs(ctx, job)
	if err != nil {
		return nil, err
	}
	return policyOf(policies, dispatch.JobOf(job, labels))
}

// policyOf returns the policy that applies to a job, nil if there is none.
func policyOf(policies []v1alpha1.DispatchPolicy, job dispatch.Job) (*v1alpha1.DispatchPolicy, error) {
	plain := make([]dispatch.Policy, len(policies))
	for i := range policies {
		plain[i].DispatchPolicy = &policies[i]
	}
	policy, _, err := dispatch.SelectPolicy(plain, job)
	if err != nil || policy == nil {
		return nil, err
	}
	return policy.DispatchPolicy, nil
}

// Retention returns how long the finished copy of a hub TrainJob stays on its worker.
func (p Policies) Retention(ctx context.Context, job *unstructured.Unstructured) (time.Duration, error) {
	policy, err := p.For(ctx, job)
	return policy.Rules().Retention.Duration, err
}

// inputs reads all policies, and the labels of the job's namespace. What is returned is shared with the cache.
func (p Policies) inputs(ctx context.Context, job *unstructured.Unstructured) ([]v1alpha1.DispatchPolicy, map[string]string, error) {
	policies, err := p.all(ctx)
	if err != nil {
		return nil, nil, err
	}
	namespace := &metav1.PartialObjectMetadata{TypeMeta: metav1.TypeMeta{APIVersion: corev1.SchemeGroupVersion.String(), Kind: "Namespace"}}
	err = p.Hub.Get(ctx, types.NamespacedName{Name: job.GetNamespace()}, namespace)
	if client.IgnoreNotFound(err) != nil {
		return nil, nil, fmt.Errorf("get Namespace %q: %w", job.GetNamespace(), err)
	}
	return policies, namespace.Labels, nil
}

// all returns the policies of the hub, which the caller must not change.
func (p Policies) all(ctx context.Context) ([]v1alpha1.DispatchPolicy, error) {
	var policies v1alpha1.DispatchPolicyList
	if err := p.Hub.List(ctx, &policies, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list DispatchPolicies: %w", err)
	}
	return policies.Items, nil
}
