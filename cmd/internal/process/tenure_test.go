// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package process

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	clocktesting "k8s.io/utils/clock/testing"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/trainyard/trainyard/test/check"
)

// register is a lease with answers that a test sets.
type register struct {
	resourcelock.Interface
	answer func() error
}

func (r *register) Identity() string { return "me" }

func (r *register) Create(context.Context, resourcelock.LeaderElectionRecord) error {
	return r.answer()
}

func (r *register) Update(context.Context, resourcelock.LeaderElectionRecord) error {
	return r.answer()
}

// TestTenure has a renew deadline of 10 s. Each case begins with a lease that was created at 0 s.
func TestTenure(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "manager", nil)
	cases := map[string]struct {
		reason string
		// At renewed, the process sends a renewal, or a release if holder is "". took is the answer's delay. 0: none.
		holder        string
		renewed, took time.Duration
		err           error
		at            time.Duration
		want          bool
	}{
		"Fresh":   {reason: "Others wait for longer.", at: 9 * time.Second, want: true},
		"Paused":  {reason: "The process was stopped. The election has not noticed yet.", at: 10 * time.Second},
		"Renewed": {reason: "It counts anew.", holder: "me", renewed: 8 * time.Second, at: 17 * time.Second, want: true},
		"SlowAnswer": {
			reason: "It counts from when the renewal was sent, not from when that was confirmed.",
			holder: "me", renewed: 8 * time.Second, took: 5 * time.Second, at: 18 * time.Second,
		},
		"NoAnswer": {
			reason: "Whether it arrived is not known, and the one before counts.",
			holder: "me", renewed: 8 * time.Second, err: errors.New("no answer"), at: 9 * time.Second, want: true,
		},
		"NoAnswerForLong": {
			reason: "The one before does not count any more.",
			holder: "me", renewed: 8 * time.Second, err: errors.New("no answer"), at: 10 * time.Second,
		},
		"Conflict": {
			reason: "Somebody else has written, whatever the times are.",
			holder: "me", renewed: time.Second, err: conflict, at: time.Second,
		},
		"Released":           {reason: "The next one may lead at once.", renewed: time.Second, at: time.Second},
		"ReleasedUnanswered": {reason: "It may have arrived.", renewed: time.Second, err: errors.New("no answer"), at: time.Second},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			start := time.Now()
			clock := clocktesting.NewFakePassiveClock(start)
			lock := &register{answer: func() error { return nil }}
			tenure := newTenure(lock, 10*time.Second, clock)
			if tenure.Certain() {
				t.Error("it leads before there is a lease")
			}
			check.Must(t, tenure.Create(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me"}))
			if tc.renewed > 0 {
				clock.SetTime(start.Add(tc.renewed))
				lock.answer = func() error {
					clock.SetTime(start.Add(tc.renewed + tc.took))
					return tc.err
				}
				err := tenure.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: tc.holder})
				if !errors.Is(err, tc.err) {
					t.Errorf("the answer was lost: %v", err)
				}
			}
			clock.SetTime(start.Add(tc.at))
			check.Equal(t, tc.want, tenure.Certain(), "%s", tc.reason)
		})
	}
}

// TestTermEnds checks that a process never leads again after another process has held the lease, even if the lease is
// free: its caches lack the other process's writes. It may take its lease again if nobody has held it in the meantime.
func TestTermEnds(t *testing.T) {
	conflict := apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "manager", nil)
	for name, tc := range map[string]struct {
		transitions int
		leads       bool
	}{
		"Nobody":      {transitions: 3, leads: true},
		"Another":     {transitions: 4},
		"OthersLease": {transitions: 0},
	} {
		t.Run(name, func(t *testing.T) {
			clock := clocktesting.NewFakePassiveClock(time.Now())
			lock := &register{answer: func() error { return nil }}
			tenure := newTenure(lock, 10*time.Second, clock)
			renew := func(transitions int) error {
				return tenure.Update(t.Context(), resourcelock.LeaderElectionRecord{HolderIdentity: "me", LeaderTransitions: transitions})
			}
			if err := renew(3); err != nil || !tenure.Certain() {
				t.Fatalf("the first term: %v", err)
			}
			lock.answer = func() error { return conflict }
			if err := renew(3); err == nil || tenure.Certain() {
				t.Fatal("it leads after a conflict")
			}
			written := false
			lock.answer = func() error {
				written = true
				return nil
			}
			err := renew(tc.transitions)
			if tenure.Certain() != tc.leads || written != tc.leads || (err == nil) != tc.leads {
				t.Errorf("it leads: %t, the lease was written: %t, error %v; want %t", tenure.Certain(), written, err, tc.leads)
			}
		})
	}
}

// TestElect checks that a process leads only with the lease, or without an election. The timeout of the lease's
// requests must not apply to other requests, because it would end their watches.
func TestElect(t *testing.T) {
	for elect, leads := range map[bool]bool{true: false, false: true} {
		o := DefaultOptions("lease", "namespace")
		o.LeaderElect = elect
		config := &rest.Config{Host: "https://nowhere.example"}
		check.Must(t, o.Elect(config))
		if config.Timeout != 0 || config.UserAgent != "" {
			t.Errorf("election %t: other clients have the timeout %v and the user agent %q, want none", elect, config.Timeout, config.UserAgent)
		}
		check.Equal(t, leads, o.Leads(), "election %t: leads", elect)
		var manager ctrl.Options
		o.Apply(&manager)
		if hasLock := manager.LeaderElectionResourceLockInterface != nil; hasLock != elect {
			t.Errorf("election %t: the manager's lock is this one: %t", elect, hasLock)
		}
	}
}
