// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package laws

import (
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/test/check"
)

type edit func(*v1alpha1.Dispatch)

// newDispatch is a Dispatch that waits, with edits.
func newDispatch(edits ...edit) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "job", UID: "dispatch"},
		Spec:       v1alpha1.DispatchSpec{TrainJob: v1alpha1.TrainJobReference{Name: "job", UID: "origin"}},
		Status:     v1alpha1.DispatchStatus{Phase: v1alpha1.PhasePending},
	}
	return but(d, edits...)
}

// but is d with edits.
func but(d *v1alpha1.Dispatch, edits ...edit) *v1alpha1.Dispatch {
	d = d.DeepCopy()
	for _, edit := range edits {
		edit(d)
	}
	return d
}

func set(kind string, status metav1.ConditionStatus, reason string) edit {
	return func(d *v1alpha1.Dispatch) {
		meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{
			Type: kind, Status: status, Reason: reason, LastTransitionTime: metav1.Unix(1, 0),
		})
	}
}

func unset(kind string) edit {
	return func(d *v1alpha1.Dispatch) { meta.RemoveStatusCondition(&d.Status.Conditions, kind) }
}

// on places the next attempt.
func on(worker v1alpha1.ClusterName) edit {
	return func(d *v1alpha1.Dispatch) {
		d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Attempt, d.Spec.Eviction = worker, types.UID(worker), d.Spec.Attempt+1, nil
		d.Finalizers = []string{v1alpha1.FinalizerCopy}
	}
}

// found adopts a copy of a later attempt, wherever it is.
func found(d *v1alpha1.Dispatch) {
	on("found")(d)
	d.Spec.Attempt = 5
	d.Annotations = map[string]string{v1alpha1.AnnotationAdopted: "5"}
}

func withdrawn(d *v1alpha1.Dispatch) {
	d.Spec.Cluster, d.Spec.ClusterID, d.Spec.Eviction, d.Finalizers = "", "", nil, nil
}

func evictedBy(reason v1alpha1.EvictionReason) edit {
	return func(d *v1alpha1.Dispatch) { d.Spec.Eviction = &v1alpha1.Eviction{Reason: reason} }
}

func spared(d *v1alpha1.Dispatch) { d.Spec.Eviction = nil }

func copied(uid types.UID) edit {
	return func(d *v1alpha1.Dispatch) {
		d.Status.Cluster, d.Status.Attempt, d.Status.CopyUID, d.Status.Phase = d.Spec.Cluster, d.Spec.Attempt, uid, v1alpha1.PhaseRunning
		set(v1alpha1.DispatchMirrored, "True", v1alpha1.ReasonCopied)(d)
		unset(v1alpha1.DispatchWorkerLost)(d)
		unset(v1alpha1.DispatchEvicting)(d)
	}
}

// ends ends the attempt.
func ends(outcome v1alpha1.Outcome) edit {
	return func(d *v1alpha1.Dispatch) {
		d.Status.Attempt, d.Status.CopyUID = d.Spec.Attempt, ""
		set(v1alpha1.DispatchMirrored, "False", string(outcome))(d)
		unset(v1alpha1.DispatchWorkerLost)(d)
		unset(v1alpha1.DispatchEvicting)(d)
		remembered(outcome)(d)
	}
}

// finishes ends the job.
func finishes(outcome v1alpha1.Outcome) edit {
	return func(d *v1alpha1.Dispatch) {
		copied("copy")(d)
		inEnd(string(outcome))(d)
		remembered(outcome)(d)
	}
}

func phase(phase v1alpha1.DispatchPhase) edit {
	return func(d *v1alpha1.Dispatch) { d.Status.Phase = phase }
}

func inEnd(reason string) edit {
	return func(d *v1alpha1.Dispatch) {
		d.Status.Phase = v1alpha1.PhaseFinished
		set(v1alpha1.DispatchFinished, "True", reason)(d)
	}
}

func remembered(outcome v1alpha1.Outcome) edit {
	return func(d *v1alpha1.Dispatch) {
		d.Status.History = append(d.Status.History, v1alpha1.Attempt{Attempt: d.Spec.Attempt, Cluster: d.Spec.Cluster, Outcome: outcome})
	}
}

