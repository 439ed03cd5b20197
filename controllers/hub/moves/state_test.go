// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package moves

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
)

var now = time.Unix(10_000, 0)

func testJob(uid types.UID, changes ...func(map[string]any)) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetUID(uid)
	job.Object["spec"] = map[string]any{}
	for _, change := range changes {
		change(job.Object)
	}
	return job
}

func suspended(object map[string]any) { object["spec"].(map[string]any)["suspend"] = true }

func deleting(object map[string]any) {
	object["metadata"].(map[string]any)["deletionTimestamp"] = now.UTC().Format(time.RFC3339)
}

// says sets the status of the copy: a True condition, and the counters of its one step.
func says(condition string, counters map[string]any) func(map[string]any) {
	return func(object map[string]any) {
		status := map[string]any{}
		if condition != "" {
			status["conditions"] = []any{map[string]any{"type": condition, "status": "True", "reason": condition, "lastTransitionTime": now.UTC().Format(time.RFC3339)}}
		}
		if counters != nil {
			step := map[string]any{"name": "node"}
			for name, count := range counters {
				step[name] = count
			}
			status["jobsStatus"] = []any{step}
		}
		object["status"] = status
	}
}

// testDispatch makes the Dispatch of a job whose copy exists on the worker "a".
func testDispatch(changes ...func(*v1alpha1.Dispatch)) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{UID: "origin"}, Cluster: "a", Attempt: 2}}
	d.Status.Attempt = 2
	condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, v1alpha1.ReasonCopied)(d)
	for _, change := range changes {
		change(d)
	}
	return d
}

func condition(kind string, value metav1.ConditionStatus, reason string) func(*v1alpha1.Dispatch) {
	return func(d *v1alpha1.Dispatch) {
		for i := range d.Status.Conditions {
			if d.Status.Conditions[i].Type == kind {
				d.Status.Conditions = append(d.Status.Conditions[:i], d.Status.Conditions[i+1:]...)
				break
			}
		}
		d.Status.Conditions = append(d.Status.Conditions, metav1.Condition{
			Type: kind, Status: value, Reason: reason, LastTransitionTime: metav1.NewTime(now.Add(-time.Hour)),
		})
	}
}

func evictedFor(reason v1alpha1.EvictionReason) func(*v1alpha1.Dispatch) {
	return func(d *v1alpha1.Dispatch) { d.Spec.Eviction = &v1alpha1.Eviction{Reason: reason} }
}

func goes(d *v1alpha1.Dispatch) { d.DeletionTimestamp = &metav1.Time{Time: now} }

func finished(d *v1alpha1.Dispatch) {
	condition(v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.ReasonComplete)(d)
}

func ended(outcome v1alpha1.Outcome) func(*v1alpha1.Dispatch) {
	return func(d *v1alpha1.Dispatch) {
		condition(v1alpha1.DispatchMirrored, metav1.ConditionFalse, string(outcome))(d)
		d.Status.History = append(d.Status.History, v1alpha1.Attempt{Attempt: d.Spec.Attempt, Cluster: d.Spec.Cluster, Outcome: outcome})
	}
}

// waits sets what placement writes after the end of an attempt.
func waits(reason string) func(*v1alpha1.Dispatch) {
	return func(d *v1alpha1.Dispatch) {
		d.Spec.Cluster, d.Spec.Eviction = "", nil
		condition(v1alpha1.DispatchPlaced, metav1.ConditionFalse, reason)(d)
	}
}

func placedAgain(d *v1alpha1.Dispatch) {
	d.Spec.Cluster, d.Spec.Eviction, d.Spec.Attempt = "b", nil, d.Spec.Attempt+1
}

func copied(d *v1alpha1.Dispatch) {
	d.Status.Attempt = d.Spec.Attempt
	condition(v1alpha1.DispatchMirrored, metav1.ConditionTrue, v1alpha1.ReasonCopied)(d)
}

