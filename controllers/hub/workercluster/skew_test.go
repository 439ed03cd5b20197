// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package workercluster_test

import (
	"testing"

	"k8s.io/apimachinery/pkg/api/meta"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/workercluster"
	"github.com/trainyard/trainyard/test/check"
)

// A hub should be at least as new as its workers, and they at most two minor releases behind it. The condition goes when
// that is so again.
func TestSkew(t *testing.T) {
	for name, tc := range map[string]struct {
		hub, worker string
		want        string // The reason. Empty: no condition.
	}{
		"Equal":         {hub: "2.3", worker: "2.3"},
		"TwoBehind":     {hub: "2.3", worker: "2.1"},
		"ThreeBehind":   {hub: "2.3", worker: "2.0", want: v1alpha1.ReasonWorkerTooOld},
		"Newer":         {hub: "2.2", worker: "2.3", want: v1alpha1.ReasonWorkerNewer},
		"UnknownHub":    {worker: "2.0"},
		"UnknownWorker": {hub: "2.3"},
	} {
		t.Run(name, func(t *testing.T) {
			worker := &v1alpha1.WorkerCluster{}
			worker.Generation = 7
			condition := func(hub, onWorker string) (reason string) {
				worker.Status.Trainer = &v1alpha1.TrainerAPI{Release: onWorker}
				workercluster.SetSkew(worker, hub)
				found := meta.FindStatusCondition(worker.Status.Conditions, v1alpha1.WorkerClusterSkewUnsupported)
				if found == nil {
					return ""
				}
				check.Equal(t, int64(7), found.ObservedGeneration, "the generation")
				check.Equal(t, "True", string(found.Status), "the status")
				return found.Reason
			}
			check.Equal(t, tc.want, condition(tc.hub, tc.worker), "the reason")
			check.Equal(t, "", condition("2.3", "2.3"), "the reason after upgrades")
		})
	}
}
