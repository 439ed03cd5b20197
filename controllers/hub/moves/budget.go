// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// IndexMoving is the field index of Dispatches whose jobs are on their way from drained workers.
const IndexMoving = "trainyard.moving"

// isMoving is the value under which they are.
const isMoving = "true"

// MovingOf is the function of IndexMoving.
func MovingOf(object client.Object) []string {
	if d, ok := object.(*v1alpha1.Dispatch); ok && moving(d) {
		return []string{isMoving}
	}
	return nil
}

// moving is true from a job's eviction from a drained worker until its next copy exists. One that somebody suspends meanwhile is not on
// its way any more, and neither is one that Kueue has taken back or dispatches itself.
func moving(d *v1alpha1.Dispatch) bool {
	switch {
	case d.DeletionTimestamp != nil || d.IsFinished():
		return false
	case d.Spec.Eviction != nil:
		return d.Spec.Eviction.Reason == v1alpha1.EvictionDrained
	case len(d.Status.History) == 0 || d.Status.History[len(d.Status.History)-1].Outcome != v1alpha1.OutcomeDrained:
		return false
	case d.Spec.Cluster == "":
		placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
		return placed == nil || placed.Status != metav1.ConditionFalse || !isGate(placed.Reason)
	default:
		return !d.WasCopied()
	}
}

// isGate is true for the reason of a job that is not to be placed now, whatever workers have.
func isGate(reason string) bool {
	switch reason {
	case v1alpha1.ReasonSuspended, v1alpha1.ReasonManagedByMultiKueue, v1alpha1.ReasonWaitingForWorkload:
		return true
	}
	return false
}

// budgets are how many jobs are on their way, by policy. Jobs without a policy share one budget.
type budgets map[string]int32

// defaultMoves is maxConcurrentMoves of policies that say nothing.
const defaultMoves = 1

func (b budgets) take(policy *v1alpha1.DispatchPolicy) { b[nameOf(policy)]++ }

// allows one more move.
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