func history(change func([]v1alpha1.Attempt) []v1alpha1.Attempt) edit {
	return func(d *v1alpha1.Dispatch) { d.Status.History = change(d.Status.History) }
}

// sixteen are as many past attempts as a history has. The first of them ran, and no other one did.
func sixteen() []v1alpha1.Attempt {
	all := make([]v1alpha1.Attempt, 16)
	for i := range all {
		all[i] = v1alpha1.Attempt{Attempt: int32(i) - 15, Outcome: v1alpha1.OutcomeRejected}
	}
	all[0].FirstRunningTime, all[0].Progress = &metav1.Time{Time: time.Unix(1000, 0)}, &v1alpha1.Progress{Metrics: []v1alpha1.Metric{{Name: "loss", Value: "1"}}}
	return all
}

func deleted(d *v1alpha1.Dispatch) {
	d.DeletionTimestamp = ptr.To(metav1.Unix(1, 0))
	if d.Finalizers == nil {
		d.Finalizers = []string{"somebody/else"}
	}
}

func stops(d *v1alpha1.Dispatch) {
	set(v1alpha1.DispatchEvicting, "True", "Some")(d)
	unset(v1alpha1.DispatchWorkerLost)(d)
}

var (
	lose    = set(v1alpha1.DispatchWorkerLost, "True", v1alpha1.ReasonHold)
	preempt = evictedBy(v1alpha1.EvictionPreempted)
	kueue   = evictedBy(v1alpha1.EvictionManagedByMultiKueue)
	release = edit(func(d *v1alpha1.Dispatch) { d.Finalizers = nil })

	waiting  = newDispatch()
	here     = newDispatch(on("here"))
	running  = but(here, copied("copy"))
	evicting = but(running, preempt)
	gone     = but(running, lose)
	over1    = but(running, ends(v1alpha1.OutcomeCopyDeleted))
	done     = but(running, finishes(v1alpha1.OutcomeComplete))
	left     = but(evicting, ends(v1alpha1.OutcomePreempted))
	over5    = but(newDispatch(func(d *v1alpha1.Dispatch) { d.Spec.Attempt = 4 }, on("here")), ends(v1alpha1.OutcomeRejected))
	leaving  = but(running, deleted)
	givenUp  = but(waiting, set(v1alpha1.DispatchPlaced, "False", v1alpha1.ReasonGivenUp))
)

// step is what may be seen.
type step struct{ before, after *v1alpha1.Dispatch }