func TestDecide(t *testing.T) {
	limited := &v1alpha1.DispatchPolicy{Spec: v1alpha1.DispatchPolicySpec{AdmissionTimeout: &metav1.Duration{Duration: 10 * time.Minute}}}
	job := testJob("origin")
	heldFor := func(age time.Duration) patience { return patience{since: now.Add(-age), seen: now.Add(-age)} }
	for name, test := range map[string]struct {
		reason      string
		observation observation
		want        state
	}{
		"Placed":       {reason: "it is where it is to be", observation: observation{dispatch: testDispatch(), job: job}, want: settled},
		"Unlimited":    {reason: "its policy does not mind how long it takes", observation: observation{dispatch: testDispatch(), job: job, patience: heldFor(time.Hour)}, want: settled},
		"Held":         {reason: "its time is not over", observation: observation{dispatch: testDispatch(), job: job, policy: limited, patience: heldFor(9 * time.Minute)}, want: held},
		"Overdue":      {reason: "its time is over", observation: observation{dispatch: testDispatch(), job: job, policy: limited, patience: heldFor(10 * time.Minute)}, want: overdue},
		"Drain":        {reason: "it is to go when there is room", observation: observation{dispatch: testDispatch(), job: job, home: draining}, want: displaced},
		"NotYetCopied": {reason: "what is not there yet is not to come", observation: observation{dispatch: testDispatch(placedAgain), job: job, home: draining}, want: displaced},
		"DrainOverdue": {reason: "it goes either way", observation: observation{dispatch: testDispatch(), job: job, home: draining, policy: limited, patience: heldFor(time.Hour)}, want: displaced},
		"Suspended": {
			reason: "placement ends its attempt", observation: observation{dispatch: testDispatch(), job: testJob("origin", suspended), home: draining}, want: left,
		},
		"SuspendedAtHome": {reason: "it stays", observation: observation{dispatch: testDispatch(), job: testJob("origin", suspended)}, want: settled},
		"Evicted": {
			reason: "mirror has it", observation: observation{dispatch: testDispatch(evictedFor(v1alpha1.EvictionPreempted)), job: job, home: draining}, want: leaving,
		},
		"EvictedUnseen": {reason: "the cache lags", observation: observation{dispatch: testDispatch(), job: job, home: draining, written: true}, want: leaving},
		"EvictionOver": {
			reason: "it waits again", observation: observation{dispatch: testDispatch(evictedFor(v1alpha1.EvictionDrained), ended("Drained")), job: job, home: draining}, want: left,
		},
		"Unreachable": {reason: "failover has it", observation: observation{dispatch: testDispatch(), job: job, home: silent}, want: away},
		"UnreachableEvicted": {
			reason: "failover has it", observation: observation{dispatch: testDispatch(evictedFor(v1alpha1.EvictionDrained)), home: silent}, want: away,
		},
		"Finished":  {reason: "its copy may stay", observation: observation{dispatch: testDispatch(finished), job: job, home: draining}, want: left},
		"Complete":  {reason: "it has ended", observation: observation{dispatch: testDispatch(), job: testJob("origin", says("Complete", nil)), home: draining}, want: left},
		"Gone":      {reason: "mirror takes the copy away", observation: observation{dispatch: testDispatch(), home: draining}, want: left},
		"Going":     {reason: "mirror takes the copy away", observation: observation{dispatch: testDispatch(), job: testJob("origin", deleting), home: draining}, want: left},
		"Recreated": {reason: "this Dispatch is of another job", observation: observation{dispatch: testDispatch(), job: testJob("other"), home: draining}, want: left},
		"ByHand":    {reason: "somebody has deleted the Dispatch", observation: observation{dispatch: testDispatch(goes), job: job, home: draining}, want: left},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, decide(test.observation, now), "decide(): %s", test.reason)
		})
	}
}

