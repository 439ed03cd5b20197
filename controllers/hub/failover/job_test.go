// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// dispatchOption changes the Dispatch of a job that runs on "w".
type dispatchOption func(*v1alpha1.Dispatch)

func newDispatch(options ...dispatchOption) *v1alpha1.Dispatch {
	d := &v1alpha1.Dispatch{
		ObjectMeta: metav1.ObjectMeta{Name: "job", Namespace: "ns", Finalizers: []string{v1alpha1.FinalizerCopy}},
		Spec: v1alpha1.DispatchSpec{
			TrainJob: v1alpha1.TrainJobReference{Name: "job", UID: "job-uid"}, Cluster: "w", ClusterID: "id", Attempt: 3,
		},
		Status: v1alpha1.DispatchStatus{Phase: v1alpha1.PhaseRunning, Cluster: "w", Attempt: 3},
	}
	with(v1alpha1.DispatchMirrored, metav1.ConditionTrue, v1alpha1.ReasonCopied, "")(d)
	for _, option := range options {
		option(d)
	}
	return d
}

func with(kind string, status metav1.ConditionStatus, reason, message string) dispatchOption {
	return func(d *v1alpha1.Dispatch) {
		meta.SetStatusCondition(&d.Status.Conditions, metav1.Condition{Type: kind, Status: status, Reason: reason, Message: message})
	}
}

func said(reason, message string) dispatchOption {
	return func(d *v1alpha1.Dispatch) {
		with(v1alpha1.DispatchWorkerLost, metav1.ConditionTrue, reason, message)(d)
		d.Status.Phase = v1alpha1.PhaseWorkerLost
	}
}

func policy(failover v1alpha1.Failover) dispatchOption {
	return func(d *v1alpha1.Dispatch) { d.Spec.Failover = failover }
}

func deleted(ago time.Duration) dispatchOption {
	return func(d *v1alpha1.Dispatch) { d.DeletionTimestamp = &metav1.Time{Time: now.Add(-ago)} }
}

func unguarded(d *v1alpha1.Dispatch) { d.Finalizers = []string{"somebody/else"} }

var (
	refused    = with(v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.ReasonRejected, "")
	givenUp    = with(v1alpha1.DispatchMirrored, metav1.ConditionFalse, v1alpha1.ReasonWorkerLost, "")
	isFinished = with(v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.ReasonComplete, "")
)

// newJob makes the hub TrainJob of the Dispatch.
func newJob(change func(*unstructured.Unstructured)) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetNamespace("ns")
	job.SetName("job")
	job.SetUID("job-uid")
	if change != nil {
		change(job)
	}
	return job
}

func complete(job *unstructured.Unstructured) {
	job.Object["status"] = map[string]any{"conditions": []any{map[string]any{"type": trainer.TrainJobComplete, "status": "True"}}}
}

func going(job *unstructured.Unstructured) { job.SetDeletionTimestamp(&metav1.Time{Time: now}) }

func another(job *unstructured.Unstructured) { job.SetUID("another-uid") }

