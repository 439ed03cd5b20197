// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
	"github.com/trainyard/trainyard/dispatch/quota"
	"github.com/trainyard/trainyard/internal/records"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// nobody is connected.
type nobody struct{}

func (nobody) Get(v1alpha1.ClusterName) (*remote.Cluster, bool) { return nil, false }

// testDecider is a Decider without connections.
type testDecider struct {
	*Decider
	workers []v1alpha1.WorkerCluster
	woken   []types.NamespacedName
}

func newDecider(clock clock.Clock) *testDecider {
	d := &testDecider{}
	d.Decider = New(Options{
		Connections: nobody{}, Clock: clock,
		Workers: func(context.Context) ([]v1alpha1.WorkerCluster, error) { return d.workers, nil },
		Wake:    func(jobs ...types.NamespacedName) { d.woken = append(d.woken, jobs...) },
	})
	return d
}

// startedDecider expects no jobs.
func startedDecider() *testDecider {
	d := newDecider(clocktesting.NewFakeClock(time.Unix(1000, 0)))
	d.Expect(nil)
	return d
}

// pass does a pass over workers, and returns the jobs that it has woken.
func (d *testDecider) pass(t *testing.T, workers []v1alpha1.WorkerCluster) []types.NamespacedName {
	t.Helper()
	d.workers, d.woken = workers, nil
	check.Must(t, d.Pass(t.Context()))
	return d.woken
}

// enter is Enter of a job that does not wait for a pass.
func (d *testDecider) enter(t *testing.T, job queue.Job) dispatch.Decision {
	t.Helper()
	waits, err := d.Enter(t.Context(), job)
	check.Must(t, err)
	return waits
}

// asked is how many wait for the next pass.
func (d *testDecider) asked() int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return len(d.questions)
}

// helps says whether a call makes a pass due, because it may help others.
func (d *testDecider) helps(call func()) bool {
	select {
	case <-d.changed:
	default:
	}
	call()
	return len(d.changed) > 0
}

// An explanation is made again only if something in it has changed, and the jobs of a class share it.
func TestExplanationIsMadeOnce(t *testing.T) {
	d := startedDecider()
	job := &queue.Job{Job: dispatch.Job{UID: "a", PodSets: []v1alpha1.PodSet{{Name: "node", Count: 1}}}, Class: "class"}
	workers := []v1alpha1.WorkerCluster{
		{ObjectMeta: metav1.ObjectMeta{Name: "east", UID: "1", ResourceVersion: "1"}},
		{ObjectMeta: metav1.ObjectMeta{Name: "west", UID: "2", ResourceVersion: "1"}},
	}
	explain := func() *v1alpha1.ClusterExplanation {
		d.pass(t, workers)
		return &d.Explain(job)[0]
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
			d.Observe(&v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{UID: "x"}, Cluster: "east", Attempt: 1}})
		}, anew: true},
		{reason: "it ended", change: func() { d.Forget("x", 1) }, anew: true},
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

// The number of remembered explanations is bounded.
func TestExplanationsAreBounded(t *testing.T) {
	d := startedDecider()
	d.pass(t, []v1alpha1.WorkerCluster{{ObjectMeta: metav1.ObjectMeta{Name: "east", UID: types.UID("1")}}})
	for i := range 5 * maxExplained {
		d.Explain(&queue.Job{Class: string(rune('a' + i))})
	}
	if len(d.explainer.explained) > maxExplained {
		t.Errorf("%d explanations are kept, want at most %d", len(d.explainer.explained), maxExplained)
	}
}

