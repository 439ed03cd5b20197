// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/expressions"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// messageLimit is what the message of a condition takes.
const messageLimit = 32768

// addValidity adds the controller that says of each DispatchPolicy whether it can be applied. The API server knows only
// whether its fields have the right form.
func addValidity(mgr ctrl.Manager, options *Options) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("dispatchpolicy").
		For(&v1alpha1.DispatchPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(&policyReconciler{options})
	if err != nil {
		return fmt.Errorf("add DispatchPolicy controller: %w", err)
	}
	return nil
}

// policyReconciler reconciles DispatchPolicies.
type policyReconciler struct{ *Options }

// Reconcile writes the condition Valid of a policy if it has changed.
func (r *policyReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	policy := &v1alpha1.DispatchPolicy{}
	if err := r.Hub.Get(ctx, request.NamespacedName, policy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	updated := policy.DeepCopy()
	condition := validity(policy)
	condition.LastTransitionTime = metav1.NewTime(r.Clock.Now())
	if !meta.SetStatusCondition(&updated.Status.Conditions, condition) {
		return reconcile.Result{}, nil
	}
	patch := client.MergeFromWithOptions(policy, client.MergeFromWithOptimisticLock{})
	switch err := r.Hub.Status().Patch(ctx, updated, patch, records.FieldOwner); {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: requeue.ConflictDelay}, nil
	case err != nil:
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("patch status of DispatchPolicy %q: %w", policy.Name, err))
	}
	if condition.Status == metav1.ConditionFalse {
		r.Recorder.Eventf(updated, nil, corev1.EventTypeWarning, "Invalid", "Compile", "%s", record.Cut(condition.Message, record.NoteLimit))
	}
	return reconcile.Result{}, nil
}

// validity is the condition Valid of a policy.
func validity(policy *v1alpha1.DispatchPolicy) metav1.Condition {
	ready := dispatch.Policy{DispatchPolicy: policy}
	if text := policy.Spec.Clusters.Expression; text != "" {
		if expression, err := expressions.Compile(text); err != nil {
			ready.Fault = err
		} else {
			ready.Expression = expression
		}
	}
	condition := metav1.Condition{
		Type: v1alpha1.DispatchPolicyValid, Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonValid,
		ObservedGeneration: policy.Generation,
	}
	var messages []string
	for _, fault := range ready.Faults() {
		messages = append(messages, fault.Error())
	}
	if len(messages) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, v1alpha1.ReasonInvalid
		condition.Message = record.Cut(strings.Join(messages, "; "), messageLimit)
	}
	return condition
}