// steps has an example of each transition of the table, as its writer makes it.
func steps() map[string]step {
	long := but(running, history(func([]v1alpha1.Attempt) []v1alpha1.Attempt { return sixteen() }))
	trimmed := func(all []v1alpha1.Attempt) []v1alpha1.Attempt {
		all[0].Progress.Metrics = nil
		return slices.Delete(all, 1, 2)
	}
	return map[string]step{
		"None Waiting":                     {nil, waiting},
		"None Placed":                      {nil, here},
		"Waiting Waiting":                  {waiting, but(waiting, set(v1alpha1.DispatchPlaced, "False", "NoFit"))},
		"Waiting Waiting spec":             {waiting, but(waiting, func(d *v1alpha1.Dispatch) { d.Spec.Priority = 7 })},
		"Waiting Placed":                   {waiting, here},
		"Waiting Placed adopted":           {waiting, but(waiting, found)},
		"None Placed adopted":              {nil, but(newDispatch(), found)},
		"Placed Placed adopted":            {here, but(here, found)},
		"Copied Placed adopted":            {running, but(running, found)},
		"Evicting Placed adopted":          {evicting, but(evicting, found)},
		"Lost Lost adopted":                {gone, but(gone, found)},
		"Ended Placed adopted":             {over1, but(over1, found)},
		"Leaving Leaving adopted":          {leaving, but(leaving, found)},
		"Waiting None":                     {waiting, nil},
		"Waiting GivenUp":                  {waiting, givenUp},
		"GivenUp Finished":                 {givenUp, but(givenUp, inEnd(v1alpha1.ReasonGivenUp))},
		"GivenUp None":                     {givenUp, nil},
		"Finished None":                    {but(givenUp, set(v1alpha1.DispatchFinished, "True", v1alpha1.ReasonGivenUp)), nil},
		"GivenUp Leaving":                  {givenUp, but(givenUp, deleted)},
		"Waiting Leaving":                  {waiting, but(waiting, deleted)},
		"Placed Placed":                    {here, but(here, set(v1alpha1.DispatchEvicting, "False", v1alpha1.ReasonNoRoomElsewhere))},
		"Placed Placed held":               {here, but(here, set(v1alpha1.DispatchMirrored, "Unknown", v1alpha1.ReasonUnknownCopy))},
		"Placed Copied":                    {here, running},
		"Placed Evicting":                  {here, but(here, preempt)},
		"Placed Evicting kueue":            {here, but(here, kueue)},
		"Placed Evicting drained":          {here, but(here, evictedBy(v1alpha1.EvictionDrained))},
		"Placed Evicting changed":          {here, but(here, evictedBy(v1alpha1.EvictionCopyChanged))},
		"Placed Lost":                      {here, but(here, lose)},
		"Placed Ended":                     {here, but(here, ends(v1alpha1.OutcomeRejected))},
		"Placed Ended lost":                {here, but(here, ends(v1alpha1.OutcomeWorkerLost))},
		"Placed Finished":                  {here, but(here, finishes(v1alpha1.OutcomeFailed))},
		"Placed Leaving":                   {here, but(here, deleted)},
		"Copied Copied":                    {running, but(running, func(d *v1alpha1.Dispatch) { d.Status.Restarts++ })},
		"Copied Evicting":                  {running, evicting},
		"Copied Evicting kueue":            {running, but(running, kueue)},
		"Copied Copied stays":              {running, but(running, set(v1alpha1.DispatchEvicting, "False", v1alpha1.ReasonNoRoomElsewhere))},
		"Copied Evicting late":             {running, but(running, evictedBy(v1alpha1.EvictionAdmissionTimeout))},
		"Copied Evicting changed":          {running, but(running, evictedBy(v1alpha1.EvictionCopyChanged))},
		"Copied Lost":                      {running, gone},
		"Copied Ended":                     {running, over1},
		"Copied Ended trimmed":             {long, but(long, ends(v1alpha1.OutcomeCopyDeleted), history(trimmed))},
		"Copied Ended lost":                {running, but(running, ends(v1alpha1.OutcomeWorkerLost))},
		"Copied Finished":                  {running, done},
		"Copied Leaving":                   {running, leaving},
		"Evicting Evicting":                {evicting, but(evicting, stops)},
		"Evicting Placed":                  {but(here, preempt, stops), but(here, stops)},
		"Evicting Copied":                  {but(evicting, stops), but(evicting, stops, spared)},
		"Evicting Lost":                    {evicting, but(evicting, lose)},
		"Evicting Ended":                   {but(evicting, stops), but(evicting, ends(v1alpha1.OutcomePreempted))},
		"Evicting Ended lost":              {but(evicting, stops), but(evicting, ends(v1alpha1.OutcomeWorkerLost))},
		"Evicting Finished":                {evicting, but(evicting, finishes(v1alpha1.OutcomeComplete))},
		"Evicting Leaving":                 {evicting, but(evicting, deleted)},
		"Lost Lost":                        {gone, but(gone, set(v1alpha1.DispatchWorkerLost, "True", v1alpha1.ReasonFencing))},
		"Lost Lost evicted":                {gone, but(gone, preempt)},
		"Lost Lost drained":                {gone, but(gone, evictedBy(v1alpha1.EvictionDrained))}, // It answers again.
		"Lost Lost kueue":                  {gone, but(gone, kueue)},
		"Lost Lost spared":                 {but(gone, preempt), gone},
		"Lost Placed":                      {but(here, lose), here},
		"Lost Copied":                      {gone, running},
		"Lost Evicting":                    {but(evicting, lose), evicting},
		"Lost Ended":                       {gone, but(gone, ends(v1alpha1.OutcomeWorkerLost))},
		"Lost Leaving":                     {gone, but(gone, deleted)},
		"Ended Ended refused":              {over1, but(over1, set(v1alpha1.DispatchWriteRefused, "True", v1alpha1.ReasonDispatchRefused))},
		"Ended Waiting":                    {over1, but(over1, withdrawn)},
		"Ended Waiting evicted":            {left, but(left, withdrawn)},
		"Ended Finished":                   {over1, but(over1, finishes(v1alpha1.OutcomeComplete))},
		"Ended Placed":                     {over1, but(over1, on("there"))},
		"Ended Placed again":               {over1, but(over1, on("here"))},
		"Ended Leaving":                    {over1, but(over1, deleted)},
		"Finished Leaving":                 {done, but(done, deleted)},
		"Leaving Leaving":                  {leaving, but(leaving, set(v1alpha1.DispatchWorkerLost, "True", v1alpha1.ReasonDeletionPending))},
		"Leaving Leaving finalizers":       {leaving, but(leaving, func(d *v1alpha1.Dispatch) { d.Finalizers = []string{"foregroundDeletion"} })},
		"Leaving None":                     {leaving, nil},
		"Leaving None after the finalizer": {but(leaving, release), nil},
	}
}

