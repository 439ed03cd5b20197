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
