// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"math"
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// The agents of workers remember the attempts of copies, and let no lower one run. So the count of attempts goes on
// when the Dispatch that had it is gone, also in a process that has not seen the deletion.
func TestAttemptsAreCountedOn(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		// tombstones are the attempts of Tombstones. waits: there is a Dispatch that waits and knows of none.
		tombstones []int32
		waits      bool
		want       int32
	}{
		"New":       {reason: "nothing is known of it", want: 1},
		"Tombstone": {reason: "its Dispatch was deleted, and the manager died", tombstones: []int32{3}, want: 4},
		"Twice":     {reason: "of two workers the later attempt counts", tombstones: []int32{5, 2}, want: 6},
		"AndWaited": {reason: "its copy was deleted while it waited for that", tombstones: []int32{3}, waits: true, want: 4},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			s.Submit(t, "job")
			job := s.TrainJob(t, "job")
			if test.waits {
				s.worker(t, east, cordon)
				s.worker(t, west, cordon)
				s.reconcile(t, "job")
			}
			for i, attempt := range test.tombstones {
				tombstone := &v1alpha1.Tombstone{
					ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s-%d", job.UID, i)},
					Spec: v1alpha1.TombstoneSpec{
						Cluster: west, ClusterID: "id", Namespace: job.Namespace, Attempt: attempt,
						TrainJob: v1alpha1.TrainJobReference{Name: job.Name, UID: job.UID},
					},
				}
				check.Must(t, s.Hub.Admin.Create(t.Context(), tombstone))
				t.Cleanup(func() { check.Must(t, s.Hub.Admin.Delete(context.Background(), tombstone)) })
			}
			if test.waits {
				s.worker(t, west, func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = false })
			}
			s.restart(t)
			d, _ := s.reconcile(t, "job")
			if d.Spec.Cluster == "" || d.Spec.Attempt != test.want {
				t.Errorf("placed on %q with attempt %d, want %d: %s", d.Spec.Cluster, d.Spec.Attempt, test.want, test.reason)
			}
		})
	}
}

// The count does not overflow: after the last possible attempt the job waits, and its Dispatch says what to do.
func TestLastAttemptIsTheLast(t *testing.T) {
	s := newScene(t)
	s.Submit(t, "job")
	s.worker(t, east, cordon)
	s.worker(t, west, cordon)
	d, _ := s.reconcile(t, "job")
	d.Spec.Attempt = math.MaxInt32
	check.Must(t, s.Hub.Admin.Update(t.Context(), d))
	s.worker(t, west, func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = false })
	s.restart(t)
	d, _ = s.reconcile(t, "job")
	placed := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
	if d.Spec.Cluster != "" || d.Spec.Attempt != math.MaxInt32 || placed == nil || placed.Reason != v1alpha1.ReasonAttemptsExhausted {
		t.Errorf("the Dispatch has %+v and says %+v, want that there is no attempt left", d.Spec, placed)
	}
}
