// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

var now = time.Date(2026, 3, 4, 5, 6, 7, 0, time.UTC)

// workerOption changes a WorkerCluster that was lost an hour ago.
type workerOption func(*v1alpha1.WorkerCluster)

func newWorker(options ...workerOption) *v1alpha1.WorkerCluster {
	seen := metav1.NewTime(now.Add(-time.Hour))
	worker := &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: "w", Annotations: map[string]string{}},
		Status: v1alpha1.WorkerClusterStatus{
			ClusterID: "id", LastSeenTime: &seen,
			Conditions: []metav1.Condition{{
				Type: v1alpha1.WorkerClusterReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonUnreachable, LastTransitionTime: seen,
			}},
		},
	}
	for _, option := range options {
		option(worker)
	}
	return worker
}

func named(name string) workerOption {
	return func(w *v1alpha1.WorkerCluster) { w.Name = name }
}

func ready(reason string) workerOption {
	return func(w *v1alpha1.WorkerCluster) { w.Status.Conditions[0].Reason = reason }
}

func seen(ago time.Duration) workerOption {
	return func(w *v1alpha1.WorkerCluster) { w.Status.LastSeenTime = &metav1.Time{Time: now.Add(-ago)} }
}

func neverSeen(w *v1alpha1.WorkerCluster) { w.Status.LastSeenTime = nil }

func unknownID(w *v1alpha1.WorkerCluster) { w.Status.ClusterID = "" }

func grace(d time.Duration) workerOption {
	return func(w *v1alpha1.WorkerCluster) { w.Spec.Failover.GracePeriod = &metav1.Duration{Duration: d} }
}

func forget(id types.UID) workerOption {
	return func(w *v1alpha1.WorkerCluster) { w.Annotations[v1alpha1.AnnotationForget] = string(id) }
}

func pause(status metav1.ConditionStatus, ago time.Duration) workerOption {
	return func(w *v1alpha1.WorkerCluster) {
		w.Status.Conditions = append(w.Status.Conditions, metav1.Condition{
			Type: v1alpha1.WorkerClusterFailoverPaused, Status: status, LastTransitionTime: metav1.NewTime(now.Add(-ago)),
		})
	}
}

