// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package credentials

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

var issued = time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)

const day = 24 * time.Hour

// TestEndOf checks that the life of a token is counted from the hub's request, whatever the worker's clock says.
func TestEndOf(t *testing.T) {
	cases := map[string]struct {
		reason string
		ahead  time.Duration
		want   time.Duration
	}{
		"Same":   {"Both clocks agree.", 0, day},
		"Ahead":  {"The token ends sooner than the hub's clock shows its end.", 6 * time.Hour, day},
		"Behind": {"The hub refuses what has expired by its own clock.", -6 * time.Hour, 18 * time.Hour},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			begin := issued.Add(tc.ahead)
			check.Equal(t, tc.want, endOf(begin, begin.Add(day), issued).Sub(issued),
				"%s: the token ends after", tc.reason)
		})
	}
}

func TestDecide(t *testing.T) {
	fault := errors.New("the token is no JWT")
	cases := map[string]struct {
		why    string
		seen   observation
		renew  bool
		reason string
		// again is after how long it is looked at again, from issued on. Negative: some time later than now. 0: never.
		again time.Duration
	}{
		"Endless":         {"a token that says no end has none, as far as we know", observation{managed: true}, false, "", 0},
		"Fresh":           {"there is nothing to do yet", observation{managed: true, issued: issued, expires: issued.Add(7 * day), now: issued.Add(day)}, false, "", -1},
		"JustBefore":      {"40 % are the earliest time", observation{managed: true, issued: issued, expires: issued.Add(10 * day), now: issued.Add(4*day - time.Second)}, false, "", -1},
		"Due":             {"half of its life is over", observation{managed: true, issued: issued, expires: issued.Add(10 * day), now: issued.Add(5 * day)}, true, "", -1},
		"Short":           {"the shortest life that an API server gives", observation{managed: true, issued: issued, expires: issued.Add(10 * time.Minute), now: issued.Add(5 * time.Minute)}, true, "", -1},
		"Admins":          {"nobody renews it, but it lasts", observation{issued: issued, expires: issued.Add(365 * day), now: issued.Add(300 * day)}, false, "", 358 * day},
		"AdminsSoon":      {"an admin has a week to act", observation{issued: issued, expires: issued.Add(365 * day), now: issued.Add(358 * day)}, false, v1alpha1.ReasonExpiresSoon, 0},
		"AdminsShort":     {"a token of a day is not reported all day", observation{issued: issued, expires: issued.Add(day), now: issued.Add(12 * time.Hour)}, false, "", day * 4 / 5},
		"AdminsShortSoon": {"but when a fifth is left", observation{issued: issued, expires: issued.Add(day), now: issued.Add(20 * time.Hour)}, false, v1alpha1.ReasonExpiresSoon, 0},
		"UnknownBegin":    {"not all credentials say when they began", observation{expires: issued.Add(30 * day), now: issued.Add(25 * day)}, false, v1alpha1.ReasonExpiresSoon, 0},
		"Unrenewable":     {"the Secret asks for what cannot be done", observation{managed: true, fault: fault, issued: issued, expires: issued.Add(day), now: issued.Add(20 * time.Hour)}, false, v1alpha1.ReasonRenewalFailed, 0},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			tc.seen.worker = "east"
			got := tc.seen.decide()
			if got.renew != tc.renew || got.reason != tc.reason {
				t.Errorf("%s: renew %t with reason %q, want %t with %q", tc.why, got.renew, got.reason, tc.renew, tc.reason)
			}
			if (got.message == "") != (got.reason == "") {
				t.Errorf("%s: reason %q with message %q", tc.why, got.reason, got.message)
			}
			switch {
			case tc.again == 0 && !got.again.IsZero(), tc.again > 0 && !got.again.Equal(issued.Add(tc.again)),
				tc.again < 0 && !tc.renew && !got.again.After(tc.seen.now):
				t.Errorf("%s: looks again at %s", tc.why, got.again)
			}
		})
	}
}

// TestRenewalTime checks that tokens are renewed in time, always at the same time, and not all together.
func TestRenewalTime(t *testing.T) {
	const life = 10 * day
	first, last := life, time.Duration(0)
	for i := range 200 {
		o := observation{worker: v1alpha1.ClusterName(fmt.Sprintf("w%d", i)), issued: issued, expires: issued.Add(life)}
		after := o.renewalTime().Sub(issued)
		if again := o.renewalTime().Sub(issued); again != after {
			t.Fatalf("worker %s is renewed after %s, and after %s", o.worker, after, again)
		}
		first, last = min(first, after), max(last, after)
	}
	if first < 4*day || last > 5*day || last-first < 20*time.Hour {
		t.Errorf("the tokens of 200 workers are renewed after %s to %s, want all of 4 to 5 days", first, last)
	}
}