// Each example has the states in its name and is allowed, and each line of the table has an example.
func TestTransitions(t *testing.T) {
	for name, step := range steps() {
		t.Run(name, func(t *testing.T) {
			if got := record.StateOf(step.before).String() + " " + record.StateOf(step.after).String(); !strings.HasPrefix(name+" ", got+" ") {
				t.Fatalf("the example goes from and to %q", got)
			}
			check.Must(t, Check(step.before, step.after))
		})
	}
	for _, from := range record.States() {
		for _, to := range record.States() {
			for _, transition := range record.Between(from, to) {
				found := false
				for _, step := range steps() {
					c := change{step.before, step.after, record.StateOf(step.before), record.StateOf(step.after)}
					found = found || c.from == from && c.to == to && allows(transition, c) == ""
				}
				if !found {
					t.Errorf("no example of %s to %s: %s", from, to, transition.Event)
				}
			}
		}
	}
	for _, transition := range record.Transitions() {
		if transition.Event == "" || transition.Writer == "" || transition.Changes == "" || transition.Promise == "" {
			t.Errorf("the line is not full: %+v", transition)
		}
	}
}

// A step that the table does not have is refused, between any two states. Each state can be reached and left.
func TestTableIsAllThereIs(t *testing.T) {
	examples := map[record.State]*v1alpha1.Dispatch{
		record.None: nil, record.Waiting: waiting, record.Placed: here, record.Copied: running, record.Evicting: evicting,
		record.Lost: gone, record.Ended: over1, record.GivenUp: givenUp, record.Finished: done, record.Leaving: leaving,
	}
	if got, want := len(record.States()), len(examples); got != want {
		t.Fatalf("there are %d states and %d examples", got, want)
	}
	for _, from := range record.States() {
		before, ok := examples[from]
		if !ok {
			t.Fatalf("there is no example of %s", from)
		}
		if got := record.StateOf(before); got != from {
			t.Fatalf("the example of %s is %s", from, got)
		}
		for to, after := range examples {
			if from != to && !slices.Contains(from.Next(), to) && Check(before, after) == nil {
				t.Errorf("from %s to %s was allowed", from, to)
			}
		}
		if ends := slices.Contains(from.Next(), record.Ended); from.Live() != ends {
			t.Errorf("an attempt ends where one is live, and there alone; %s leads to %v", from, from.Next())
		}
		for _, goal := range []record.State{record.Leaving, record.None} {
			if from != record.None && from != record.Leaving && !reaches(from, goal) {
				t.Errorf("there is no way from %s to %s", from, goal)
			}
		}
		if from != record.None && !reaches(record.None, from) {
			t.Errorf("there is no way to %s", from)
		}
	}
}

func reaches(from, goal record.State) bool {
	seen := map[record.State]bool{from: true}
	for todo := []record.State{from}; len(todo) > 0; todo = todo[1:] {
		for _, state := range todo[0].Next() {
			if state == goal {
				return true
			}
			if !seen[state] {
				seen[state] = true
				todo = append(todo, state)
			}
		}
	}
	return false
}