func TestJudge(t *testing.T) {
	unreachable := Contact{UnreachableSince: now.Add(-time.Hour)}
	for name, test := range map[string]struct {
		reason  string
		worker  *v1alpha1.WorkerCluster
		contact Contact
		cutOff  bool
		want    workerState
		// again is how long from now to look again, 0 for never.
		again time.Duration
	}{
		"Connected": {
			reason: "nothing is lost", worker: newWorker(ready(v1alpha1.ReasonConnected)), contact: Contact{Answers: true}, want: notLost,
		},
		"ConnectionIsFaster": {
			reason: "the worker is back, which is not on record yet", worker: newWorker(), contact: Contact{Answers: true}, want: notLost,
		},
		"RecordIsSlower": {
			reason: "the connection is lost, which is not on record yet; the record will wake us",
			worker: newWorker(ready(v1alpha1.ReasonConnected)), contact: unreachable, want: notLost,
		},
		"NoCapacityReport": {
			reason: "jobs there go on", worker: newWorker(ready(v1alpha1.ReasonCapacityReportStale)), want: notLost,
		},
		"ForgottenAndBack": {
			reason: "a worker that answers is not forgotten", worker: newWorker(forget("id")), contact: Contact{Answers: true}, want: notLost,
		},
		"WithinDefaultGrace": {
			reason: "five minutes, unless it is said", worker: newWorker(seen(4 * time.Minute)), contact: unreachable,
			want: withinGrace, again: time.Minute,
		},
		"WithinGrace": {
			reason: "as the WorkerCluster says", worker: newWorker(grace(90 * time.Minute)), contact: unreachable,
			want: withinGrace, again: 30 * time.Minute,
		},
		"GraceOfARestartedManager": {
			reason: "it never saw the worker, and the condition says since when it is not Ready",
			worker: newWorker(neverSeen, grace(2*time.Hour)), contact: unreachable, want: withinGrace, again: time.Hour,
		},
		"CutOffWithinGrace": {
			reason: "who waits need not pause", worker: newWorker(seen(time.Minute)), contact: unreachable, cutOff: true,
			want: withinGrace, again: 4 * time.Minute,
		},
		"Unauthorized":      {reason: "401 is no loss", worker: newWorker(ready(v1alpha1.ReasonCredentialsInvalid)), want: unclear},
		"NoTrainJobs":       {reason: "it answers, and says so", worker: newWorker(ready(v1alpha1.ReasonTrainJobAPIMissing), seen(time.Second)), want: unclear},
		"IdentityChanged":   {reason: "nor is another cluster", worker: newWorker(ready(v1alpha1.ReasonIdentityChanged)), want: unclear},
		"NoCredentials":     {reason: "nor are lost credentials", worker: newWorker(ready(v1alpha1.ReasonCredentialsNotFound)), want: unclear},
		"BeingConnected":    {reason: "it is not known yet", worker: newWorker(ready(v1alpha1.ReasonConnecting)), want: unclear},
		"ManagerJustBegan":  {reason: "the record is of an earlier process, and this one does not know yet", worker: newWorker(), want: unclear},
		"UnauthorizedSoon":  {reason: "the connection knows more than the record", worker: newWorker(), contact: Contact{}, want: unclear},
		"NoLongerConnected": {reason: "the other way round", worker: newWorker(ready(v1alpha1.ReasonCredentialsInvalid)), contact: unreachable, want: unclear},
		"NotConfirmed": {
			reason: "one failed request of a process that has just begun proves nothing about the hour before",
			worker: newWorker(), contact: Contact{UnreachableSince: now.Add(-10 * time.Second)}, want: unclear, again: 20 * time.Second,
		},
		"ConfirmedByShortGrace": {
			reason: "who has no patience is not made to have more",
			worker: newWorker(grace(5 * time.Second)), contact: Contact{UnreachableSince: now.Add(-10 * time.Second)}, want: lost,
		},
		"Lost":   {reason: "the grace is over", worker: newWorker(), contact: unreachable, want: lost},
		"Paused": {reason: "too many at once", worker: newWorker(), contact: unreachable, cutOff: true, want: paused},
		"PauseEnds": {
			reason: "the others are just coming back, and so may this one", worker: newWorker(pause(metav1.ConditionTrue, time.Hour)),
			contact: unreachable, want: withinGrace, again: 5 * time.Minute,
		},
		"PauseHasJustEnded": {
			reason: "it is on record", worker: newWorker(pause(metav1.ConditionFalse, 2*time.Minute)), contact: unreachable,
			want: withinGrace, again: 3 * time.Minute,
		},
		"LostAfterPause": {
			reason: "the others are back, this one is not", worker: newWorker(pause(metav1.ConditionFalse, 5*time.Minute)),
			contact: unreachable, want: lost,
		},
		"PausedAgain": {
			reason: "they went again", worker: newWorker(pause(metav1.ConditionFalse, time.Minute)), contact: unreachable, cutOff: true,
			want: paused,
		},
		"Forgotten": {
			reason: "an admin knows better than grace and pause", worker: newWorker(forget("id"), seen(time.Second)), contact: unreachable,
			cutOff: true, want: forgotten,
		},
		"ForgottenAndUnauthorized": {
			reason: "whatever answers there", worker: newWorker(forget("id"), ready(v1alpha1.ReasonIdentityChanged)), want: forgotten,
		},
		"OtherForgotten": {
			reason: "the annotation names another cluster", worker: newWorker(forget("other")), contact: unreachable, want: lost,
		},
		"NothingForgotten": {
			reason: "an ID that is not known is not that of an annotation that is not there", worker: newWorker(unknownID), contact: unreachable, want: lost,
		},
		"Gone": {reason: "there is no WorkerCluster", want: gone},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation{name: "w", worker: test.worker, contact: test.contact, cutOff: test.cutOff}
			state, again := o.stateAt(now)
			check.Equal(t, test.want, state, "state: %s", test.reason)
			if test.again == 0 && !again.IsZero() || test.again != 0 && !again.Equal(now.Add(test.again)) {
				t.Errorf("looks again at %s, want in %s: %s", again, test.again, test.reason)
			}
		})
	}
}

