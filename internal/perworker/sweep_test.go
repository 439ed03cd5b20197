// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/test/check"
)

// link is a connection whose state the test sets.
type link struct {
	mu     sync.Mutex
	status remote.Status
}

func (l *link) Cache() cache.Cache { return nil }

func (l *link) Status() remote.Status {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.status
}

func (l *link) set(state remote.State, since time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.status = remote.Status{State: state, Since: since}
}

// TestSweptForOneTimeOfConnection checks that a sweep counts only for its own connection. A new connection needs
// another.
func TestSweptForOneTimeOfConnection(t *testing.T) {
	first, second := time.Unix(100, 0), time.Unix(200, 0)
	connection := &link{}
	connection.set(remote.Connected, first)
	finished := 0
	w := &sweeper[*link]{
		connection: connection, clock: clocktesting.NewFakeClock(first), log: logr.Discard(),
		sweep:  func(context.Context) (bool, error) { return false, nil },
		finish: func(context.Context) error { finished++; return nil },
	}
	if w.over() {
		t.Error("swept before any sweep")
	}
	w.untilDone(t.Context())
	if !w.over() || finished != 1 {
		t.Errorf("after the sweep: over %t, keys brought %d times", w.over(), finished)
	}
	connection.set(remote.Unreachable, second)
	if w.over() {
		t.Error("swept while the worker is unreachable")
	}
	w.untilDone(t.Context())
	check.Equal(t, 1, finished, "an unreachable worker was swept")
	connection.set(remote.Connected, second)
	if w.over() {
		t.Error("swept in a time of connection that has just begun")
	}
	w.untilDone(t.Context())
	if !w.over() || finished != 2 {
		t.Errorf("after the second sweep: over %t, keys brought %d times", w.over(), finished)
	}
}

// TestSweepIsTriedAgain checks that a failed sweep is retried and logged once, and that keys are enqueued only after a
// sweep. A worker that refuses the sweep gets its keys once before, so that its jobs can run elsewhere.
func TestSweepIsTriedAgain(t *testing.T) {
	for name, test := range map[string]struct {
		refused bool
		want    []string
	}{
		"Fails":   {want: []string{"sweep", "sweep", "sweep", "sweep", "finish"}},
		"Refuses": {refused: true, want: []string{"sweep", "finish", "sweep", "sweep", "sweep", "finish"}},
	} {
		t.Run(name, func(t *testing.T) { testSweepIsTriedAgain(t, test.refused, test.want) })
	}
}

func testSweepIsTriedAgain(t *testing.T, refused bool, want []string) {
	t.Helper()
	began := time.Unix(100, 0)
	connection := &link{}
	connection.set(remote.Connected, began)
	clock := clocktesting.NewFakeClock(began)
	var lines []string
	var calls []string
	sweeps := 0
	w := &sweeper[*link]{
		connection: connection, clock: clock,
		log: funcr.New(func(_, args string) { lines = append(lines, args) }, funcr.Options{}),
	}
	w.sweep = func(context.Context) (bool, error) {
		calls = append(calls, "sweep")
		sweeps++
		if w.over() {
			t.Error("swept before the sweep has worked")
		}
		if sweeps < 4 {
			return refused, errors.New("refused")
		}
		return false, nil
	}
	w.finish = func(context.Context) error { calls = append(calls, "finish"); return nil }
	done := make(chan struct{})
	go func() {
		defer close(done)
		w.untilDone(t.Context())
	}()
	for waiting := true; waiting; {
		select {
		case <-done:
			waiting = false
		case <-time.After(time.Millisecond):
			if clock.HasWaiters() {
				clock.Step(maxBackoff)
			}
		case <-time.After(60 * time.Second):
			t.Fatal("the sweep does not end")
		}
	}
	check.Diff(t, want, calls, "calls")
	if len(lines) != 1 {
		t.Errorf("%d lines in the log, want 1: %v", len(lines), lines)
	}
}
