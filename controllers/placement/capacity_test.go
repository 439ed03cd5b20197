// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/remote"
)

// nobody is connected.
type nobody struct{}

func (nobody) Get(v1alpha1.ClusterName) (*remote.Cluster, bool) { return nil, false }

// An explanation is made anew only if something that it speaks of has changed, and jobs of a class have it together.
func TestExplanationIsMadeOnce(t *testing.T) {
	c := newCapacity(nobody{})
	wanted := candidate{
		job: dispatch.Job{UID: "a", PodSets: []v1alpha1.PodSet{{Name: "node", Count: 1}}},
		workers: []v1alpha1.WorkerCluster{
			{ObjectMeta: metav1.ObjectMeta{Name: "east", UID: "1", ResourceVersion: "1"}},
			{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "2", ResourceVersion: "1"}},
		},
	}
	last := &c.explain(wanted, "class")[0]
	for _, test := range []struct {
		reason string
		change func()
		class  string
		anew   bool
	}{
		{reason: "nothing has changed", change: func() {}, class: "class"},
		{reason: "another job of the class", change: func() { wanted.job.UID = "b" }, class: "class"},
		{reason: "another class", change: func() {}, class: "other", anew: true},
		{reason: "the first class again", change: func() {}, class: "class", anew: true},
		{reason: "a worker was changed", change: func() { wanted.workers[1].ResourceVersion = "2" }, class: "class", anew: true},
		{reason: "nothing since", change: func() {}, class: "class"},
		{reason: "a job was placed", change: func() {
			c.observe(&v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{UID: "x"}, Cluster: "east", Attempt: 1}})
		}, class: "class", anew: true},
		{reason: "it ended", change: func() { c.forget("x", 1) }, class: "class", anew: true},
		{reason: "a worker said something else to this job", change: func() {
			wanted.job.Excluded = map[v1alpha1.ClusterName]dispatch.Exclusion{"east": {Reason: "Rejected", Message: "words"}}
		}, class: "class", anew: true},
		{reason: "and other words", change: func() {
			wanted.job.Excluded = map[v1alpha1.ClusterName]dispatch.Exclusion{"east": {Reason: "Rejected", Message: "other words"}}
		}, class: "class", anew: true},
		{reason: "a worker is gone", change: func() { wanted.workers = wanted.workers[:1] }, class: "class", anew: true},
		{reason: "it is there again", change: func() {
			wanted.workers = append(wanted.workers, v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "2", ResourceVersion: "2"}})
		}, class: "class", anew: true},
		{reason: "nothing since", change: func() {}, class: "class"},
	} {
		test.change()
		next := &c.explain(wanted, test.class)[0]
		if (next != last) != test.anew {
			t.Errorf("made anew: %t, want %t: %s", next != last, test.anew, test.reason)
		}
		last = next
	}
}

// What is remembered is bounded.
func TestExplanationsAreBounded(t *testing.T) {
	c := newCapacity(nobody{})
	wanted := candidate{workers: []v1alpha1.WorkerCluster{{ObjectMeta: metav1.ObjectMeta{Name: "east", UID: types.UID("1")}}}}
	for i := range 5 * maxExplained {
		c.explain(wanted, string(rune('a'+i)))
	}
	if len(c.explained) > maxExplained {
		t.Errorf("%d explanations are kept, want at most %d", len(c.explained), maxExplained)
	}
}