func TestDecide(t *testing.T) {
	var (
		running = newJob(nil)
		silent  = agentStop{silent: true}
		stopsIn = func(d time.Duration) agentStop { return agentStop{silent: true, at: now.Add(d)} }
		fenced  = policy(v1alpha1.FailoverFenced)
	)
	for name, test := range map[string]struct {
		reason       string
		dispatch     *v1alpha1.Dispatch
		job          *unstructured.Unstructured
		worker       workerState
		ready        string
		stop         agentStop
		hasTombstone bool
		want         jobState
		words        string
		again        time.Duration
	}{
		"NotLost":     {reason: "nothing to do", dispatch: newDispatch(policy(v1alpha1.FailoverImmediate)), job: running, worker: notLost},
		"WithinGrace": {reason: "a short loss changes nothing", dispatch: newDispatch(policy(v1alpha1.FailoverImmediate)), job: running, worker: withinGrace},
		"DeletedWithinGrace": {
			reason: "nor for deletions", dispatch: newDispatch(deleted(time.Hour)), worker: withinGrace,
		},

		"Hold":      {reason: "as it was decided", dispatch: newDispatch(policy(v1alpha1.FailoverHold)), job: running, worker: lost, want: hold, words: holdWords(newDispatch())},
		"NoPolicy":  {reason: "the safe one", dispatch: newDispatch(), job: running, worker: lost, want: hold, words: holdWords(newDispatch())},
		"Immediate": {reason: "at once", dispatch: newDispatch(policy(v1alpha1.FailoverImmediate)), job: running, worker: lost, want: end, words: immediateWords("w")},

		"FencedBegins": {
			reason: "when the agent must have stopped it", dispatch: newDispatch(fenced), job: running, worker: lost, stop: stopsIn(time.Minute),
			want: fencing, words: fencingWords("w"), again: time.Minute,
		},
		"FencedIsSaidFirst": {
			reason:   "mirror needs something to take back when the worker returns, so that only one of two writes succeeds",
			dispatch: newDispatch(fenced), job: running, worker: lost, stop: stopsIn(-time.Minute),
			want: fencing, words: fencingWords("w"), again: -time.Minute,
		},
		"FencedWaits": {
			reason: "not a moment before", dispatch: newDispatch(fenced, said(v1alpha1.ReasonFencing, fencingWords("w"))), job: running,
			worker: lost, stop: stopsIn(time.Second), want: fencing, words: fencingWords("w"), again: time.Second,
		},
		"FencedEnds": {
			reason: "it must have stopped", dispatch: newDispatch(fenced, said(v1alpha1.ReasonFencing, fencingWords("w"))), job: running,
			worker: lost, stop: stopsIn(0), want: end, words: fencedWords("w"),
		},
		"FencedWithoutAgent": {
			reason: "nobody stops it", dispatch: newDispatch(fenced), job: running, worker: lost, stop: silent, want: hold, words: noAgentWords("w"),
		},
		"FencedAfterAgentWasUnknown": {
			reason: "a manager that has just begun may not know yet", dispatch: newDispatch(fenced, said(v1alpha1.ReasonHold, noAgentWords("w"))),
			job: running, worker: lost, stop: stopsIn(0), want: end, words: fencedWords("w"),
		},
		"FencedAndAnswered": {
			reason: "its API server may be down, and its agent with it", dispatch: newDispatch(fenced, said(v1alpha1.ReasonFencing, fencingWords("w"))),
			job: running, worker: lost, stop: agentStop{at: now.Add(-time.Minute)}, want: answered, words: answeredWords("w"),
		},
		"FencedAndUntried": {
			reason:   "a grace period can be over before anybody has tried to connect again, and an answer would be remembered",
			dispatch: newDispatch(fenced), job: running, worker: lost, stop: agentStop{untried: true, at: now.Add(-time.Minute)},
		},
		"FencedAndUntriedAgain": {
			reason: "a manager that has begun since has not tried yet, and the condition remembers", job: running, worker: lost,
			dispatch: newDispatch(fenced, said(v1alpha1.ReasonAddressAnswers, answeredWords("w"))), stop: agentStop{untried: true},
			want: answered, words: answeredWords("w"),
		},
		"FencedAndAnsweredBefore": {
			reason:   "a manager that has begun since does not know, and the condition does",
			dispatch: newDispatch(fenced, said(v1alpha1.ReasonAddressAnswers, answeredWords("w"))), job: running, worker: lost, stop: stopsIn(-time.Minute),
			want: answered, words: answeredWords("w"),
		},

		"PausedImmediate": {
			reason: "nothing moves", dispatch: newDispatch(policy(v1alpha1.FailoverImmediate)), job: running, worker: paused, want: pausing, words: pausingWords("w"),
		},
		"PausedFenced": {
			reason: "though it must have stopped", dispatch: newDispatch(fenced, said(v1alpha1.ReasonFencing, "")), job: running, worker: paused,
			stop: stopsIn(-time.Hour), want: pausing, words: pausingWords("w"),
		},
		"PausedAndAnswered": {
			reason:   "after the pause a manager that has begun since must know it",
			dispatch: newDispatch(fenced, said(v1alpha1.ReasonAddressAnswers, answeredWords("w"))), job: running, worker: paused, stop: stopsIn(-time.Hour),
			want: answered, words: answeredWords("w"),
		},
		"AnsweredInThePause": {
			reason: "so must it know an answer that came only then", dispatch: newDispatch(fenced, said(v1alpha1.ReasonFailoverPaused, pausingWords("w"))),
			job: running, worker: paused, stop: agentStop{at: now.Add(-time.Hour)}, want: answered, words: answeredWords("w"),
		},
		"PausedAndUntried": {
			reason: "nobody has seen an answer yet", dispatch: newDispatch(fenced), job: running, worker: paused, stop: agentStop{untried: true},
			want: pausing, words: pausingWords("w"),
		},
		"AnsweredAndUnusable": {
			reason:   "it may be lost again, silently, before it can be used",
			dispatch: newDispatch(fenced, said(v1alpha1.ReasonAddressAnswers, answeredWords("w"))), job: running, worker: unclear,
			ready: v1alpha1.ReasonCredentialsInvalid, stop: stopsIn(-time.Hour), want: answered, words: unusableWords("w", v1alpha1.ReasonCredentialsInvalid),
		},
		"AnsweredAndElsewhere": {
			reason:   "the name may lead to the former cluster again",
			dispatch: newDispatch(fenced, said(v1alpha1.ReasonAddressAnswers, answeredWords("w"))), job: running, worker: elsewhere,
			want: answered, words: elsewhereWords(newDispatch()),
		},
		"Forgotten": {
			reason: "whatever the failover is", dispatch: newDispatch(policy(v1alpha1.FailoverHold)), job: running, worker: forgotten, want: end, words: forgottenWords("w"),
		},
		"Gone": {
			reason: "nothing is known, so nothing is moved", dispatch: newDispatch(policy(v1alpha1.FailoverImmediate)), job: running, worker: gone,
			want: hold, words: goneWords(newDispatch()),
		},
		"Elsewhere": {
			reason: "nothing is known of the former cluster", dispatch: newDispatch(policy(v1alpha1.FailoverImmediate)), job: running, worker: elsewhere,
			want: hold, words: elsewhereWords(newDispatch()),
		},

		"Unauthorized": {
			reason: "no loss", dispatch: newDispatch(policy(v1alpha1.FailoverImmediate)), job: running, worker: unclear, ready: v1alpha1.ReasonCredentialsInvalid,
		},
		"UnauthorizedAfterLoss": {
			reason: "it is not true any more that it does not answer", dispatch: newDispatch(fenced, said(v1alpha1.ReasonFencing, fencingWords("w"))),
			job: running, worker: unclear, ready: v1alpha1.ReasonCredentialsInvalid, stop: stopsIn(-time.Hour),
			want: hold, words: unusableWords("w", v1alpha1.ReasonCredentialsInvalid),
		},
		"NoTrainJobs": {
			reason: "the worker says itself that the copy is not there", dispatch: newDispatch(policy(v1alpha1.FailoverImmediate)), job: running,
			worker: unclear, ready: v1alpha1.ReasonTrainJobAPIMissing, want: hold, words: noTrainJobsWords("w"),
		},
		"ConnectingAfterLoss": {
			reason: "that is for a moment", dispatch: newDispatch(fenced, said(v1alpha1.ReasonFencing, fencingWords("w"))), job: running,
			worker: unclear, ready: v1alpha1.ReasonConnecting, stop: stopsIn(-time.Hour),
		},
		"NotConfirmed": {
			reason: "so is that", dispatch: newDispatch(fenced, said(v1alpha1.ReasonFencing, fencingWords("w"))), job: running,
			worker: unclear, ready: v1alpha1.ReasonUnreachable, stop: stopsIn(-time.Hour),
		},

		"Finished": {reason: "it is over", dispatch: newDispatch(isFinished), job: newJob(complete), worker: forgotten},
		"Complete": {
			reason: "a job that has ended is not touched; its Dispatch waits for mirror", dispatch: newDispatch(policy(v1alpha1.FailoverImmediate)),
			job: newJob(complete), worker: lost,
		},
		"CompleteAndForgotten": {reason: "not even then", dispatch: newDispatch(), job: newJob(complete), worker: forgotten},
		"Refused":              {reason: "placement has its answer", dispatch: newDispatch(refused), job: running, worker: lost},
		"GivenUp":              {reason: "the Tombstone was not written any more", dispatch: newDispatch(givenUp), job: running, worker: lost, want: note},
		"GivenUpAndNoted":      {reason: "all is said", dispatch: newDispatch(givenUp), job: running, worker: lost, hasTombstone: true},
		"GivenUpAndBack":       {reason: "garbagecollection has the Dispatch to judge by", dispatch: newDispatch(givenUp), job: running, worker: notLost},

		"JobGone":  {reason: "without its job the Dispatch goes", dispatch: newDispatch(), worker: lost, want: discard},
		"JobGoing": {reason: "the job may wait for the Dispatch", dispatch: newDispatch(), job: newJob(going), worker: paused, want: discard},
		"AnotherJob": {
			reason: "it is not its job", dispatch: newDispatch(), job: newJob(another), worker: unclear, want: discard,
		},
		"DeletionWaits": {
			reason: "counted from when both the worker was away and the job deleted", dispatch: newDispatch(deleted(4 * time.Minute)), worker: lost,
			want: pending, words: pendingWords(newDispatch()), again: 11 * time.Minute,
		},
		"DeletedBeforeLoss": {
			reason: "the other way round", dispatch: newDispatch(deleted(3 * time.Hour)), worker: lost, want: release,
		},
		"DeletionWaitsInAPause": {
			reason: "a pause is about moves", dispatch: newDispatch(deleted(4 * time.Minute)), worker: paused,
			want: pending, words: pendingWords(newDispatch()), again: 11 * time.Minute,
		},
		"DeletionReleased":        {reason: "long enough", dispatch: newDispatch(deleted(15 * time.Minute)), worker: lost, want: release},
		"DeletionOfUnusable":      {reason: "whatever the reason is", dispatch: newDispatch(deleted(15 * time.Minute)), worker: unclear, want: release},
		"DeletionOfForgotten":     {reason: "at once", dispatch: newDispatch(deleted(0)), worker: forgotten, want: release},
		"DeletionOfGone":          {reason: "it does not wait for ever either", dispatch: newDispatch(deleted(15 * time.Minute)), worker: gone, want: release},
		"DeletionOfGoneWaits":     {reason: "it may run there", dispatch: newDispatch(deleted(0)), worker: gone, want: pending, words: pendingGoneWords(newDispatch()), again: 15 * time.Minute},
		"DeletionOfGoneFinished":  {reason: "the worker has left, and nothing runs there", dispatch: newDispatch(isFinished, deleted(0)), worker: gone, want: release},
		"DeletionOfEnded":         {reason: "there is nothing to wait for", dispatch: newDispatch(refused, deleted(0)), worker: lost, want: release},
		"FinishedDeleted":         {reason: "a finished copy is left there too", dispatch: newDispatch(isFinished, deleted(time.Hour)), worker: lost, want: release},
		"DeletedByHandWhenOver":   {reason: "it does not run again", dispatch: newDispatch(deleted(time.Hour)), job: newJob(complete), worker: lost, want: release},
		"AlreadyReleased":         {reason: "somebody else keeps it", dispatch: newDispatch(deleted(time.Hour), unguarded), worker: lost},
		"DeletedByHand":           {reason: "it would be placed anew, and may still run", dispatch: newDispatch(deleted(24 * time.Hour)), job: running, worker: lost, want: hold, words: holdWords(newDispatch())},
		"DeletedByHandGone":       {reason: "all the more", dispatch: newDispatch(deleted(24 * time.Hour)), job: running, worker: gone, want: hold, words: goneWords(newDispatch())},
		"DeletedByHandPaused":     {reason: "so is that", dispatch: newDispatch(policy(v1alpha1.FailoverImmediate), deleted(24*time.Hour)), job: running, worker: paused, want: pausing, words: pausingWords("w")},
		"DeletedByHandFencing":    {reason: "until it must have stopped", dispatch: newDispatch(fenced, deleted(24*time.Hour)), job: running, worker: lost, stop: stopsIn(time.Minute), want: fencing, words: fencingWords("w"), again: time.Minute},
		"DeletedByHandFenced":     {reason: "it must have stopped", dispatch: newDispatch(fenced, deleted(0), said(v1alpha1.ReasonFencing, "")), job: running, worker: lost, stop: stopsIn(0), want: release},
		"DeletedByHandForgotten":  {reason: "nothing runs there", dispatch: newDispatch(deleted(0)), job: running, worker: forgotten, want: release},
		"DeletedByHandAndGivenUp": {reason: "its attempt has ended", dispatch: newDispatch(givenUp, deleted(0)), job: running, worker: lost, want: release},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobObservation{
				dispatch: test.dispatch, job: test.job, worker: test.worker, since: now.Add(-time.Hour), reason: test.ready, stop: test.stop,
				hasTombstone: test.hasTombstone, deletionGrace: 15 * time.Minute,
			}
			if test.worker == gone || test.worker == elsewhere {
				f.since = time.Time{}
			}
			got := f.decide(now)
			if got.do != test.want {
				t.Fatalf("decided on %s, want %s: %s", got.do, test.want, test.reason)
			}
			if test.want != release && got.words != test.words {
				t.Errorf("words are %q, want %q", got.words, test.words)
			}
			if test.again == 0 && !got.again.IsZero() && test.want != fencing || test.again != 0 && !got.again.Equal(now.Add(test.again)) {
				t.Errorf("looks again at %s, want in %s: %s", got.again, test.again, test.reason)
			}
		})
	}
}

