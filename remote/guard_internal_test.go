// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	toolscache "k8s.io/client-go/tools/cache"
)

func TestGuard(t *testing.T) {
	var told []string
	g := guard(func(what string, value any, stack []byte) {
		if value != "poison" || len(stack) == 0 {
			t.Errorf("%s: %v, with %d bytes of stack", what, value, len(stack))
		}
		told = append(told, what)
	})
	poison := func(any) (any, error) { panic("poison") }
	if out, err := g.transform("Node", poison)("as it is"); out != "as it is" || err != nil {
		t.Errorf("the transform gives %v, %v", out, err)
	}
	double := func(in any) (any, error) { return in.(string) + in.(string), nil }
	if out, err := g.transform("Node", double)("a"); out != "aa" || err != nil {
		t.Errorf("the transform that does not panic gives %v, %v", out, err)
	}
	if want := []string{"a Node"}; !cmp.Equal(told, want) {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestStripMetadata(t *testing.T) {
	meta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "a", ManagedFields: []metav1.ManagedFieldsEntry{{}},
		Annotations: map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "trainyard.dev/source-hash": "h"},
	}}
	wantMeta := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{
		Name: "a", Annotations: map[string]string{"trainyard.dev/source-hash": "h"},
	}}
	if got, err := stripMetadata(meta); err != nil || cmp.Diff(wantMeta, got) != "" {
		t.Errorf("metadata: %v -want +got:\n%s", err, cmp.Diff(wantMeta, got))
	}
	tombstone := toolscache.DeletedFinalStateUnknown{Key: "a"}
	if got, err := stripMetadata(tombstone); err != nil || cmp.Diff(tombstone, got) != "" {
		t.Errorf("tombstone: %v, %v", got, err)
	}
}
