// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"cmp"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// policyDefaults is what holds where a policy leaves a field out, and for jobs without a policy. The comments of the
// fields say the same in words, after "Absent:". TestDefaultsInWords compares them.
var policyDefaults = DispatchPolicySpec{
	// It keeps whole nodes free for gangs (docs/simulation.md).
	Scoring:            []Score{{Name: ScoreMostAllocated, Weight: 1}},
	AddNodes:           AddNodesLast,
	Queueing:           BestEffortFIFO,
	ReserveAfter:       &metav1.Duration{Duration: 2 * time.Hour},
	Preemption:         PreemptNever,
	Failover:           FailoverFenced, // The copy of a worker without an agent gets Hold: nobody would stop it.
	MaxConcurrentMoves: new(int32(1)),
	AdmissionTimeout:   &metav1.Duration{}, // For ever.
	GiveUpAfter:        &metav1.Duration{}, // For ever.
	HubFlavors:         HubFlavorsIgnore,
	Runtime:            RuntimeAny,
	Skew:               SkewRefuse,
	UnmanagedJobs:      UnmanagedIgnore,
	Propagate:          &Propagation{Namespaces: new(true), Runtimes: new(true), PodSecurity: PodSecurityEnforce},
	Retention:          &metav1.Duration{Duration: time.Hour},
}

// failoverDefaults is what holds where a WorkerCluster leaves a field of spec.failover out.
var failoverDefaults = WorkerFailover{
	GracePeriod: &metav1.Duration{Duration: 5 * time.Minute},
	FenceAfter:  &metav1.Duration{Duration: 10 * time.Minute},
}

// Rules returns the spec with its defaults. p may be nil. The caller must not change what the pointers lead to.
func (p *DispatchPolicy) Rules() DispatchPolicySpec {
	if p == nil {
		return policyDefaults
	}
	rules, defaults := p.Spec, &policyDefaults
	if len(rules.Scoring) == 0 {
		rules.Scoring = defaults.Scoring
	}
	rules.AddNodes = cmp.Or(rules.AddNodes, defaults.AddNodes)
	rules.Queueing = cmp.Or(rules.Queueing, defaults.Queueing)
	rules.ReserveAfter = cmp.Or(rules.ReserveAfter, defaults.ReserveAfter)
	rules.Preemption = cmp.Or(rules.Preemption, defaults.Preemption)
	rules.Failover = cmp.Or(rules.Failover, defaults.Failover)
	rules.MaxConcurrentMoves = cmp.Or(rules.MaxConcurrentMoves, defaults.MaxConcurrentMoves)
	rules.AdmissionTimeout = cmp.Or(rules.AdmissionTimeout, defaults.AdmissionTimeout)
	rules.GiveUpAfter = cmp.Or(rules.GiveUpAfter, defaults.GiveUpAfter)
	rules.HubFlavors = cmp.Or(rules.HubFlavors, defaults.HubFlavors)
	rules.Runtime = cmp.Or(rules.Runtime, defaults.Runtime)
	rules.Skew = cmp.Or(rules.Skew, defaults.Skew)
	rules.UnmanagedJobs = cmp.Or(rules.UnmanagedJobs, defaults.UnmanagedJobs)
	rules.Retention = cmp.Or(rules.Retention, defaults.Retention)
	rules.Propagate = rules.Propagate.withDefaults()
	return rules
}

func (p *Propagation) withDefaults() *Propagation {
	defaults := policyDefaults.Propagate
	if p == nil {
		return defaults
	}
	return &Propagation{
		Namespaces:  cmp.Or(p.Namespaces, defaults.Namespaces),
		Runtimes:    cmp.Or(p.Runtimes, defaults.Runtimes),
		PodSecurity: cmp.Or(p.PodSecurity, defaults.PodSecurity),

		Dependencies: p.Dependencies,
	}
}

// GracePeriod is spec.failover.gracePeriod or its default.
func (w *WorkerCluster) GracePeriod() time.Duration {
	return cmp.Or(w.Spec.Failover.GracePeriod, failoverDefaults.GracePeriod).Duration
}

// FenceAfter is spec.failover.fenceAfter or its default.
func (w *WorkerCluster) FenceAfter() time.Duration {
	return cmp.Or(w.Spec.Failover.FenceAfter, failoverDefaults.FenceAfter).Duration
}
