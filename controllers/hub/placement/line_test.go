// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/remote"
)

// nobody is connected.
type nobody struct{}

func (nobody) Get(v1alpha1.ClusterName) (*remote.Cluster, bool) { return nil, false }

func unconnectedLine() *line {
	l := newLine(nobody{}, clocktesting.NewFakeClock(time.Unix(1000, 0)))
	l.expect(nil)
	return l
}

// decide makes a pass over workers.
func (l *line) decide(workers []v1alpha1.WorkerCluster) []queue.Outcome {
	done, _ := l.pass(func() ([]v1alpha1.WorkerCluster, error) { return workers, nil })
	return done.outcomes
}

// An explanation is made anew only if something that it speaks of has changed, and jobs of a class have it together.
func TestExplanationIsMadeOnce(t *testing.T) {
	l := unconnectedLine()
	job := &queue.Job{Job: dispatch.Job{UID: "a", PodSets: []v1alpha1.PodSet{{Name: "node", Count: 1}}}, Class: "class"}
	workers := []v1alpha1.WorkerCluster{
		{ObjectMeta: metav1.ObjectMeta{Name: "east", UID: "1", ResourceVersion: "1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "2", ResourceVersion: "1"}},
	}
	explain := func() *v1alpha1.ClusterExplanation {
		l.decide(workers)
		return &l.explain(job)[0]
	}
	last := explain()
	for _, test := range []struct {
		reason string
		change func()
		anew   bool
	}{
		{reason: "nothing has changed", change: func() {}},
		{reason: "another job of the class", change: func() { job.UID = "b" }},
		{reason: "another class", change: func() { job.Class = "other" }, anew: true},
		{reason: "the first class again", change: func() { job.Class = "class" }, anew: true},
		{reason: "a worker was changed", change: func() { workers[1].ResourceVersion = "2" }, anew: true},
		{reason: "nothing since", change: func() {}},
		{reason: "a job was placed", change: func() {
			l.observe(&v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{UID: "x"}, Cluster: "east", Attempt: 1}})
		}, anew: true},
		{reason: "it ended", change: func() { l.forget("x", 1) }, anew: true},
		{reason: "a worker said something else to this job", change: func() {
			job.Excluded = map[v1alpha1.ClusterName]dispatch.Exclusion{"east": {Reason: "Rejected", Message: "words"}}
		}, anew: true},
		{reason: "and other words", change: func() {
			job.Excluded = map[v1alpha1.ClusterName]dispatch.Exclusion{"east": {Reason: "Rejected", Message: "other words"}}
		}, anew: true},
		{reason: "a worker is gone", change: func() { workers = workers[:1] }, anew: true},
		{reason: "it is there again", change: func() {
			workers = append(workers, v1alpha1.WorkerCluster{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "2", ResourceVersion: "2"}})
		}, anew: true},
		{reason: "nothing since", change: func() {}},
	} {
		test.change()
		next := explain()
		if (next != last) != test.anew {
			t.Errorf("made anew: %t, want %t: %s", next != last, test.anew, test.reason)
		}
		last = next
	}
}

// What is remembered is bounded.
func TestExplanationsAreBounded(t *testing.T) {
	l := unconnectedLine()
	l.decide([]v1alpha1.WorkerCluster{{ObjectMeta: metav1.ObjectMeta{Name: "east", UID: types.UID("1")}}})
	for i := range 5 * maxExplained {
		l.explain(&queue.Job{Class: string(rune('a' + i))})
	}
	if len(l.explained) > maxExplained {
		t.Errorf("%d explanations are kept, want at most %d", len(l.explained), maxExplained)
	}
}

