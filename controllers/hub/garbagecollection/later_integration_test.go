// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// The agent of a worker has seen a later attempt than the hub knows, and does not let the copy run. The manager deletes
// the copy, and writes a Tombstone with the attempt from which to count on.
func TestLaterAttemptOfTheWorker(t *testing.T) {
	for name, test := range map[string]struct {
		reason  string
		later   string
		attempt int32
		want    int32
	}{
		"Later":   {"or the job would wait for ever", "3", 1, 3},
		"Same":    {"it is the copy that the hub wants", "1", 1, 0},
		"Absurd":  {"numbers must not run out, and the job must not wait for a worker that lies", "2147483647", 1, 1001},
		"NoWord":  {"it is no number", "x", 1, 0},
		"MovedOn": {"the copy is of an earlier attempt, and goes for that", "3", 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			s := newScene(t)
			origin := types.UID("later-" + s.key.Namespace)
			copy := s.createCopy(t, origin, "1")
			annotations := copy.GetAnnotations()
			annotations[v1alpha1.AnnotationLaterAttempt] = test.later
			copy.SetAnnotations(annotations)
			must(t, s.Worker(workerName).Admin.Update(t.Context(), copy))
			s.place(t, origin, workerName, test.attempt)
			s.settle(t)
			s.collect(t)

			tombstone := &v1alpha1.Tombstone{}
			err := s.Hub.Admin.Get(t.Context(), client.ObjectKey{Name: string(origin)}, tombstone)
			must(t, client.IgnoreNotFound(err))
			check.Equal(t, test.want, tombstone.Spec.Attempt, "the Tombstone is of attempt: %s", test.reason)
			if test.want == 0 {
				return
			}
			if tombstone.Spec.Cluster != workerName || tombstone.Spec.ClusterID != s.Worker(workerName).ID || tombstone.Spec.TrainJob.UID != origin {
				t.Errorf("the Tombstone is %+v", tombstone.Spec)
			}
			s.settle(t)
			s.collectOn(t, workerName, client.ObjectKeyFromObject(tombstone))
			expectDeleted(t, s.copy(t))
			must(t, s.Hub.Admin.Delete(t.Context(), tombstone))
		})
	}
}
