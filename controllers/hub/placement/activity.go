// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/predicate"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/internal/requeue"
)

// addActivity adds the controller that says of each AdmissionCheck of Trainyard whether it is decided. A ClusterQueue
// with a check that is not Active admits no jobs.
func addActivity(mgr ctrl.Manager, options *Options) error {
	if !options.AdmissionCheck {
		return nil
	}
	err := ctrl.NewControllerManagedBy(mgr).
		Named("admissioncheck").
		For(newAdmissionCheck(), builder.WithPredicates(predicate.GenerationChangedPredicate{})).
		Complete(&checkReconciler{options})
	if err != nil {
		return fmt.Errorf("add AdmissionCheck controller: %w", err)
	}
	return nil
}

func newAdmissionCheck() *unstructured.Unstructured {
	check := &unstructured.Unstructured{}
	check.SetGroupVersionKind(kueue.AdmissionCheckKind)
	return check
}

// admissionCheck is what is read of an AdmissionCheck.
type admissionCheck struct {
	metav1.ObjectMeta `json:"metadata"`
	Spec              struct {
		ControllerName string         `json:"controllerName"`
		Parameters     map[string]any `json:"parameters"`
	} `json:"spec"`
	Status struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// checkReconciler reconciles AdmissionChecks.
type checkReconciler struct{ *Options }

// Reconcile writes the condition Active of a check of Trainyard if it has changed.
func (r *checkReconciler) Reconcile(ctx context.Context, request reconcile.Request) (reconcile.Result, error) {
	object := newAdmissionCheck()
	if err := r.Hub.Get(ctx, request.NamespacedName, object); err != nil {
		return reconcile.Result{}, client.IgnoreNotFound(err)
	}
	var check admissionCheck
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, &check); err != nil {
		return reconcile.Result{}, reconcile.TerminalError(fmt.Errorf("read AdmissionCheck %q: %w", request.Name, err))
	}
	if check.Spec.ControllerName != kueue.CheckController {
		return reconcile.Result{}, nil
	}
	condition := activity(&check)
	condition.LastTransitionTime = metav1.NewTime(r.Clock.Now())
	if !meta.SetStatusCondition(&check.Status.Conditions, condition) {
		return reconcile.Result{}, nil
	}
	if err := r.write(ctx, object, check.Status.Conditions); err != nil {
		return requeue.AfterConflict(reconcile.Result{}, client.IgnoreNotFound(err))
	}
	if condition.Status == metav1.ConditionFalse {
		r.Recorder.Eventf(object, nil, corev1.EventTypeWarning, condition.Reason, "Check", "%s", condition.Message)
	}
	return reconcile.Result{}, nil
}

// write replaces the conditions of an AdmissionCheck.
func (r *checkReconciler) write(
	ctx context.Context, object *unstructured.Unstructured, conditions []metav1.Condition,
) error {
	values := make([]any, len(conditions))
	for i := range conditions {
		value, err := runtime.DefaultUnstructuredConverter.ToUnstructured(&conditions[i])
		if err != nil {
			return fmt.Errorf("convert condition of AdmissionCheck %q: %w", object.GetName(), err)
		}
		values[i] = value
	}
	updated := object.DeepCopy()
	if err := unstructured.SetNestedSlice(updated.Object, values, "status", "conditions"); err != nil {
		return fmt.Errorf("set conditions of AdmissionCheck %q: %w", object.GetName(), err)
	}
	patch := client.MergeFromWithOptions(object, client.MergeFromWithOptimisticLock{})
	if err := r.Hub.Status().Patch(ctx, updated, patch, records.FieldOwner); err != nil {
		return fmt.Errorf("patch status of AdmissionCheck %q: %w", object.GetName(), err)
	}
	return nil
}

// activity is the condition Active of a check of Trainyard.
func activity(check *admissionCheck) metav1.Condition {
	condition := metav1.Condition{
		Type: "Active", Status: metav1.ConditionTrue, Reason: "Active", ObservedGeneration: check.Generation,
		Message: "Trainyard decides about jobs with this check",
	}
	if len(check.Spec.Parameters) > 0 {
		condition.Status, condition.Reason = metav1.ConditionFalse, "InvalidParameters"
		condition.Message = "spec.parameters: a check of " + kueue.CheckController + " takes no parameters, take them off; " +
			"which workers a job may use is said by DispatchPolicies"
	}
	return condition
}
