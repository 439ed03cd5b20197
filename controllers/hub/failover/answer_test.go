// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package failover

import (
	"testing"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

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