// Nothing is decided until every job that waited at the start has been looked at.
func TestNothingIsDecidedBeforeAllJobsAreKnown(t *testing.T) {
	d := newDecider(clocktesting.NewFakeClock(time.Unix(1000, 0)))
	d.enter(t, queue.Job{Job: dispatch.Job{Namespace: "default", Name: "early", UID: "early"}, Class: "class"})
	if outcomes := d.pass(t, nil); len(outcomes) > 0 {
		t.Errorf("decided on %d jobs before it was known which wait", len(outcomes))
	}
	first, second := types.NamespacedName{Namespace: "default", Name: "first"}, types.NamespacedName{Namespace: "default", Name: "second"}
	d.Expect([]types.NamespacedName{first, second})
	for _, key := range []types.NamespacedName{second, first} {
		d.enter(t, queue.Job{Job: dispatch.Job{Namespace: key.Namespace, Name: key.Name, UID: types.UID(key.Name)}, Class: "class"})
		if outcomes := d.pass(t, nil); len(outcomes) > 0 {
			t.Errorf("decided on %d jobs before all needs were known", len(outcomes))
		}
		if all := d.helps(func() { d.Met(key) }); all != (key == first) {
			t.Errorf("Met(%s) makes a pass due: %t, want that of the last job only", key.Name, all)
		}
	}
	if outcomes := d.pass(t, nil); len(outcomes) == 0 {
		t.Error("nothing was decided when all needs were known")
	}
}

// A worker that changes for ever what jobs need does not keep the first pass from coming.
func TestJobsThatChangeForEverAreNotAwaited(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Unix(1000, 0))
	d := newDecider(clock)
	key := types.NamespacedName{Namespace: "default", Name: "job"}
	d.Expect([]types.NamespacedName{key})
	d.enter(t, queue.Job{Job: dispatch.Job{Namespace: key.Namespace, Name: key.Name, UID: "uid"}, Class: "class"})
	d.Met(key)
	Await(d.Decider, []types.NamespacedName{key})
	if outcomes := d.pass(t, nil); len(outcomes) > 0 {
		t.Errorf("decided on %d jobs before it was known what the job needs now", len(outcomes))
	}
	d.Met(key)
	clock.Step(records.StartupTime)
	Await(d.Decider, []types.NamespacedName{key})
	if outcomes := d.pass(t, nil); len(outcomes) == 0 {
		t.Error("nothing was decided after the time of a start")
	}
}

// A decision that has not been written when its job is not to be placed any more is taken back.
func TestUnwrittenDecisionIsTakenBack(t *testing.T) {
	d := startedDecider()
	job := queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "uid"}, Attempt: 1}
	d.fleet.Assign(&job, dispatch.Decision{Cluster: "east"})
	if grant, placed := d.Granted("uid", 1); !placed || grant == nil || grant.Decision.Cluster != "east" {
		t.Fatalf("Granted() = %+v, %t, want an unwritten grant of east", grant, placed)
	}
	if !d.helps(func() { d.Leave(job.Key()) }) {
		t.Error("nothing was freed")
	}
	d.fleet.Assign(&job, dispatch.Decision{Cluster: "east"})
	d.Written("uid", 1)
	if grant, placed := d.Granted("uid", 1); !placed || grant != nil || d.helps(func() { d.Leave(job.Key()) }) {
		t.Error("a decision that is written stays")
	}
}

// A job that a pass has placed while its need was gathered does not wait again.
func TestPlacedJobDoesNotWaitAgain(t *testing.T) {
	d := startedDecider()
	job := queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "uid"}, Class: "class", Attempt: 1}
	d.fleet.Assign(&job, dispatch.Decision{Cluster: "east"})
	if d.enter(t, job); d.list.Has(job.Key()) {
		t.Error("the job waits, and is placed too")
	}
	job.Attempt = 2
	d.enter(t, job)
	if !d.list.Has(job.Key()) {
		t.Error("the job does not wait for its next attempt")
	}
}

// A job that leaves the waiting list may have held others. A hub without workers can be explained.
func TestLeavingHelpsOthers(t *testing.T) {
	d := startedDecider()
	job := queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "uid"}, Class: "class", Attempt: 1}
	d.enter(t, job)
	d.pass(t, nil)
	if lines := d.Explain(&job); len(lines) > 0 {
		t.Errorf("explained are %v, and there are no workers", lines)
	}
	leave := func() { d.Leave(job.Key()) }
	if !d.helps(leave) || d.helps(leave) {
		t.Error("leaving the waiting list may help others, and only then")
	}
}