func TestMoving(t *testing.T) {
	drained := evictedFor(v1alpha1.EvictionDrained)
	for name, test := range map[string]struct {
		reason string
		life   []func(*v1alpha1.Dispatch)
		want   bool
	}{
		"Placed":    {reason: "it is where it is"},
		"Evicted":   {reason: "it is being stopped", life: []func(*v1alpha1.Dispatch){drained}, want: true},
		"Preempted": {reason: "that is another matter", life: []func(*v1alpha1.Dispatch){evictedFor(v1alpha1.EvictionPreempted)}},
		"Stopped":   {reason: "it has no worker", life: []func(*v1alpha1.Dispatch){drained, ended("Drained")}, want: true},
		"Waiting":   {reason: "it has none yet", life: []func(*v1alpha1.Dispatch){drained, ended("Drained"), waits(v1alpha1.ReasonNoFit)}, want: true},
		"Suspended": {reason: "nobody waits for it", life: []func(*v1alpha1.Dispatch){drained, ended("Drained"), waits(v1alpha1.ReasonSuspended)}},
		"MultiKueue": {
			reason: "it does not come any more",
			life:   []func(*v1alpha1.Dispatch){drained, ended("Drained"), waits(v1alpha1.ReasonManagedByMultiKueue)},
		},
		"Workload": {
			reason: "Kueue has it, for as long as it likes",
			life:   []func(*v1alpha1.Dispatch){drained, ended("Drained"), waits(v1alpha1.ReasonWaitingForWorkload)},
		},
		"Placing":  {reason: "there is no copy yet", life: []func(*v1alpha1.Dispatch){drained, ended("Drained"), placedAgain}, want: true},
		"Arrived":  {reason: "it has come", life: []func(*v1alpha1.Dispatch){drained, ended("Drained"), placedAgain, copied}},
		"Refused":  {reason: "the next worker is asked, and the drain is over for it", life: []func(*v1alpha1.Dispatch){drained, ended("Drained"), placedAgain, copied, ended("Rejected")}},
		"Finished": {reason: "it was done before it was stopped", life: []func(*v1alpha1.Dispatch){drained, finished}},
		"Deleted":  {reason: "it goes", life: []func(*v1alpha1.Dispatch){drained, ended("Drained"), waits(v1alpha1.ReasonNoFit), goes}},
	} {
		t.Run(name, func(t *testing.T) {
			d := testDispatch(test.life...)
			check.Equal(t, test.want, record.IsMoving(d), "IsMoving(): %s", test.reason)
		})
	}
}

func TestBudgets(t *testing.T) {
	three := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "three"}, Spec: v1alpha1.DispatchPolicySpec{MaxConcurrentMoves: new(int32(3))}}
	one := &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "one"}}
	spent := budgets{}
	for i, test := range []struct {
		policy *v1alpha1.DispatchPolicy
		want   bool
	}{{one, true}, {one, false}, {nil, true}, {nil, false}, {three, true}, {three, true}, {three, true}, {three, false}} {
		if got := spent.allows(test.policy); got != test.want {
			t.Errorf("move %d of policy %q: %t, want %t", i+1, nameOf(test.policy), got, test.want)
		}
		spent.take(test.policy)
	}
}

func TestIsHeld(t *testing.T) {
	running := func(d *v1alpha1.Dispatch) {
		d.Status.Steps = []v1alpha1.Step{{Name: v1alpha1.StepModelInitializer, State: v1alpha1.StepSucceeded}, {Name: v1alpha1.StepTrainer, State: v1alpha1.StepRunning}}
	}
	waiting := func(d *v1alpha1.Dispatch) {
		d.Status.Steps = []v1alpha1.Step{{Name: v1alpha1.StepTrainer, State: v1alpha1.StepWaiting}}
	}
	unschedulable := func(d *v1alpha1.Dispatch) {
		healthy := metav1.Condition{Type: v1alpha1.DispatchHealthy, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnschedulable}
		record.SetHealth(&d.Status, d, healthy, time.Now())
	}
	one := func(counter string) map[string]any { return map[string]any{counter: int64(1)} }
	for name, test := range map[string]struct {
		reason   string
		dispatch *v1alpha1.Dispatch
		job      *unstructured.Unstructured
		want     bool
	}{
		"NoCopy":      {reason: "it is not the worker's queue that it waits for", dispatch: testDispatch(placedAgain), job: testJob("origin")},
		"Nothing":     {reason: "nobody on the worker has looked at it", dispatch: testDispatch(), job: testJob("origin"), want: true},
		"Queued":      {reason: "the worker's queue has suspended it", dispatch: testDispatch(waiting), job: testJob("origin", says("Suspended", one("suspended"))), want: true},
		"NoPods":      {reason: "it is not suspended, and has no pods", dispatch: testDispatch(waiting), job: testJob("origin", says("", one("suspended"))), want: true},
		"Pods":        {reason: "they are pending, which is the scheduler's matter", dispatch: testDispatch(waiting), job: testJob("origin", says("", one("active")))},
		"NoNode":      {reason: "the scheduler finds no node", dispatch: testDispatch(waiting, unschedulable), job: testJob("origin", says("", one("active"))), want: true},
		"Running":     {reason: "it runs", dispatch: testDispatch(running), job: testJob("origin", says("", one("ready")))},
		"PutBack":     {reason: "the worker's queue has suspended it again", dispatch: testDispatch(waiting), job: testJob("origin", says("Suspended", one("active"))), want: true},
		"Initialized": {reason: "it has done something", dispatch: testDispatch(waiting), job: testJob("origin", says("", one("succeeded")))},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, isHeld(test.dispatch, test.job), "isHeld(): %s", test.reason)
		})
	}
}