func TestStateFor(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		worker *v1alpha1.WorkerCluster
		placed types.UID
		of     workerState
		want   workerState
	}{
		"Same":          {reason: "it is there", worker: newWorker(), placed: "id", of: lost, want: lost},
		"NotRecorded":   {reason: "what is not on record is there", worker: newWorker(), of: lost, want: lost},
		"Other":         {reason: "the loss is another cluster's", worker: newWorker(), placed: "old", of: lost, want: elsewhere},
		"OtherAnswers":  {reason: "so is the answer", worker: newWorker(), placed: "old", of: notLost, want: elsewhere},
		"OldForgotten":  {reason: "of the former cluster nothing runs any more", worker: newWorker(forget("old")), placed: "old", of: notLost, want: forgotten},
		"NewForgotten":  {reason: "it was not the former that was meant", worker: newWorker(forget("id")), placed: "old", of: forgotten, want: elsewhere},
		"SameForgotten": {reason: "as judged", worker: newWorker(forget("id")), placed: "id", of: forgotten, want: forgotten},
		"BackAndNamed":  {reason: "it answers", worker: newWorker(forget("id")), placed: "id", of: notLost, want: notLost},
		"PutBack":       {reason: "it has not been connected yet", worker: newWorker(unknownID), placed: "old", of: unclear, want: unclear},
		"PutBackToForget": {
			reason: "that is how the jobs of a deleted WorkerCluster are freed", worker: newWorker(unknownID, forget("old")), placed: "old",
			of: withinGrace, want: forgotten,
		},
		"Gone": {reason: "nothing is known", placed: "id", of: gone, want: gone},
	} {
		t.Run(name, func(t *testing.T) {
			o := observation{name: "w", worker: test.worker}
			d := &v1alpha1.Dispatch{Spec: v1alpha1.DispatchSpec{Cluster: "w", ClusterID: test.placed}}
			check.Equal(t, test.want, o.stateFor(d, test.of), "state: %s", test.reason)
		})
	}
}