// A Dispatch that is seen is on record, whatever the answer to its write was.
func TestSeenDecisionIsWritten(t *testing.T) {
	d := startedDecider()
	job := queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "uid"}, Attempt: 1}
	d.fleet.Assign(&job, dispatch.Decision{Cluster: "east"})
	d.Observe(&v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job"},
		Spec:       v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{UID: "uid"}, Cluster: "east", Attempt: 1},
	})
	if grant, placed := d.Granted("uid", 1); !placed || grant != nil || d.helps(func() { d.Leave(job.Key()) }) {
		t.Error("the room of a job that is placed was given back")
	}
}

// One pass answers every job that asks, the first of a class and the others, and wakes none of them. A job that asks
// again needs no other pass while nothing changes.
func TestEnterIsAnsweredByOnePass(t *testing.T) {
	d := startedDecider()
	d.pass(t, nil)
	var asking sync.WaitGroup
	for _, name := range []string{"a", "b", "c"} {
		job := queue.Job{Job: dispatch.Job{Namespace: "default", Name: name, UID: types.UID(name)}, Class: "class", Attempt: 1}
		asking.Go(func() {
			if waits, err := d.Enter(t.Context(), job); waits.Cluster != "" || waits.Reason == "" || err != nil {
				t.Errorf("%s gets %q, waits for %q, %v; want a reason", name, waits.Cluster, waits.Reason, err)
			}
			if waits, err := d.Enter(t.Context(), job); waits.Reason == "" || err != nil {
				t.Errorf("%s has no answer after the pass: %v", name, err)
			}
		})
	}
	for d.asked() < 3 {
		runtime.Gosched()
	}
	if woken := d.pass(t, nil); len(woken) > 0 {
		t.Errorf("woken are %v, which have been told", woken)
	}
	asking.Wait()
	if woken := d.pass(t, nil); len(woken) > 0 {
		t.Errorf("woken are %v, and nothing has changed", woken)
	}
}

// A job that asks before anything is decided is woken by the pass that decides, once.
func TestEnterBeforeTheFirstPass(t *testing.T) {
	d := startedDecider()
	job := queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "uid"}, Class: "class", Attempt: 1}
	if waits := d.enter(t, job); waits.Reason != "" {
		t.Errorf("the job waits for %s before anything was decided", waits.Reason)
	}
	if woken := d.pass(t, nil); !slices.Equal(woken, []types.NamespacedName{job.Key()}) {
		t.Errorf("woken are %v, want the job once", woken)
	}
	if waits := d.enter(t, job); waits.Reason == "" {
		t.Error("the job has no answer after the pass")
	}
}

// Nobody waits for a pass after its context has ended.
func TestEnterEndsWithItsContext(t *testing.T) {
	d := startedDecider()
	d.pass(t, nil)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := d.Enter(ctx, queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "uid"}, Class: "class"}); !errors.Is(err, context.Canceled) {
		t.Errorf("Enter() = %v, want %v", err, context.Canceled)
	}
	d.pass(t, nil)
}

// A job was deleted, and another of its name was created, while the write of its grant failed.
func TestSuccessorFreesTheGrant(t *testing.T) {
	d := startedDecider()
	job := queue.Job{Job: dispatch.Job{Namespace: "default", Name: "job", UID: "old"}, Class: "class", Attempt: 1}
	d.fleet.Assign(&job, dispatch.Decision{Cluster: "east"})
	job.UID = "new"
	if !d.helps(func() { d.enter(t, job) }) {
		t.Error("no pass is due, and there is more room")
	}
	if a := d.jobs.byUID["old"]; a != nil {
		t.Errorf("the job of the name before this one keeps its room on %s", a.worker)
	}
}

