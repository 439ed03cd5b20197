// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
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
func addValidity(mgr ctrl.Manager, options Options) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("dispatchpolicy").
		For(&v1alpha1.DispatchPolicy{}, builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(&policyReconciler{hub: options.Hub, recorder: options.Recorder, clock: options.Clock})
	if err != nil {
		return fmt.Errorf("add DispatchPolicy controller: %w", err)
	}
	return nil
}

// policyReconciler reconciles DispatchPolicies.
type policyReconciler struct {
	hub      client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
}

// Reconcile writes the condition Valid of a policy if it has changed.
func (r *policyReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	policy := &v1alpha1.DispatchPolicy{}
	if err := r.hub.Get(ctx, request.NamespacedName, policy); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	updated := policy.DeepCopy()
	condition := validity(policy)
	condition.LastTransitionTime = metav1.NewTime(r.clock.Now())
	if !meta.SetStatusCondition(&updated.Status.Conditions, condition) {
		return reconcile.Result{}, nil
	}
	patch := client.MergeFromWithOptions(policy, client.MergeFromWithOptimisticLock{})
	switch err := r.hub.Status().Patch(ctx, updated, patch, records.FieldOwner); {
	case apierrors.IsConflict(err):
		return reconcile.Result{RequeueAfter: requeue.ConflictDelay}, nil
	case err != nil:
		return reconcile.Result{}, client.IgnoreNotFound(fmt.Errorf("patch status of DispatchPolicy %q: %w", policy.Name, err))
	}
	if condition.Status == metav1.ConditionFalse {
		r.recorder.Eventf(updated, nil, corev1.EventTypeWarning, "Invalid", "Compile", "%s", record.Cut(condition.Message, record.NoteLimit))
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

// addActivity adds the controller that says of each AdmissionCheck of Trainyard whether it is decided. A ClusterQueue
// with a check that is not Active admits no jobs.
func addActivity(mgr ctrl.Manager, options Options) error {
	if !options.AdmissionCheck {
		return nil
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("admissioncheck").
		For(kueues.KindAdmissionCheck.New(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(&checkReconciler{hub: options.Hub, recorder: options.Recorder, clock: options.Clock})
	if err != nil {
		return fmt.Errorf("add AdmissionCheck controller: %w", err)
	}
	return nil
}

// checkReconciler reconciles AdmissionChecks.
type checkReconciler struct {
	hub      client.Client
	recorder events.EventRecorder
	clock    clock.PassiveClock
}

// Reconcile writes the condition Active of a check of Trainyard if it has changed.
func (r *checkReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := kueues.KindAdmissionCheck.New()
	if err := r.hub.Get(ctx, request.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	check, err := kueues.Read[kueues.AdmissionCheck](object)
	if err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("read AdmissionCheck %q: %w", request.Name, err))
	}
	if check.Spec.ControllerName != kueue.CheckController {
		return reconcile.Result{}, nil
	}
	condition := activity(check)
	condition.LastTransitionTime = metav1.NewTime(r.clock.Now())
	if !meta.SetStatusCondition(&check.Status.Conditions, condition) {
		return reconcile.Result{}, nil
	}
	if err := r.write(ctx, object, check.Status.Conditions); err != nil {
		return requeue.AfterConflict(reconcile.Result{}, client.IgnoreNotFound(err))
	}
	if condition.Status == metav1.ConditionFalse {
		r.recorder.Eventf(object, nil, corev1.EventTypeWarning, condition.Reason, "Check", "%s", condition.Message)
	}
	return reconcile.Result{}, nil
}

// write replaces the conditions of an AdmissionCheck. It fails with a conflict if the AdmissionCheck has changed.
func (r *checkReconciler) write(
	ctx context.Context, object *unstructured.Unstructured, conditions []metav1.Condition,
) error {
	body, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": object.GetResourceVersion()},
		"status":   map[string]any{"conditions": conditions},
	})
	if err == nil {
		err = r.hub.Status().Patch(ctx, object, client.RawPatch(types.MergePatchType, body), records.FieldOwner)
	}
	if err != nil {
		return fmt.Errorf("patch status of AdmissionCheck %q: %w", object.GetName(), err)
	}
	return nil
}

// activity is the condition Active of a check of Trainyard.
func activity(check *kueues.AdmissionCheck) metav1.Condition {
	condition := metav1.Condition{
		Type: kueues.Active, Status: metav1.ConditionTrue, Reason: "Active", ObservedGeneration: check.Generation,
		Message: "Trainyard decides about jobs with this check",
	}
	if check.Spec.Parameters != (kueues.Parameters{}) {
		condition.Status, condition.Reason = metav1.ConditionFalse, "InvalidParameters"
		condition.Message = "spec.parameters: a check of " + kueue.CheckController + " takes no parameters, take them off; " +
			"which workers a job may use is said by DispatchPolicies"
	}
	return condition
}
