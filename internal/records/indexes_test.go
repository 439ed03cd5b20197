// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records_test

import (
	"context"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/test/check"
)

// indexer keeps the index functions by field.
type indexer map[string]client.IndexerFunc

// IndexField implements client.FieldIndexer.
func (i indexer) IndexField(_ context.Context, _ client.Object, field string, of client.IndexerFunc) error {
	i[field] = of
	return nil
}

// TestIndexes checks that a finished Dispatch is live only while it is being deleted: its copy must be deleted first.
func TestIndexes(t *testing.T) {
	indexes := indexer{}
	check.Must(t, records.AddIndexes(t.Context(), indexes))
	finished := []metav1.Condition{{Type: v1alpha1.DispatchFinished, Status: metav1.ConditionTrue}}
	drained := &v1alpha1.Eviction{Reason: v1alpha1.EvictionDrained}
	for name, test := range map[string]struct {
		object client.Object
		want   map[string][]string
	}{
		"Waiting": {object: &v1alpha1.Dispatch{}},
		"Placed": {
			object: &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: "west"}},
			want:   map[string][]string{"trainyard.live": {"west"}},
		},
		"Drained": {
			object: &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: "west", Eviction: drained}},
			want:   map[string][]string{"trainyard.live": {"west"}, "trainyard.moving": {"true"}},
		},
		"Finished": {
			object: &v1alpha1.Dispatch{
				Spec: v1alpha1.DispatchSpec{Cluster: "west"}, Status: v1alpha1.DispatchStatus{Conditions: finished},
			},
		},
		"FinishedAndDeleted": {
			object: &v1alpha1.Dispatch{
				ObjectMeta: metav1.ObjectMeta{DeletionTimestamp: &metav1.Time{}},
				Spec:       v1alpha1.DispatchSpec{Cluster: "west"}, Status: v1alpha1.DispatchStatus{Conditions: finished},
			},
			want: map[string][]string{"trainyard.live": {"west"}},
		},
		"Tombstone": {
			object: &v1alpha1.Tombstone{Spec: v1alpha1.TombstoneSpec{TrainJob: v1alpha1.TrainJobReference{UID: "uid"}}},
			want:   map[string][]string{"spec.trainJob.uid": {"uid"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			got := map[string][]string{}
			for field, of := range indexes {
				if values := of(test.object); len(values) > 0 {
					got[field] = values
				}
			}
			if test.want == nil {
				test.want = map[string][]string{}
			}
			check.Diff(t, test.want, got, "indexes")
		})
	}
}
