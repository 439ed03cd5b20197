// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp/cmpopts"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func TestShorten(t *testing.T) {
	for name, test := range map[string]struct {
		words string
		want  string
	}{
		"Short":           {words: " as it is\n", want: "as it is"},
		"Long":            {words: "0123456789abc", want: "0123456..."},
		"NotWithinAGlyph": {words: "012345äöüxyz", want: "012345..."},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, Shorten(test.words, 10), "Shorten()")
		})
	}
}

// The end of an attempt removes everything about its copy. It counts against the worker only if there was no copy
// because of the worker.
func TestEnd(t *testing.T) {
	now := time.Now()
	for outcome, test := range map[v1alpha1.Outcome]struct {
		reason  string
		refused bool
	}{
		v1alpha1.OutcomeRejected:         {reason: "the worker said no", refused: true},
		v1alpha1.OutcomeNameConflict:     {reason: "the name is taken there", refused: true},
		v1alpha1.OutcomeCopyDeleted:      {reason: "somebody there does not want it", refused: true},
		v1alpha1.OutcomeAdmissionTimeout: {reason: "its queue did not let it run", refused: true},
		v1alpha1.OutcomePreempted:        {reason: "the job made room"},
		v1alpha1.OutcomeDrained:          {reason: "nothing goes to a drained worker anyway"},
		v1alpha1.OutcomeWorkerLost:       {reason: "nothing goes to a lost worker anyway"},
		v1alpha1.OutcomeCopyChanged:      {reason: "somebody there would change the next copy too", refused: true},
		v1alpha1.OutcomeSuspended:        {reason: "the user suspends the job"},
		v1alpha1.OutcomeJobChanged:       {reason: "the user has changed the job, and the worker was not asked"},
		v1alpha1.OutcomeRuntimeChanged:   {reason: "somebody there may change the runtime again and again", refused: true},
	} {
		t.Run(string(outcome), func(t *testing.T) {
			domain := &v1alpha1.Domain{Label: "rack", Value: "r1"}
			dispatch := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: "worker", Attempt: 2, Domain: domain}}
			status := v1alpha1.DispatchStatus{
				Phase: v1alpha1.PhaseWorkerLost, Reason: "Some", Cluster: "worker", Attempt: 2, CopyUID: "copy", Restarts: 3,
				Steps: []v1alpha1.Step{{Name: "trainer"}}, StartTime: &metav1.Time{Time: now}, CompletionTime: &metav1.Time{Time: now},
			}
			for _, kind := range []string{
				v1alpha1.DispatchEvicting, v1alpha1.DispatchWorkerLost, v1alpha1.DispatchMirrored, v1alpha1.DispatchWriteRefused,
			} {
				SetCondition(&status, dispatch, metav1.Condition{Type: kind, Status: metav1.ConditionTrue, Reason: "Some"}, now)
			}
			End(&status, dispatch, outcome, "words", now)
			want := v1alpha1.DispatchStatus{
				Phase: v1alpha1.PhasePending, Cluster: "worker", Attempt: 2,
				Conditions: []metav1.Condition{{
					Type: v1alpha1.DispatchMirrored, Status: metav1.ConditionFalse, Reason: string(outcome), Message: "words",
				}},
				History:      []v1alpha1.Attempt{{Attempt: 2, Cluster: "worker", Outcome: outcome, Message: "words"}},
				WaitingSince: &metav1.Time{Time: now},
			}
			if test.refused {
				want.Refusals = []v1alpha1.Refusal{{Cluster: "worker", Outcome: outcome, Message: "words", Count: 1}}
			}
			if outcome == v1alpha1.OutcomeAdmissionTimeout { // The other domains of the worker have not been tried.
				want.Refusals[0].Domain = domain
			}
			check.Diff(t, want, status, fmt.Sprintf("end() (-want +got): %s", test.reason), cmpopts.IgnoreTypes(metav1.Time{}))
			dispatch.Status = status
			if !dispatch.AttemptEnded() {
				t.Error("the attempt has not ended")
			}
		})
	}
}