// moves may ask with a Dispatch from before the attempt ended. Nobody would take the promise back while the job runs.
func TestNoPromiseAfterPlacement(t *testing.T) {
	d := startedDecider()
	job := queue.Job{
		Job: dispatch.Job{Namespace: "default", Name: "job", UID: "uid"}, Class: "class", Attempt: 2,
		Policies: []dispatch.Policy{{DispatchPolicy: &v1alpha1.DispatchPolicy{}}},
	}
	d.fleet.list = []dispatch.Worker{{Name: "west", Nodes: dispatch.NewNodes(nil)}}
	if answer := d.fleet.elsewhere(d.list, &job, "east"); answer.Cluster != "west" || len(d.jobs.promised) != 1 {
		t.Fatalf("answer() = %+v, want a promise of west", answer)
	}
	d.ReleasePromise("uid")
	d.fleet.Assign(&job, dispatch.Decision{Cluster: "north"})
	if answer := d.fleet.elsewhere(d.list, &job, "east"); answer.Reason != "" || len(d.jobs.promised) > 0 {
		t.Errorf("answer() = %+v, and %d promises, want none: the job is placed", answer, len(d.jobs.promised))
	}
}

// TestChargingIsLearned: the Workload of the job that was placed last says for what the worker's Kueue charges.
func TestChargingIsLearned(t *testing.T) {
	dawn := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	ambiguous := []v1alpha1.PodSet{{
		Name: "node", Count: 2, Requests: corev1.ResourceList{"gpu": resource.MustParse("8")},
		UnmergedRequests: corev1.ResourceList{"gpu": resource.MustParse("0"), "cpu": resource.MustParse("1")},
	}}
	job := func(name string, hours int) *assignment {
		return &assignment{key: types.NamespacedName{Namespace: "team", Name: name}, podSets: ambiguous, since: dawn.Add(time.Duration(hours) * time.Hour)}
	}
	workload := func(job string, requests ...v1alpha1.KueueRequest) v1alpha1.KueueWorkload {
		return v1alpha1.KueueWorkload{Namespace: "team", Job: job, Requests: requests}
	}
	gpus, cpus := v1alpha1.KueueRequest{Resource: "gpu", Amount: 16}, v1alpha1.KueueRequest{Resource: "cpu", Amount: 2000}
	known := charging{basis: quota.Unmerged, since: dawn.Add(2 * time.Hour)}
	for name, test := range map[string]struct {
		reason    string
		known     charging
		jobs      []*assignment
		workloads []v1alpha1.KueueWorkload
		want      quota.Basis
	}{
		"First":         {"it shows it", charging{}, []*assignment{job("a", 1)}, []v1alpha1.KueueWorkload{workload("a", gpus)}, quota.Merged},
		"OtherBuild":    {"it shows it", charging{}, []*assignment{job("a", 1)}, []v1alpha1.KueueWorkload{workload("a", cpus)}, quota.Unmerged},
		"NotLookedAt":   {"Kueue has not said yet what it charges", charging{}, []*assignment{job("a", 1)}, []v1alpha1.KueueWorkload{workload("a")}, quota.Assumed},
		"NotOurs":       {"nobody knows what it should request", charging{}, []*assignment{job("a", 1)}, []v1alpha1.KueueWorkload{workload("b", gpus)}, quota.Assumed},
		"Remembered":    {"its Workload is gone", known, nil, nil, quota.Unmerged},
		"LaterJob":      {"Kueue was replaced meanwhile", known, []*assignment{job("a", 3)}, []v1alpha1.KueueWorkload{workload("a", gpus)}, quota.Merged},
		"EarlierJob":    {"its Workload was made by the Kueue before", known, []*assignment{job("a", 1)}, []v1alpha1.KueueWorkload{workload("a", gpus)}, quota.Unmerged},
		"AfterARestart": {"the order of the jobs does not matter", charging{}, []*assignment{job("b", 3), job("a", 1)}, []v1alpha1.KueueWorkload{workload("a", gpus), workload("b", cpus)}, quota.Unmerged},
	} {
		t.Run(name, func(t *testing.T) {
			got := test.known
			got.learn(quota.New(&v1alpha1.KueueQuota{Workloads: test.workloads}), test.jobs)
			if got.basis != test.want {
				t.Errorf("basis %d, want %d: %s", got.basis, test.want, test.reason)
			}
		})
	}
}
