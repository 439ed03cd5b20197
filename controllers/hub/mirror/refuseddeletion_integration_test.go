// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// Fault: the worker does not let the copy of a deleted job be deleted. The Dispatch says so, once, in the worker's
// words. It is gone when the worker has allowed the deletion.
func TestDeletionIsRefused(t *testing.T) {
	for name, refusal := range map[string]error{
		"Forbidden":    apierrors.NewForbidden(schema.GroupResource{Resource: "trainjobs"}, "job", errors.New("it may not go")),
		"WebhookHangs": apierrors.NewInternalError(errors.New("failed calling webhook: it may not go")),
	} {
		t.Run(name, func(t *testing.T) { testDeletionIsRefused(t, refusal) })
	}
}

func testDeletionIsRefused(t *testing.T, refusal error) {
	t.Helper()
	s := newScene(t, setting{})
	s.reconcile(t)
	allowed, err := s.worker.Connection.Client()
	must(t, err)
	s.options.Worker = stuckWorker{cached: deletionRefuser{allowed, refusal}, live: s.worker.Admin}
	s.restart()
	must(t, s.Hub.Admin.Delete(t.Context(), s.job(t)))
	for range 2 {
		if _, err := s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key}); !errors.Is(err, refusal) {
			t.Fatalf("got error %v, want the refusal, so that it is tried again", err)
		}
	}
	said := s.dispatch(t)
	condition := meta.FindStatusCondition(said.Status.Conditions, v1alpha1.DispatchMirrored)
	if condition == nil || condition.Reason != v1alpha1.ReasonDeletionRefused || !strings.Contains(condition.Message, "may not go") {
		t.Errorf("the Dispatch says %+v, want the worker's words", condition)
	}
	_, _ = s.mirror.Reconcile(t.Context(), reconcile.Request{NamespacedName: s.key})
	check.Equal(t, said.ResourceVersion, s.dispatch(t).ResourceVersion, "the same was written again")

	s.options.Worker = s.worker.Connection
	s.restart()
	s.reconcile(t)
	if copy := s.copy(t); copy != nil && copy.GetDeletionTimestamp() == nil {
		t.Errorf("the copy was not deleted when the worker allowed it: %v", copy)
	}
}

// deletionRefuser is a client of a worker that refuses each deletion.
type deletionRefuser struct {
	client.Client
	refusal error
}

// Delete implements client.Writer.
func (d deletionRefuser) Delete(context.Context, client.Object, ...client.DeleteOption) error {
	return d.refusal
}
