// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// A job of a protected namespace is never placed, and its Dispatch and an Event say why.
func TestProtectedNamespace(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job")
	s.reconciler.Protected = func(namespace string) bool { return namespace == s.Namespace }
	for range 2 {
		d, _ := s.reconcile(t, "job")
		if d == nil || d.Spec.Cluster != "" {
			t.Fatalf("the Dispatch is %+v, want one that waits", d)
		}
		condition := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
		if condition == nil || condition.Status != metav1.ConditionFalse || condition.Reason != v1alpha1.ReasonProtectedNamespace ||
			!strings.Contains(condition.Message, s.Namespace) || !strings.Contains(condition.Message, "--protected-namespaces") {
			t.Errorf("condition Placed is %+v, want it False by %s, with words", condition, v1alpha1.ReasonProtectedNamespace)
		}
	}
	if told := strings.Join(s.Events.Take(), "\n"); !strings.HasPrefix(told, corev1.EventTypeWarning) || !strings.Contains(told, v1alpha1.ReasonProtectedNamespace) {
		t.Errorf("the Event is %q", told)
	}
	s.reconciler.Protected = nil
	if d, _ := s.reconcile(t, "job"); d.Spec.Cluster == "" {
		t.Error("the job waits though its namespace is protected no more")
	}
}