// The end of a job removes all troubles and names the attempt, also if the attempt had been given up before.
func TestFinish(t *testing.T) {
	now := time.Now()
	dispatch := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: "worker", Attempt: 2}}
	status := v1alpha1.DispatchStatus{Phase: v1alpha1.PhaseRunning, Cluster: "worker", Attempt: 2}
	SetCondition(&status, dispatch, metav1.Condition{Type: v1alpha1.DispatchWorkerLost, Status: metav1.ConditionTrue, Reason: "Some"}, now)
	End(&status, dispatch, v1alpha1.OutcomeWorkerLost, "away", now)
	Finish(&status, dispatch, &metav1.Condition{Type: v1alpha1.ReasonComplete, Message: "it is Complete"}, now)
	dispatch.Status = status
	if !dispatch.IsFinished() || !dispatch.WasCopied() || status.Phase != v1alpha1.PhaseFinished || status.Reason != v1alpha1.ReasonComplete ||
		len(status.Conditions) != 3 {
		t.Errorf("Finish() leaves %+v", status)
	}
	want := []v1alpha1.Attempt{
		{Attempt: 2, Cluster: "worker", Outcome: v1alpha1.OutcomeWorkerLost, Message: "away"},
		{Attempt: 2, Cluster: "worker", Outcome: v1alpha1.OutcomeComplete, Message: "it is Complete"},
	}
	check.Diff(t, want, status.History, "history", cmpopts.IgnoreTypes(metav1.Time{}))
}

// When a worker answers again, what was under way there stays unchanged.
func TestClearWorkerLost(t *testing.T) {
	now := time.Now()
	for name, test := range map[string]struct {
		copied bool
		evict  v1alpha1.EvictionReason
		want   State
		phase  v1alpha1.DispatchPhase
		reason string
	}{
		"Placed":         {want: Placed, phase: v1alpha1.PhasePending},
		"Copied":         {copied: true, want: Copied, phase: v1alpha1.PhaseStarting, reason: v1alpha1.ReasonCopied},
		"Evicting":       {copied: true, evict: v1alpha1.EvictionDrained, want: Evicting, phase: v1alpha1.PhaseEvicting, reason: "Drained"},
		"EvictingPlaced": {evict: v1alpha1.EvictionDrained, want: Evicting, phase: v1alpha1.PhaseEvicting, reason: "Drained"},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: "worker", Attempt: 2}}
			if test.copied {
				SetCopied(&d.Status, d, now)
			}
			if test.evict != "" {
				Evict(d, v1alpha1.Eviction{Reason: test.evict, Message: "words"})
			}
			SetWorkerLost(&d.Status, d, v1alpha1.ReasonHold, "away", now)
			if LacksCopy(d) == test.copied {
				t.Errorf("LacksCopy() = %t", !test.copied)
			}
			if StateOf(d) != Lost || d.Status.Phase != v1alpha1.PhaseWorkerLost {
				t.Fatalf("a lost attempt is %s, in phase %s", StateOf(d), d.Status.Phase)
			}
			ClearWorkerLost(&d.Status, d)
			if StateOf(d) != test.want || d.Status.Phase != test.phase || d.Status.Reason != test.reason {
				t.Errorf("it is %s, in phase %s with reason %q; want %s, %s, %q",
					StateOf(d), d.Status.Phase, d.Status.Reason, test.want, test.phase, test.reason)
			}
		})
	}
}

// An eviction that was taken back in time leaves no condition. Evicting=False says that a job fits nowhere else: it
// stays.
func TestClearEvicting(t *testing.T) {
	d := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: "worker", Attempt: 2}}
	Evict(d, v1alpha1.Eviction{Reason: v1alpha1.EvictionDrained, Message: " words\n"})
	check.Equal(t, "words", d.Spec.Eviction.Message, "the eviction says")
	SetEvicting(&d.Status, d, "words", time.Now())
	want := v1alpha1.DispatchStatus{
		Phase: v1alpha1.PhaseEvicting, Reason: "Drained",
		Conditions: []metav1.Condition{{Type: v1alpha1.DispatchEvicting, Status: metav1.ConditionTrue, Reason: "Drained", Message: "words"}},
	}
	check.Diff(t, want, d.Status, "SetEvicting()", cmpopts.IgnoreTypes(metav1.Time{}))
	ClearEvicting(&d.Status)
	check.Equal(t, 0, len(d.Status.Conditions), "the conditions are %+v", d.Status.Conditions)
	SetNoRoomElsewhere(&d.Status, d, "no room", time.Now())
	ClearEvicting(&d.Status)
	if !HasNoRoomElsewhere(d) {
		t.Error("it does not say any more that there is no room elsewhere")
	}
}

