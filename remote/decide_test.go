// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"errors"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/trainyard/trainyard/test/check"
)

func TestDecide(t *testing.T) {
	start := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	now := start.Add(time.Minute)
	opts := &Options{FailureThreshold: 3, ProbeInterval: 10 * time.Second}
	served := apis{kubernetes: "v1.36.3", trainJob: true, jobSet: true}
	well := observation{answer: answered, id: "a", pinned: "a", apis: served, synced: true}
	with := func(change func(*observation)) observation {
		f := well
		change(&f)
		return f
	}
	failing := func(failures int, first time.Time) observation {
		return with(func(f *observation) {
			f.answer, f.reason, f.failures, f.firstFailure = none, "the server does not answer in time", failures, first
		})
	}

	cases := map[string]struct {
		reason      string
		observation observation
		before      State
		want        decision
	}{
		"Well": {
			reason: "Everything is as it should be.", observation: well, before: Connecting,
			want: decision{state: Connected, message: "connected", since: now, gate: open},
		},
		"StillWell": {
			reason: "The state keeps its start.", observation: well, before: Connected,
			want: decision{state: Connected, message: "connected", since: start, gate: open},
		},
		"Recovered": {
			reason: "One success is enough.", observation: well, before: Unreachable,
			want: decision{state: Connected, message: "connected", since: now, gate: open},
		},
		"FirstFailure": {
			reason:      "One failed probe proves nothing about a worker that was there.",
			observation: failing(1, now), before: Connected, want: decision{keep: true},
		},
		"QuickFailures": {
			reason:      "Failures that follow each other quickly are not counted against the threshold alone.",
			observation: failing(9, now.Add(-19*time.Second)), before: Connected, want: decision{keep: true},
		},
		"Threshold": {
			reason:      "Unreachable since the first failure, not since the last.",
			observation: failing(3, now.Add(-20*time.Second)), before: Connected,
			want: decision{state: Unreachable, message: "the server does not answer in time", since: now.Add(-20 * time.Second)},
		},
		"NeverReached": {
			reason: "A first connection that fails is Unreachable at once.", observation: failing(1, now), before: Connecting,
			want: decision{state: Unreachable, message: "the server does not answer in time", since: now},
		},
		"CredentialsThenSilence": {
			reason:      "A worker with bad credentials does not become Unreachable by one failure either.",
			observation: failing(1, now), before: CredentialsInvalid, want: decision{keep: true},
		},
		"Unauthorized": {
			reason: "401 is never Unreachable, however often.",
			observation: with(func(f *observation) {
				f.answer, f.reason, f.failures, f.firstFailure = unauthorized, messageUnauthorized, 100, start
			}),
			before: Connected, want: decision{state: CredentialsInvalid, message: messageUnauthorized, since: now},
		},
		"Forbidden": {
			reason:      "403 to the probe is about the credentials.",
			observation: with(func(f *observation) { f.answer, f.reason, f.failures = forbidden, "no", 1 }),
			before:      Connecting, want: decision{state: CredentialsInvalid, message: "no", since: now},
		},
		"Unusable": {
			reason: "Nothing can be sent.", observation: observation{unusable: errors.New("bad CA")}, before: Connecting,
			want: decision{state: CredentialsInvalid, message: "bad CA", since: now},
		},
		"Unpinned": {
			reason:      "The caller records the cluster ID before anything is written.",
			observation: with(func(f *observation) { f.pinned = "" }), before: Connecting,
			want: decision{state: Connecting, message: "the worker answers as cluster a and waits to be pinned", since: start},
		},
		"Stranger": {
			reason: "Whatever else is well.", observation: with(func(f *observation) { f.id = "b" }), before: Connected,
			want: decision{
				state: IdentityChanged, since: now,
				message: "the credentials lead to cluster b, but the worker was registered as cluster a",
			},
		},
		"APIsUnknown": {
			reason:      "Not asked yet, or not answered.",
			observation: with(func(f *observation) { f.apis, f.apisErr = apis{}, errors.New("ask for its version: EOF") }), before: Connecting,
			want: decision{state: Connecting, message: "ask for its version: EOF", since: start},
		},
		"APIsNotAskedAgain": {
			reason:      "What is known of them is good enough while the worker answers the probe.",
			observation: with(func(f *observation) { f.apisErr = errors.New("EOF") }), before: Connected,
			want: decision{state: Connected, message: "connected", since: start, gate: open},
		},
		"NoTrainJobs": {
			reason:      "TrainJob before JobSet, when both are missing.",
			observation: observation{answer: answered, id: "a", pinned: "a", apis: apis{kubernetes: "v1.36.3"}}, before: Connecting,
			want: decision{
				state: TrainJobAPIMissing, since: now,
				message: "trainer.kubeflow.org/v1alpha1 trainjobs are not served: install the CRDs of Kubeflow Trainer",
			},
		},
		"NoMoreJobSets": {
			reason:      "The hub must be able to take the jobs of the worker back. Status.JobSetMissing tells it.",
			observation: with(func(f *observation) { f.apis.jobSet = false }), before: Connected,
			want: decision{state: Connected, message: "connected", since: start, gate: open},
		},
		"Denied": {
			reason: "Sorted, for a message that stays the same; the caches go on trying.",
			observation: with(func(f *observation) {
				f.denied = []call{{verb: "watch", resource: "pods"}, {verb: "list", resource: "nodes"}}
			}),
			before: Connected,
			want: decision{
				state: CredentialsInvalid, since: now, gate: cachesOnly,
				message: `the worker forbids "list nodes", "watch pods": grant it to the hub's user in all namespaces`,
			},
		},
		"Stalled": {
			reason:      "A worker that lives but keeps its watches from us shows what is not true any more. It is not lost, though.",
			observation: with(func(f *observation) { f.stalled = []call{{verb: "watch", resource: "trainjobs"}} }), before: Connected,
			want: decision{
				state: Connecting, since: now, gate: cachesOnly,
				message: `the worker has not answered "watch trainjobs" for too long, and what the hub knows of it is out of date`,
			},
		},
		"Syncing": {
			reason:      "Not Connected before the caches are filled.",
			observation: with(func(f *observation) { f.synced, f.pending = false, []string{"pods"} }), before: Connecting,
			want: decision{state: Connecting, message: "the caches are being filled", since: start, gate: cachesOnly},
		},
		"SyncingForTooLong": {
			reason:      "The message says what is missing.",
			observation: with(func(f *observation) { f.synced, f.overdue, f.pending = false, true, []string{"nodes", "pods"} }), before: Connecting,
			want: decision{
				state: Connecting, since: start, gate: cachesOnly,
				message: "the worker has not answered the first list of nodes, pods for too long",
			},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			got := decide(tc.observation, Status{State: tc.before, Since: start}, now, opts)
			if tc.want.keep {
				got = decision{keep: got.keep}
			}
			check.Diff(t, tc.want, got, tc.reason, cmp.AllowUnexported(decision{}))
		})
	}
}

// TestRecord checks that failures are counted in a row, and that another kind of failure restarts the count.
func TestRecord(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	f := observation{}
	f.record("", none, errors.New("x"), now)
	f.record("", none, errors.New("y"), now.Add(time.Second))
	if f.failures != 2 || !f.firstFailure.Equal(now) || f.reason != "y" {
		t.Errorf("after two failures: %+v", f)
	}
	f.record("", unauthorized, errors.New("401"), now.Add(2*time.Second))
	if f.failures != 1 || !f.firstFailure.Equal(now.Add(2*time.Second)) {
		t.Errorf("after a 401: %+v", f)
	}
	f.record("a", answered, nil, now.Add(3*time.Second))
	if f.failures != 0 || f.id != "a" || !f.lastSeen.Equal(now.Add(3*time.Second)) {
		t.Errorf("after an answer: %+v", f)
	}
}

func TestState(t *testing.T) {
	names := map[string]bool{}
	for state := range stateCount {
		names[state.String()] = true
	}
	if len(names) != int(stateCount) || State(99).String() != "State(99)" {
		t.Errorf("names of states: %v", names)
	}
}