// A decision that the Dispatch already says is not written again.
func TestIsSaid(t *testing.T) {
	holding := decision{do: hold, words: "words"}
	for name, test := range map[string]struct {
		dispatch *v1alpha1.Dispatch
		decided  decision
		want     bool
	}{
		"Said":         {dispatch: newDispatch(said(v1alpha1.ReasonHold, "words")), decided: holding, want: true},
		"Unsaid":       {dispatch: newDispatch(), decided: holding},
		"OtherReason":  {dispatch: newDispatch(said(v1alpha1.ReasonFencing, "words")), decided: holding},
		"OtherWords":   {dispatch: newDispatch(said(v1alpha1.ReasonHold, "others")), decided: holding},
		"OtherPhase":   {dispatch: newDispatch(with(v1alpha1.DispatchWorkerLost, metav1.ConditionTrue, v1alpha1.ReasonHold, "words")), decided: holding},
		"OfFinished":   {dispatch: newDispatch(isFinished, with(v1alpha1.DispatchWorkerLost, metav1.ConditionTrue, v1alpha1.ReasonHold, "words")), decided: holding, want: true},
		"NotOnlyWords": {dispatch: newDispatch(said(v1alpha1.ReasonHold, "words")), decided: decision{do: end, words: "words"}},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobObservation{dispatch: test.dispatch}
			check.Equal(t, test.want, f.isReported(test.decided), "said")
		})
	}
}

