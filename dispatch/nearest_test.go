// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dispatch

import (
	"slices"
	"strings"
	"testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

func TestNearest(t *testing.T) {
	draining := func(w *Worker) { w.Cordoned, w.Draining = true, true }
	for name, test := range map[string]struct {
		reason      string
		workers     []Worker
		annotations map[string]string
		excluded    map[v1alpha1.ClusterName]Exclusion
		// cluster and because are the answer's cluster and reason. The answer's message contains message.
		cluster          v1alpha1.ClusterName
		because, message string
	}{
		"Fits": {
			reason: "the one that Decide chooses", workers: []Worker{worker("a", 1, 8), worker("b", 4, 8)},
			cluster: "b", because: v1alpha1.ReasonFits, message: "the only worker on which the job fits",
		},
		"MostPlaces": {
			reason:  "of those that lack room the one with the most places, not the first by name",
			workers: []Worker{worker("a", 1, 7), worker("b", 1, 8), worker("c", 1, 7)},
			cluster: "b", because: v1alpha1.ReasonInsufficientResources, message: "room for 1 of 2 pods",
		},
		"ByName": {
			reason: "of equals the first", workers: []Worker{worker("b", 1, 7), worker("a", 1, 7)},
			cluster: "a", because: v1alpha1.ReasonInsufficientResources, message: "room for 0 of 2 pods",
		},
		"Excluded": {
			reason: "who refuses is nearer than who has no room", workers: []Worker{worker("a", 1, 8), worker("b", 4, 8)},
			excluded: map[v1alpha1.ClusterName]Exclusion{"b": {Reason: v1alpha1.ReasonRejected, Message: "words"}},
			cluster:  "b", because: v1alpha1.ReasonRejected, message: "words",
		},
		"Closed": {
			reason: "one that takes no jobs is nearer than one that is not Ready", workers: []Worker{worker("a", 4, 8, isNotReady), worker("b", 4, 8, draining)},
			cluster: "b", because: v1alpha1.ReasonCordoned, message: "the worker is being drained (spec.drain)",
		},
		"Cordoned": {
			reason: "which it is says the message", workers: []Worker{worker("a", 4, 8, isCordoned)},
			cluster: "a", because: v1alpha1.ReasonCordoned, message: "the worker is cordoned (spec.unschedulable)",
		},
		"Nobody": {
			reason: "there is no worker to name", because: v1alpha1.ReasonNoWorkers, message: "no WorkerCluster is registered",
		},
		"Denied": {
			reason: "no worker may take it, so that none is near", workers: []Worker{worker("a", 4, 8)},
			annotations: map[string]string{v1alpha1.AnnotationClusters: "disk in nvme"},
			because:     v1alpha1.ReasonInvalidPin, message: "unable to parse",
		},
	} {
		t.Run(name, func(t *testing.T) {
			job := Job{UID: "uid", PodSets: []v1alpha1.PodSet{podSet(2, 8)}, Annotations: test.annotations, Excluded: test.excluded}
			for range 2 {
				got := Nearest(job, nil, test.workers)
				if got.Cluster != test.cluster || got.Reason != test.because || !strings.Contains(got.Message, test.message) {
					t.Errorf("Nearest() = %+v, want %q %s with %q: %s", got, test.cluster, test.because, test.message, test.reason)
				}
				slices.Reverse(test.workers) // The order does not matter.
			}
		})
	}
}
