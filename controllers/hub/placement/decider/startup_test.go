// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/records"
)

// registered is a worker whose Ready condition has a reason; without one it has none.
func registered(name, reason string, id types.UID) v1alpha1.WorkerCluster {
	worker := v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: v1alpha1.WorkerClusterStatus{ClusterID: id}}
	if reason != "" {
		value := metav1.ConditionFalse
		if reason == v1alpha1.ReasonConnected {
			value = metav1.ConditionTrue
		}
		worker.Status.Conditions = []metav1.Condition{{Type: v1alpha1.WorkerClusterReady, Status: value, Reason: reason}}
	}
	return worker
}

// Nobody is connected here.
func TestStartup(t *testing.T) {
	type look struct {
		after   time.Duration
		workers []v1alpha1.WorkerCluster
		over    bool
	}
	was := registered("a", v1alpha1.ReasonConnected, "id")
	connecting := registered("a", v1alpha1.ReasonConnecting, "id")
	lost := registered("a", v1alpha1.ReasonUnreachable, "id")
	fresh, first := registered("b", "", ""), registered("b", v1alpha1.ReasonConnecting, "")
	for name, test := range map[string]struct {
		reason string
		looks  []look
	}{
		"Nobody":   {reason: "there is nobody to wait for", looks: []look{{over: true}}},
		"NewFleet": {reason: "who has never been Ready has no copies", looks: []look{{workers: []v1alpha1.WorkerCluster{fresh, first}, over: true}}},
		"Lost":     {reason: "who did not answer before is not waited for", looks: []look{{workers: []v1alpha1.WorkerCluster{lost}, over: true}}},
		"Ready": {
			reason: "it is waited for, but not for ever", looks: []look{
				{workers: []v1alpha1.WorkerCluster{was, lost}}, {after: 29 * time.Second, workers: []v1alpha1.WorkerCluster{connecting}},
				{after: time.Second, workers: []v1alpha1.WorkerCluster{connecting}, over: true},
			},
		},
		"WithoutReport": {
			reason: "its agent was silent, and its copies may be those of waiting jobs", looks: []look{
				{workers: []v1alpha1.WorkerCluster{registered("a", v1alpha1.ReasonCapacityReportStale, "id")}},
				{workers: []v1alpha1.WorkerCluster{connecting}}, {workers: []v1alpha1.WorkerCluster{lost}, over: true},
			},
		},
		"NoReportYet": {
			reason: "nor has it sent one since", looks: []look{{workers: []v1alpha1.WorkerCluster{registered("a", v1alpha1.ReasonCapacityReportMissing, "id")}}},
		},
		"Restarted": {
			reason: "the process before this one has not got round to connecting it", looks: []look{{workers: []v1alpha1.WorkerCluster{connecting}}},
		},
		"TurnsOutToBeLost": {
			reason: "whether it has copies cannot be known", looks: []look{
				{workers: []v1alpha1.WorkerCluster{was}}, {workers: []v1alpha1.WorkerCluster{lost}, over: true},
			},
		},
		"IsDeleted": {reason: "it is gone", looks: []look{{workers: []v1alpha1.WorkerCluster{was}}, {over: true}}},
		"ComesLater": {
			reason: "who was not Ready at the start has not been forgotten by it either", looks: []look{
				{workers: []v1alpha1.WorkerCluster{was, fresh}},
				{workers: []v1alpha1.WorkerCluster{lost, registered("b", v1alpha1.ReasonConnected, "id")}, over: true},
			},
		},
		"OnceOver": {
			reason: "a worker that is away later holds nobody", looks: []look{{over: true}, {workers: []v1alpha1.WorkerCluster{was}, over: true}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
			o := startup{options: Options{Clock: clock, Connections: nobody{}}}
			o.begin()
			for i, look := range test.looks {
				clock.Step(look.after)
				if got := o.look(look.workers); got != look.over {
					t.Errorf("look %d: over: %t, want %t: %s", i+1, got, look.over, test.reason)
				}
			}
		})
	}
}

// The time counts from when this process begins to decide, which may be long after it was started as a standby.
func TestStartupBeginsWithTheDecisions(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	d := newDecider(clock)
	clock.Step(time.Hour)
	d.Expect(nil)
	d.pass(t, []v1alpha1.WorkerCluster{registered("a", v1alpha1.ReasonConnected, "id")})
	if wait, ok := d.Next(); d.startup.over || !ok || wait != records.StartupTime {
		t.Errorf("over: %t, next pass in %s (%t), want it to begin now, for %s", d.startup.over, wait, ok, records.StartupTime)
	}
}