// A message that changes with every reconcile would be written with every reconcile.
func TestWords(t *testing.T) {
	long := newDispatch()
	long.Spec.Cluster = v1alpha1.ClusterName(strings.Repeat("w", 253))
	long.Spec.ClusterID = "01234567-89ab-cdef-0123-456789abcdef"
	claimed := long.DeepCopy()
	claimed.Spec.Checkpoint = &v1alpha1.Checkpoint{URI: v1alpha1.CheckpointPVC + strings.Repeat("c", 253)}
	for name, words := range map[string]string{
		"hold": holdWords(long), "claim": holdWords(claimed), "answered": answeredWords(long.Spec.Cluster), "noAgent": noAgentWords(long.Spec.Cluster),
		"fencing": fencingWords(long.Spec.Cluster), "pausing": pausingWords(long.Spec.Cluster), "gone": goneWords(long),
		"elsewhere": elsewhereWords(long), "unusable": unusableWords(long.Spec.Cluster, v1alpha1.ReasonCapacityReportMissing),
		"pending": pendingWords(long), "pendingGone": pendingGoneWords(long), "forgotten": forgottenWords(long.Spec.Cluster), "immediate": immediateWords(long.Spec.Cluster),
		"fenced": fencedWords(long.Spec.Cluster),
	} {
		if len(words) > 1000 {
			t.Errorf("%s: %d bytes are more than an Event takes with what stands before them: %s", name, len(words), words)
		}
	}
}
