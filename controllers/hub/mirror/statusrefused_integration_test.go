// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/stage"
)

// Fault: the hub refuses the status of a TrainJob for a while, and the Dispatch says so. When the status is written,
// somebody else is writing the Dispatch. It must not say for ever that the status is refused.
func TestRefusalOfAStatusIsTakenBack(t *testing.T) {
	for name, end := range map[string]string{"Running": "", "Ended": "Complete"} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t, setting{})
			refuses, conflicts := false, 0
			s.options.Hub = interceptor.NewClient(s.Hub.Admin, interceptor.Funcs{
				SubResourcePatch: func(
					ctx context.Context, c client.Client, name string, object client.Object, patch client.Patch,
					options ...client.SubResourcePatchOption,
				) error {
					_, isDispatch := object.(*v1alpha1.Dispatch)
					switch {
					case !isDispatch && refuses:
						return apierrors.NewInvalid(schema.GroupKind{Kind: "TrainJob"}, object.GetName(), nil)
					case isDispatch && conflicts > 0:
						conflicts--
						return apierrors.NewConflict(schema.GroupResource{Resource: "dispatches"}, object.GetName(), nil)
					}
					return c.SubResource(name).Patch(ctx, object, patch, options...)
				},
			})
			s.restart()
			s.getUnderWay(t)
			refuses = true
			stage.Report(t, s.worker.Admin, s.copy(t), end, 2)
			s.settle(t)
			said := func() bool {
				return meta.IsStatusConditionTrue(s.dispatch(t).Status.Conditions, v1alpha1.DispatchWriteRefused)
			}
			for range 2 { // A change of a live copy's status is gathered for a second.
				_, _ = s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key})
				s.Clock.Step(2 * time.Second)
			}
			if !said() {
				t.Fatalf("the Dispatch does not say that the status is refused: %+v", s.dispatch(t).Status.Conditions)
			}
			refuses, conflicts = false, 1
			for range 3 {
				s.reconcile(t)
				s.Clock.Step(2 * time.Second)
			}
			if conflicts > 0 {
				t.Fatal("nobody wrote the Dispatch after the status")
			}
			if said() {
				t.Errorf("the Dispatch still says that the status is refused: %+v", s.dispatch(t).Status.Conditions)
			}
		})
	}
}