// If the worker refuses to delete a copy, the Dispatch says that the copy is there and why.
func TestSetDeletionRefused(t *testing.T) {
	d := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: "worker", Attempt: 2}}
	SetDeletionRefused(&d.Status, d, "forbidden", time.Now())
	mirrored := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchMirrored)
	if StateOf(d) != Copied || mirrored.Reason != v1alpha1.ReasonDeletionRefused ||
		mirrored.Message != `worker "worker" refuses to delete the copy: forbidden` {
		t.Errorf("it is %s, with %+v", StateOf(d), mirrored)
	}
}

// Lists and texts stay within the limits of the CRD. The oldest entry is dropped first.
func TestLimits(t *testing.T) {
	var status v1alpha1.DispatchStatus
	dispatch := &v1alpha1.Dispatch{}
	for attempt := range int32(historyLimit + 1) {
		dispatch.Spec.Attempt = attempt
		AddHistory(&status, dispatch, v1alpha1.OutcomeRejected, "", time.Time{})
	}
	if len(status.History) != historyLimit || status.History[0].Attempt != 1 {
		t.Errorf("history is %+v, want the last %d", status.History, historyLimit)
	}
	for worker := range refusalLimit + 1 {
		addRefusal(&status, v1alpha1.ClusterName(rune('0'+worker)), v1alpha1.OutcomeRejected, "", time.Time{})
	}
	if len(status.Refusals) != refusalLimit || status.Refusals[0].Cluster != "1" {
		t.Errorf("there are %d refusals from %+v on, want the last %d", len(status.Refusals), status.Refusals[0], refusalLimit)
	}
}

// For the first version of a Dispatch a watch has no earlier version.
func TestNoDispatch(t *testing.T) {
	if StateOf(nil) != None || AttemptOf(nil) != None || IsMoving(nil) || IsGivenUp(nil) || LacksCopy(nil) {
		t.Error("a Dispatch that is not there has a state")
	}
}

// A job that waits names no worker and says why. It waits since the reason, and not since a gate, kept it.
func TestWait(t *testing.T) {
	began, now := time.Unix(1000, 0), time.Unix(2000, 0)
	for name, test := range map[string]struct {
		before string
		status metav1.ConditionStatus
		since  time.Time
	}{
		"New":        {since: now},
		"SameReason": {before: v1alpha1.ReasonNoFit, status: metav1.ConditionFalse, since: began},
		"NewReason":  {before: v1alpha1.ReasonQueued, status: metav1.ConditionFalse, since: began},
		"Gate":       {before: v1alpha1.ReasonSuspended, status: metav1.ConditionFalse, since: now},
		"Placed":     {before: v1alpha1.ReasonPlaced, status: metav1.ConditionTrue, since: now},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Dispatch{Status: v1alpha1.DispatchStatus{Cluster: "worker", CopyUID: "copy", Phase: v1alpha1.PhasePending}}
			if test.before != "" {
				SetCondition(&d.Status, d, metav1.Condition{Type: v1alpha1.DispatchPlaced, Status: test.status, Reason: test.before}, began)
			}
			explanation := []v1alpha1.ClusterExplanation{{Cluster: "worker", Reason: v1alpha1.ReasonInsufficientResources}}
			Wait(&d.Status, d, Why{Reason: v1alpha1.ReasonNoFit, Message: " words\n", Explanation: explanation}, now)
			want := v1alpha1.DispatchStatus{
				Phase: v1alpha1.PhaseWaiting, Reason: v1alpha1.ReasonNoFit, Explanation: explanation,
				Conditions: []metav1.Condition{{
					Type: v1alpha1.DispatchPlaced, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonNoFit, Message: "words",
					LastTransitionTime: metav1.NewTime(test.since),
				}},
			}
			check.Diff(t, want, d.Status, "Wait()")
			if !WaitsFor(&d.Status, v1alpha1.ReasonNoFit) || WaitsFor(&d.Status, v1alpha1.ReasonQueued) {
				t.Error("WaitsFor() names another reason")
			}
		})
	}
}

