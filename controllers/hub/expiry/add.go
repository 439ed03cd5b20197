// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package expiry

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/builder"
	"sigs.k8s.io/controller-runtime/pkg/controller"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/predicate"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// concurrency is how many jobs are archived and deleted at a time. With an archive a job takes three requests to the
// hub, one after the other. So 16 reach deletionsPerSecond if the hub answers within 90 ms, and the 12 jobs a second of
// a million a day within 450 ms. With 4, a busy hub that answered within a second got six jobs a second to delete, and
// deleted one.
const concurrency = 16

// Add adds the controller to the manager.
func (r *Reconciler) Add(mgr ctrl.Manager) error {
	err := ctrl.NewControllerManagedBy(mgr).
		Named("expiry").
		For(&v1alpha1.Dispatch{}, builder.WithPredicates(finishing())).
		Watches(trainjobs.New(), r.jobs()).
		Watches(&v1alpha1.DispatchPolicy{}, r.policies()).
		WatchesMetadata(&corev1.Namespace{}, r.namespaces(), builder.WithPredicates(predicate.LabelChangedPredicate{})).
		WithOptions(controller.Options{MaxConcurrentReconciles: concurrency}).
		Complete(r)
	if err != nil {
		return fmt.Errorf("add expiry controller: %w", err)
	}
	return nil
}

// finishing lets each Dispatch through once: when it becomes Finished, or when a new process first sees that it is.
func finishing() predicate.Predicate {
	finished := func(d *v1alpha1.Dispatch) bool { return record.AttemptOf(d) == record.Finished }
	return predicate.Funcs{
		CreateFunc: func(e event.CreateEvent) bool { return finished(e.Object.(*v1alpha1.Dispatch)) },
		UpdateFunc: func(e event.UpdateEvent) bool {
			before, after := e.ObjectOld.(*v1alpha1.Dispatch), e.ObjectNew.(*v1alpha1.Dispatch)
			return finished(after) && (!finished(before) || before.UID != after.UID)
		},
		DeleteFunc:  func(event.DeleteEvent) bool { return false },
		GenericFunc: func(event.GenericEvent) bool { return false },
	}
}