func TestPatience(t *testing.T) {
	const timeout = 10 * time.Minute
	// The copy has existed for an hour.
	type look struct {
		after   time.Duration
		held    bool
		attempt int32 // attempt is set if it is another attempt.
		// due is how long until the job is overdue; nil: the job is not held.
		due *time.Duration
	}
	in := func(d time.Duration) *time.Duration { return &d }
	for name, test := range map[string]struct {
		reason string
		looks  []look
	}{
		"Persisted": {
			reason: "a restart forgets nothing, but what is seen first may be old", looks: []look{
				{held: true, due: in(confirmTime)}, {after: confirmTime, held: true, due: in(0)},
			},
		},
		"RanMeanwhile": {
			reason: "it has been let run since the process was away", looks: []look{{held: true, due: in(confirmTime)}, {after: time.Second}},
		},
		"HeldAgain": {
			reason: "it counts from when it was seen held", looks: []look{
				{}, {after: time.Minute, held: true, due: in(timeout)}, {after: time.Minute, held: true, due: in(timeout - time.Minute)},
			},
		},
		"AnotherAttempt": {
			reason: "it counts from its own copy", looks: []look{{}, {held: true, attempt: 3, due: in(confirmTime)}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			d, w, at := testDispatch(), waiting{}, now
			for i, look := range test.looks {
				if look.attempt != 0 {
					d.Spec.Attempt = look.attempt
				}
				at = at.Add(look.after)
				p := w.observe(d, look.held, at)
				if p.seen.IsZero() != (look.due == nil) {
					t.Fatalf("look %d: held: %t, want %t: %s", i+1, !p.seen.IsZero(), look.due != nil, test.reason)
				}
				if look.due != nil && p.due(timeout).Sub(at) != *look.due {
					t.Errorf("look %d: due in %s, want %s: %s", i+1, p.due(timeout).Sub(at), *look.due, test.reason)
				}
			}
		})
	}
}

func TestHomeOf(t *testing.T) {
	worker := func(value metav1.ConditionStatus, reason string, drain bool) *v1alpha1.WorkerCluster {
		w := &v1alpha1.WorkerCluster{Spec: v1alpha1.WorkerClusterSpec{Drain: drain}}
		if reason != "" {
			w.Status.Conditions = []metav1.Condition{{Type: v1alpha1.WorkerClusterReady, Status: value, Reason: reason}}
		}
		return w
	}
	for name, test := range map[string]struct {
		reason string
		worker *v1alpha1.WorkerCluster
		want   home
	}{
		"Ready":       {reason: "it keeps its jobs", worker: worker("True", v1alpha1.ReasonConnected, false), want: open},
		"Drain":       {reason: "it loses them", worker: worker("True", v1alpha1.ReasonConnected, true), want: draining},
		"New":         {reason: "nothing is known of it", worker: worker("", "", true), want: silent},
		"Unreachable": {reason: "it cannot stop anything", worker: worker("False", v1alpha1.ReasonUnreachable, true), want: silent},
		"Credentials": {reason: "it would not obey", worker: worker("False", v1alpha1.ReasonCredentialsInvalid, true), want: silent},
		"NoReport":    {reason: "its jobs are looked after", worker: worker("False", v1alpha1.ReasonCapacityReportStale, true), want: draining},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, homeOf(test.worker), "homeOf(): %s", test.reason)
		})
	}
}