// Steps that break a promise are refused, each for its own reason.
func TestCheckRefuses(t *testing.T) {
	attempt := func(n int32) edit { return func(d *v1alpha1.Dispatch) { d.Spec.Attempt = n } }
	cluster := func(name v1alpha1.ClusterName) edit { return func(d *v1alpha1.Dispatch) { d.Spec.Cluster = name } }
	for name, test := range map[string]struct {
		reason        string
		before, after *v1alpha1.Dispatch
		want          string
	}{
		"LeavesALiveAttempt": {
			"two copies could run", running, but(running, on("there")), `left worker "here" before the attempt there had ended`,
		},
		"LeavesALostWorker":      {"the copy may run on", gone, but(gone, on("there")), "before the attempt there had ended"},
		"WithdrawnWhileEvicting": {"pods may be alive", evicting, but(evicting, withdrawn), "before the attempt there had ended"},
		"LeavesAFinishedJob":     {"an end is final", done, but(done, on("there")), "before the attempt there had ended"},
		"MovesWithOldAttempt":    {"the token is that of the old copy", over1, but(over1, cluster("there")), "without a higher attempt"},
		"NextAttemptInPlace":     {"the copy is of the one before", running, but(running, attempt(2)), "attempt 2 has begun before"},
		"AttemptFalls":           {"the token was used", but(running, attempt(2)), but(running, attempt(1)), "spec.attempt has fallen"},
		"ReportsTheFuture": {
			"nothing was decided", here, but(here, func(d *v1alpha1.Dispatch) { d.Status.Attempt = 2 }), "the status speaks of attempt 2",
		},
		"SecondCopy": {"two copies of one attempt", running, but(running, copied("other")), "attempt 1 has two copies"},
		"OtherTrainJob": {
			"it is the record of one", running, but(running, func(d *v1alpha1.Dispatch) { d.Spec.TrainJob.UID = "other" }),
			"the TrainJob has changed",
		},
		"GuardLost":        {"the copy would be forgotten", running, but(running, release), "has no finalizer"},
		"GoneWithoutGuard": {"the copy would be forgotten", running, nil, "has gone although"},
		"PlacedUnguarded":  {"the copy would be forgotten", nil, but(here, release), "has no finalizer"},
		"FinishesLost": {
			"it is on record first that the worker is back", gone, but(gone, finishes(v1alpha1.OutcomeComplete)), "no such transition",
		},
		"CopyDeletedWhileLost": {
			"nobody can have asked the worker", gone, but(gone, ends(v1alpha1.OutcomeCopyDeleted)), "cannot end with CopyDeleted",
		},
		"AdoptsAnEarlierAttempt": {"the token was used", over5, but(over5, found), "without a higher attempt"},
		"AdoptsTheEnded":         {"no attempt follows the last", done, but(done, found), "after the end"},
		"AfterTheEnd":            {"an end is final", done, but(done, ends(v1alpha1.OutcomeCopyDeleted)), "the status has changed after the end"},
		"EndTakenBack":           {"an end is final", done, running, "the status has changed after the end"},
		"EvictsTheEnded":         {"an end is final", done, but(done, preempt), "the spec has changed after the end"},
		"FinishesLeaving":        {"the copy is being deleted", leaving, but(leaving, finishes(v1alpha1.OutcomeComplete)), "after the end"},
		"InPhaseFinished":        {"a start would read it last", running, but(running, phase(v1alpha1.PhaseFinished)), "the phase is Finished"},
		"FinishedInPhaseRunning": {
			"a start would read it first", running, but(running, finishes(v1alpha1.OutcomeComplete), phase(v1alpha1.PhaseRunning)),
			"the Dispatch has finished, and the phase",
		},
		"EndedTwice": {"one end, one entry", over1, but(over1, remembered(v1alpha1.OutcomeCopyDeleted)), "the history has changed"},
		"EndForgotten": {
			"the history is what placement goes by", running,
			but(running, ends(v1alpha1.OutcomeCopyDeleted), history(func([]v1alpha1.Attempt) []v1alpha1.Attempt { return nil })),
			"does not have the end",
		},
		"LastRunForgotten": {
			"the next attempt is told of it", but(running, history(func([]v1alpha1.Attempt) []v1alpha1.Attempt { return sixteen() })),
			but(running, history(func([]v1alpha1.Attempt) []v1alpha1.Attempt { return sixteen()[1:] }), ends(v1alpha1.OutcomeCopyDeleted)), "has forgotten the last",
		},
		"PastMadeUp": {
			"the history grows by one", running, but(running, remembered(v1alpha1.OutcomeRejected), ends(v1alpha1.OutcomeCopyDeleted)), "made up",
		},
		"EndsWithACopy": {
			"nothing is left of the copy", running,
			but(running, ends(v1alpha1.OutcomeCopyDeleted), func(d *v1alpha1.Dispatch) { d.Status.CopyUID = "copy" }), "the status has a copy",
		},
		"EndsLost": {"the trouble is over", gone, but(gone, ends(v1alpha1.OutcomeWorkerLost), lose), "still has the condition WorkerLost"},
		"EndsOtherwise": {
			"the outcome is the eviction's", evicting, but(evicting, ends(v1alpha1.OutcomeDrained)), "cannot end with Drained",
		},
		"RejectedWhileItRuns": {"it was taken", running, but(running, ends(v1alpha1.OutcomeRejected)), "cannot end with Rejected"},
		"HistoryDisagrees": {
			"one end, one outcome", running,
			but(running, ends(v1alpha1.OutcomeCopyDeleted), set(v1alpha1.DispatchMirrored, "False", v1alpha1.ReasonWorkerLost)), "the history says",
		},
		"EvictsAndMoves": {
			"an eviction is one write", running, but(running, preempt, func(d *v1alpha1.Dispatch) { d.Spec.Priority = 9 }),
			"decision was changed",
		},
		"DecisionChanged": {
			"it was made with the attempt", here, but(here, func(d *v1alpha1.Dispatch) { d.Spec.Failover = "Fenced" }), "decision was changed",
		},
		"EvictionReplaced": {
			"the first is being carried out", evicting, but(evicting, evictedBy(v1alpha1.EvictionDrained)), "replaced by another",
		},
		"PlacedAndEvicted": {"one write, one decision", waiting, but(here, preempt), "no such transition"},
		"TwoWrites":        {"a crash could come between", here, but(running, preempt), "spec and status"},
		"EndedRevives":     {"no second copy in its name", over1, but(over1, copied("copy")), "no such transition"},
		"Undeleted":        {"no API server does that", leaving, running, "no such transition"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Check(test.before, test.after)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("Check() = %v, want %q: %s", err, test.want, test.reason)
			}
		})
	}
}