func TestCopiedPhase(t *testing.T) {
	steps := func(states ...v1alpha1.StepState) []v1alpha1.Step {
		names := []string{v1alpha1.StepModelInitializer, v1alpha1.StepTrainer}
		var all []v1alpha1.Step
		for i, state := range states {
			all = append(all, v1alpha1.Step{Name: names[i], State: state})
		}
		return all
	}
	const waits, runs, done = v1alpha1.StepWaiting, v1alpha1.StepRunning, v1alpha1.StepSucceeded
	for name, test := range map[string]struct {
		reason     string
		shown, now v1alpha1.DispatchStatus
		want       v1alpha1.DispatchPhase
	}{
		"New":         {reason: "nothing has been reported", want: v1alpha1.PhaseStarting},
		"Waits":       {reason: "no step has begun", now: v1alpha1.DispatchStatus{Steps: steps(waits, waits)}, want: v1alpha1.PhaseStarting},
		"Initializes": {reason: "a step runs", now: v1alpha1.DispatchStatus{Steps: steps(runs, waits)}, want: v1alpha1.PhaseRunning},
		"Between": {
			reason: "the next step has to start",
			shown:  v1alpha1.DispatchStatus{Phase: v1alpha1.PhaseRunning, Steps: steps(runs, waits)},
			now:    v1alpha1.DispatchStatus{Steps: steps(done, waits)}, want: v1alpha1.PhaseStarting,
		},
		"LostAPod": {
			reason: "the step that ran has to start again",
			shown:  v1alpha1.DispatchStatus{Phase: v1alpha1.PhaseRunning, Steps: steps(done, runs)},
			now:    v1alpha1.DispatchStatus{Steps: steps(done, waits)}, want: v1alpha1.PhaseRestarting,
		},
		"StillRestarts": {
			reason: "it has not come up again",
			shown:  v1alpha1.DispatchStatus{Phase: v1alpha1.PhaseRestarting, Steps: steps(done, waits)},
			now:    v1alpha1.DispatchStatus{Steps: steps(done, waits)}, want: v1alpha1.PhaseRestarting,
		},
		"JobSetRestarts": {
			reason: "the JobSet has counted a restart", now: v1alpha1.DispatchStatus{Steps: steps(waits, waits), Restarts: 1},
			want: v1alpha1.PhaseRestarting,
		},
		"RunsAgain": {
			reason: "it has come up again", shown: v1alpha1.DispatchStatus{Phase: v1alpha1.PhaseRestarting},
			now: v1alpha1.DispatchStatus{Steps: steps(done, runs), Restarts: 2}, want: v1alpha1.PhaseRunning,
		},
		"Done": {reason: "nothing is left to start", now: v1alpha1.DispatchStatus{Steps: steps(done, done), Restarts: 1}, want: v1alpha1.PhaseRunning},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, test.want, CopiedPhase(&test.shown, &test.now), "CopiedPhase(): %s", test.reason)
		})
	}
}