func TestCutOff(t *testing.T) {
	connected := func(name string) v1alpha1.WorkerCluster {
		return *newWorker(named(name), ready(v1alpha1.ReasonConnected))
	}
	away := func(name string, options ...workerOption) v1alpha1.WorkerCluster {
		return *newWorker(append([]workerOption{named(name)}, options...)...)
	}
	for name, test := range map[string]struct {
		reason string
		others []v1alpha1.WorkerCluster
		share  float64
		want   bool
	}{
		"OneOfTwo":   {reason: "half is not more than half", others: []v1alpha1.WorkerCluster{connected("a")}, share: 0.5},
		"TwoOfThree": {reason: "most are lost", others: []v1alpha1.WorkerCluster{connected("a"), away("b")}, share: 0.5, want: true},
		"TheOnlyOne": {reason: "of one all are lost", share: 0.5, want: true},
		"Never":      {reason: "an admin who wants no pause", others: []v1alpha1.WorkerCluster{away("a")}, share: 1},
		"OneOfFour": {
			reason: "a quarter", others: []v1alpha1.WorkerCluster{connected("a"), connected("b"), connected("c")}, share: 0.2, want: true,
		},
		"LongBefore": {
			reason: "what is lost since long says nothing about now", share: 0.5,
			others: []v1alpha1.WorkerCluster{connected("a"), away("b", seen(2*time.Hour)), away("c", seen(2*time.Hour))},
		},
		"LongAfter": {
			reason: "the other way round", share: 0.5,
			others: []v1alpha1.WorkerCluster{connected("a"), away("b", seen(time.Minute)), away("c", seen(time.Minute))},
		},
		"AboutThen": {
			reason: "nobody notices at the same second", share: 0.5, want: true,
			others: []v1alpha1.WorkerCluster{connected("a"), away("b", seen(56*time.Minute)), away("c", seen(64*time.Minute))},
		},
		"NeverConnected": {
			reason: "they were never there", share: 0.5, others: []v1alpha1.WorkerCluster{connected("a"), away("b", unknownID), away("c", unknownID)},
		},
		"OthersForgotten": {
			reason: "an admin knows why they are lost", share: 0.5,
			others: []v1alpha1.WorkerCluster{connected("a"), away("b", forget("id")), away("c", forget("id"))},
		},
		"Refusing": {
			reason: "a refusal shows neither that a worker is lost nor that the hub reaches it", share: 0.5,
			others: []v1alpha1.WorkerCluster{
				connected("a"), away("b", ready(v1alpha1.ReasonCredentialsInvalid)), away("c", ready(v1alpha1.ReasonCredentialsInvalid)),
			},
		},
		"ConnectedAgainAfterStart": {
			reason: "a manager that has just begun connects to those that were lost before", share: 0.5, want: true,
			others: []v1alpha1.WorkerCluster{connected("a"), away("b", ready(v1alpha1.ReasonConnecting))},
		},
		"NoCapacityReport": {
			reason: "it answers", share: 0.5, others: []v1alpha1.WorkerCluster{away("a", ready(v1alpha1.ReasonCapacityReportMissing))},
		},
	} {
		t.Run(name, func(t *testing.T) {
			this := newWorker()
			check.Equal(t, test.want, lossesWith(this, append(test.others, *this), 5*time.Minute).exceed(test.share),
				"cut off: %s", test.reason)
		})
	}
}

// The reason says whether something has answered during the outage. Messages may change from release to release.
func TestAnswerIsAReason(t *testing.T) {
	for name, test := range map[string]struct {
		reason string
		said   dispatchOption
		want   jobState
	}{
		"Words": {
			reason: "as it is written now", said: said(v1alpha1.ReasonAddressAnswers, answeredWords("w")), want: answered,
		},
		"OtherWords": {
			reason: "a release may say it in other words", said: said(v1alpha1.ReasonAddressAnswers, "in other words"),
			want: answered,
		},
		"NoWords": {reason: "words prove nothing", said: said(v1alpha1.ReasonAddressAnswers, ""), want: answered},
		"WordsOfAnotherCause": {
			reason: "the reason counts", said: said(v1alpha1.ReasonAddressAnswers, noAgentWords("w")), want: answered,
		},
		"Hold": {reason: "Hold has several causes", said: said(v1alpha1.ReasonHold, answeredWords("w")), want: end},
		"AnotherReason": {
			reason: "the reason counts", said: said(v1alpha1.ReasonFencing, answeredWords("w")), want: end,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobObservation{
				dispatch: newDispatch(policy(v1alpha1.FailoverFenced), test.said), job: newJob(nil), worker: lost,
				stop: agentStop{silent: true, at: now.Add(-time.Minute)},
			}
			decided := f.decide(now)
			if decided.do != test.want {
				t.Fatalf("decided on %s, want %s: %s", decided.do, test.want, test.reason)
			}
			if decided.do == answered && decided.do.reason() != v1alpha1.ReasonAddressAnswers {
				t.Errorf("it is written with reason %s", decided.do.reason())
			}
			f.stop = agentStop{untried: true}
			if decided := f.decide(now); test.want == answered && decided.do != answered {
				t.Errorf("before the worker was tried again it is %s, want %s: %s", decided.do, test.want, test.reason)
			}
		})
	}
}
