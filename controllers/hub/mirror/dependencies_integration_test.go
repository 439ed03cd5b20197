// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror_test

import (
	"context"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// observer is in place of package dependencies, and sees what the worker has when it is called.
type observer struct {
	s                 *scene
	t                 *testing.T
	left              []string
	brought           int
	namespace, copied bool
}

func (w *observer) Bring(ctx context.Context, d *v1alpha1.Dispatch) ([]string, error) {
	w.brought++
	w.copied = w.copied || w.s.copy(w.t) != nil
	w.namespace = w.s.worker.Admin.Get(ctx, client.ObjectKey{Name: d.Namespace}, &corev1.Namespace{}) == nil
	return w.left, nil
}

func (*observer) IsBrought(context.Context, *v1alpha1.Dispatch) bool { return true }
func (*observer) Doubt(*v1alpha1.Dispatch)                           {}
func (*observer) Settle(*v1alpha1.Dispatch)                          {}

// What pods name is brought after the namespace and before the copy, once. The copy has the names, also if somebody takes
// them off, and the job is told what was left alone.
func TestDependenciesComeBeforeTheCopy(t *testing.T) {
	s := newScene(t, setting{hubOnly: true})
	d := s.dispatch(t)
	d.Spec.Dependencies = []v1alpha1.Dependency{{Kind: "Secret", Name: "hf"}, {Kind: "ConfigMap", Name: "c"}}
	must(t, s.Hub.Admin.Update(t.Context(), d))
	w := &observer{s: s, t: t, left: []string{"Secret/hf is somebody else's"}}
	s.options.Dependencies = w
	s.restart()
	s.reconcile(t)
	copy := s.copy(t)
	if copy == nil || w.copied || !w.namespace || w.brought != 1 {
		t.Fatalf("copy: %v; brought %d times, after the namespace: %t, after the copy: %t", copy != nil, w.brought, w.namespace, w.copied)
	}
	check.Equal(t, "Secret/hf,ConfigMap/c", copy.GetAnnotations()[v1alpha1.AnnotationDependencies], "the names on the copy")
	if told := strings.Join(s.Events.About(jobName), "\n"); !strings.Contains(told, "DependenciesLeft") || !strings.Contains(told, "Secret/hf") {
		t.Errorf("the job is told %q", told)
	}
	annotations := copy.GetAnnotations()
	delete(annotations, v1alpha1.AnnotationDependencies)
	copy.SetAnnotations(annotations)
	must(t, s.worker.Admin.Update(t.Context(), copy))
	s.settle(t)
	s.reconcile(t)
	check.Equal(t, "Secret/hf,ConfigMap/c", s.copy(t).GetAnnotations()[v1alpha1.AnnotationDependencies], "the names on the copy")
	check.Equal(t, 1, w.brought, "how often they were brought")
}