// giveUpAfter counts from when a job began to wait, whatever attempts never ran since then. What ran, or was suspended,
// begins the time anew.
func TestWaitingSince(t *testing.T) {
	at := func(minute int) time.Time { return time.Unix(int64(60*minute), 0) }
	wait := func(reason string) func(*v1alpha1.Dispatch, time.Time) {
		return func(d *v1alpha1.Dispatch, now time.Time) {
			d.Spec.Cluster = ""
			Wait(&d.Status, d, Why{Reason: reason}, now)
		}
	}
	pause := func(d *v1alpha1.Dispatch, now time.Time) {
		Wait(&d.Status, d, Why{Reason: "Suspended", Pauses: true}, now)
	}
	unwritten := func(d *v1alpha1.Dispatch, now time.Time) { SetWriteRefused(d, "DispatchRefused", "words", now) }
	place := func(d *v1alpha1.Dispatch, _ time.Time) { d.Spec.Cluster, d.Spec.Attempt = "east", d.Spec.Attempt+1 }
	shown := func(d *v1alpha1.Dispatch, now time.Time) { SetCopied(&d.Status, d, now) }
	end := func(outcome v1alpha1.Outcome) func(*v1alpha1.Dispatch, time.Time) {
		return func(d *v1alpha1.Dispatch, now time.Time) { End(&d.Status, d, outcome, "words", now) }
	}
	type steps []func(*v1alpha1.Dispatch, time.Time)
	for name, test := range map[string]struct {
		reason string
		// steps are done one minute after the other, from minute 1 on.
		steps steps
		want  int // In minutes. 0: it does not wait.
	}{
		"New":            {reason: "nothing is said", want: 0},
		"Waits":          {reason: "other reasons do not matter", steps: steps{wait("NoFit"), wait("Rejected"), wait("RuntimeNotFound")}, want: 1},
		"Refused":        {reason: "nobody took it", steps: steps{wait("NoFit"), place, end("Rejected"), wait("Rejected")}, want: 1},
		"RefusedCopy":    {reason: "its copy never ran", steps: steps{wait("NoFit"), place, shown, end("Rejected"), wait("Rejected")}, want: 1},
		"NotAdmitted":    {reason: "its copy never ran", steps: steps{wait("NoFit"), place, shown, end("AdmissionTimeout"), wait("NoFit")}, want: 1},
		"Again":          {reason: "by one worker after the other", steps: steps{place, end("Rejected"), place, shown, end("Rejected"), wait("NoFit")}, want: 2},
		"Preempted":      {reason: "it ran", steps: steps{wait("NoFit"), place, shown, end("Preempted"), wait("NoFit")}, want: 4},
		"PreemptedSoon":  {reason: "it ran, though nobody saw it", steps: steps{wait("NoFit"), place, end("Preempted"), wait("NoFit")}, want: 3},
		"RanThenRefused": {reason: "since it ran", steps: steps{place, shown, end("Drained"), place, end("Rejected"), wait("NoFit")}, want: 3},
		"Suspended":      {reason: "it does not wait for a worker", steps: steps{wait("NoFit"), place, end("Rejected"), wait("Suspended")}, want: 0},
		"Resumed":        {reason: "since it was resumed", steps: steps{wait("NoFit"), place, end("Rejected"), wait("Suspended"), wait("NoFit")}, want: 5},
		"ResumedCopy": {
			reason: "since it was resumed", steps: steps{wait("NoFit"), wait("Suspended"), wait("NoFit"), place, shown, end("Rejected"), wait("NoFit")}, want: 3,
		},
		"Paused":       {reason: "the time stands still", steps: steps{wait("NoFit"), wait("Queued"), pause, pause}, want: 2},
		"PausedBefore": {reason: "without the two minutes off the list", steps: steps{wait("NoFit"), wait("Queued"), pause, pause, wait("NoFit"), wait("Queued")}, want: 3},
		"PausedTwice": {
			reason: "without a minute and two", steps: steps{wait("NoFit"), pause, wait("NoFit"), pause, pause, wait("NoFit"), place, end("Rejected"), wait("NoFit")}, want: 4,
		},
		"PausedThenRefused": {
			reason: "without the three minutes until it was refused", steps: steps{wait("NoFit"), pause, pause, place, end("Rejected"), wait("NoFit"), wait("NoFit")}, want: 4,
		},
		"PausedThenUnwritten": {reason: "without the two minutes off the list", steps: steps{wait("NoFit"), pause, pause, unwritten, unwritten}, want: 3},
		"HeldThenUnwritten":   {reason: "since it has quota", steps: steps{wait("WaitingForWorkload"), unwritten, unwritten}, want: 2},
		"PausedAndSuspended":  {reason: "since it was resumed", steps: steps{wait("NoFit"), pause, wait("Suspended"), wait("NoFit")}, want: 4},
		"PausedFirst":         {reason: "it has not waited before", steps: steps{pause, wait("NoFit")}, want: 2},
		"Kueue":               {reason: "since it has quota", steps: steps{wait("WaitingForWorkload"), wait("NoFit"), wait("Queued")}, want: 2},
		"Ended": {
			reason: "it does not wait",
			steps: steps{wait("NoFit"), place, shown, func(d *v1alpha1.Dispatch, now time.Time) {
				Finish(&d.Status, d, &metav1.Condition{Type: "Failed"}, now)
			}}, want: 0,
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &v1alpha1.Dispatch{}
			for i, step := range test.steps {
				step(d, at(i+1))
			}
			want := time.Time{}
			if test.want > 0 {
				want = at(test.want)
			}
			if got := WaitingSince(&d.Status, at(len(test.steps))); !got.Equal(want) {
				t.Errorf("WaitingSince() = %v, want %v: %s", got, want, test.reason)
			}
		})
	}
}