// Everybody may change what a Dispatch does not say. A new Dispatch of the same name is another Dispatch. Old history
// is dropped.
func TestCheckAllows(t *testing.T) {
	other := but(here, func(d *v1alpha1.Dispatch) { d.UID, d.Spec.TrainJob.UID = "other", "other" })
	oldestGoes := func(d *v1alpha1.Dispatch) { d.Status.History = d.Status.History[1:] }
	long := but(running, func(d *v1alpha1.Dispatch) { d.Status.History = make([]v1alpha1.Attempt, 16) })
	for name, test := range map[string]struct {
		reason        string
		before, after *v1alpha1.Dispatch
	}{
		"Nothing":        {"no change", nil, nil},
		"Labels":         {"of whoever likes", done, but(done, func(d *v1alpha1.Dispatch) { d.Labels = map[string]string{"a": "b"} })},
		"AnotherUID":     {"a watch has missed the deletion", leaving, other},
		"HistoryIsFull":  {"the oldest goes", long, but(long, ends(v1alpha1.OutcomeCopyDeleted), oldestGoes)},
		"EndedEvictions": {"placement has not looked yet", but(evicting, stops), but(evicting, ends(v1alpha1.OutcomePreempted))},
	} {
		t.Run(name, func(t *testing.T) {
			check.Equal(t, nil, Check(test.before, test.after), "Check(): %s", test.reason)
		})
	}
}
