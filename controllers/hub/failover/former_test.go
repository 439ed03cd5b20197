// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"testing"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// These messages are from the release before ReasonAddressAnswers. The API server of an upgraded hub still has them.
const (
	formerAnswerOfW = `worker "w" does not answer as it should, but something at its address does: its API server may ` +
		`be down, without which its agent cannot stop the job, so the job stays until the worker answers again; if ` +
		`nothing of it runs any more, an admin can have its jobs placed anew: kubectl trainyard forget w`
	formerNoAgentOfW = `worker "w" does not answer, and had no agent that stops the job when it was last seen: the job ` +
		`stays until the worker answers again; if nothing of it runs any more, an admin can have its jobs placed anew: ` +
		`kubectl trainyard forget w`
)

// The reason says whether something has answered during the outage. Messages may change from release to release. Only
// the message of the release that had no such reason counts, exactly as that release wrote it.
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
		"AnotherReason": {
			reason: "the reason counts", said: said(v1alpha1.ReasonFencing, answeredWords("w")), want: end,
		},
		"Former": {
			reason: "an upgrade forgets no answer", said: said(v1alpha1.ReasonHold, formerAnswerOfW), want: answered,
		},
		"FormerNoAgent": {
			reason: "an upgrade holds no job for ever", said: said(v1alpha1.ReasonHold, formerNoAgentOfW), want: end,
		},
	} {
		t.Run(name, func(t *testing.T) {
			f := jobObservation{
				dispatch: newDispatch(policy(v1alpha1.FailoverFenced), test.said), job: newJob(nil), worker: lost,
				fence: fence{silent: true, stoppedAt: now.Add(-time.Minute)},
			}
			decided := f.decide(now)
			if decided.do != test.want {
				t.Fatalf("decided on %s, want %s: %s", decided.do, test.want, test.reason)
			}
			if decided.do == answered && decided.do.reason() != v1alpha1.ReasonAddressAnswers {
				t.Errorf("it is written with reason %s", decided.do.reason())
			}
			f.fence = fence{untried: true}
			if decided := f.decide(now); test.want == answered && decided.do != answered {
				t.Errorf("before the worker was tried again it is %s, want %s: %s", decided.do, test.want, test.reason)
			}
		})
	}
}

// The first decision about a Dispatch of the former release writes the reason. After that the message does not count.
func TestFormerAnswerGetsItsReason(t *testing.T) {
	f := jobObservation{
		dispatch: newDispatch(policy(v1alpha1.FailoverFenced), said(v1alpha1.ReasonHold, formerAnswerOfW)),
		job:      newJob(nil), worker: lost,
		fence: fence{silent: true, stoppedAt: now.Add(-time.Minute)},
	}
	decided := f.decide(now)
	if f.isSaid(decided) {
		t.Error("the reason is not written")
	}
	said(decided.do.reason(), "in the words of a later release")(f.dispatch)
	if decided := f.decide(now); decided.do != answered {
		t.Errorf("then it is %s, want %s", decided.do, answered)
	}
}