// Nothing is decided until every job that waited at the start has been looked at.
func TestNothingIsDecidedBeforeAllAreInLine(t *testing.T) {
	l := newLine(nobody{}, clocktesting.NewFakeClock(time.Unix(1000, 0)))
	l.stand(queue.Job{Job: dispatch.Job{Namespace: "default", Name: "early", UID: "early"}, Class: "class"})
	if outcomes := l.decide(nil); len(outcomes) > 0 {
		t.Errorf("decided on %d jobs before it was known which wait", len(outcomes))
	}
	first, second := types.NamespacedName{Namespace: "default", Name: "first"}, types.NamespacedName{Namespace: "default", Name: "second"}
	l.expect([]types.NamespacedName{first, second})
	for _, key := range []types.NamespacedName{second, first} {
		l.stand(queue.Job{Job: dispatch.Job{Namespace: key.Namespace, Name: key.Name, UID: types.UID(key.Name)}, Class: "class"})
		if outcomes := l.decide(nil); len(outcomes) > 0 {
			t.Errorf("decided on %d jobs before all were in line", len(outcomes))
		}
		if all := l.met(key); all != (key == first) {
			t.Errorf("met(%s) = %t: whoever comes last opens the gate", key.Name, all)
		}
	}
	if outcomes := l.decide(nil); len(outcomes) == 0 {
		t.Error("nothing was decided when all were in line")
	}
}

// A decision that has not been written when its job is not to be placed any more is taken back.
func TestUnwrittenDecisionIsTakenBack(t *testing.T) {
	l := unconnectedLine()
	job := queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "uid"}, Attempt: 1}
	l.fleet.Assign(&job, dispatch.Decision{Cluster: "east"})
	if a := l.granted("uid", 1); a == nil || a.grant == nil || a.worker != "east" {
		t.Fatalf("granted() = %+v, want an unwritten assignment to east", a)
	}
	if !l.leave(job.Key()) {
		t.Error("nothing was freed")
	}
	l.fleet.Assign(&job, dispatch.Decision{Cluster: "east"})
	l.written("uid", 1)
	if a := l.granted("uid", 1); a == nil || a.grant != nil || l.leave(job.Key()) {
		t.Error("a decision that is written stays")
	}
}

// A job that a pass has placed while it was being looked at is not in line again.
func TestPlacedJobDoesNotStandAgain(t *testing.T) {
	l := unconnectedLine()
	job := queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "uid"}, Class: "class", Attempt: 1}
	l.fleet.Assign(&job, dispatch.Decision{Cluster: "east"})
	if l.stand(job); l.queue.Has(job.Key()) {
		t.Error("the job stands in line, and is placed too")
	}
	job.Attempt = 2
	l.stand(job)
	if !l.queue.Has(job.Key()) {
		t.Error("the job does not stand in line for its next attempt")
	}
}

// Whoever leaves the line may have held others, and a hub without workers can be explained.
func TestLeavingHelpsOthers(t *testing.T) {
	l := unconnectedLine()
	job := queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "uid"}, Class: "class", Attempt: 1}
	l.stand(job)
	l.decide(nil)
	if lines := l.explain(&job); len(lines) > 0 {
		t.Errorf("explained are %v, and there are no workers", lines)
	}
	if !l.park(job.Key()) || l.park(job.Key()) {
		t.Error("parking a job that stands in line may help others, and only then")
	}
	l.stand(job)
	if !l.leave(job.Key()) || l.leave(job.Key()) {
		t.Error("leaving the line may help others, and only then")
	}
}

// A Dispatch that is seen is on record, whatever the answer to its write was.
func TestSeenDecisionIsWritten(t *testing.T) {
	l := unconnectedLine()
	job := queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "uid"}, Attempt: 1}
	l.fleet.Assign(&job, dispatch.Decision{Cluster: "east"})
	l.observe(&v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job"},
		Spec:       v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{UID: "uid"}, Cluster: "east", Attempt: 1},
	})
	if a := l.granted("uid", 1); a == nil || a.grant != nil || l.leave(job.Key()) {
		t.Error("the room of a job that is placed was given back")
	}
}
