// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"net/http"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"

	"github.com/trainyard/trainyard/test/check"
)

// sink is the next transport. It records when requests arrive, relative to began.
type sink struct {
	began time.Time
	mu    sync.Mutex
	times []time.Duration // under mu
}

func (s *sink) RoundTrip(*http.Request) (*http.Response, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.times = append(s.times, time.Since(s.began))
	return &http.Response{StatusCode: http.StatusCreated}, nil
}

// sent returns how many requests have arrived, and when the last one arrived.
func (s *sink) sent() (count int, last time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.times), s.times[len(s.times)-1]
}

// paced returns a transport with the manager's limits.
func paced() (*pacedEvents, *sink) {
	to := &sink{began: time.Now()}
	return &pacedEvents{next: to, limiter: rate.NewLimiter(eventsPerSecond, eventsAtOnce)}, to
}

func request(ctx context.Context, t *testing.T, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://hub/prefix"+path, http.NoBody)
	check.Must(t, err)
	return r
}

const eventsPath = "/apis/events.k8s.io/v1/namespaces/default/events"

func TestEventsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to := paced()
		const count = 200
		for range count {
			go func() { _, _ = p.RoundTrip(request(t.Context(), t, eventsPath)) }()
		}
		synctest.Wait()
		if got, _ := to.sent(); got != eventsAtOnce {
			t.Errorf("%d Events were sent at once, want %d", got, eventsAtOnce)
		}
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		if got, _ := to.sent(); got != eventsAtOnce+eventsPerSecond {
			t.Errorf("%d Events were sent within a second, want %d", got, eventsAtOnce+eventsPerSecond)
		}
		time.Sleep(maxEventDelay)
		synctest.Wait()
		if got, _ := to.sent(); got != count {
			t.Errorf("%d of %d Events were sent within %s", got, count, maxEventDelay)
		}
		time.Sleep(time.Duration(eventsAtOnce) * time.Second / eventsPerSecond)
		before := time.Now()
		if _, err := p.RoundTrip(request(t.Context(), t, eventsPath)); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(before); waited > 0 {
			t.Errorf("an Event after the flood waits for %s, for those that had gone too late", waited)
		}
	})
}

func TestNothingButEventsIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to := paced()
		for range 10 * eventsAtOnce {
			if _, err := p.RoundTrip(request(t.Context(), t, "/apis/trainyard.dev/v1alpha1/namespaces/default/dispatches/events")); err != nil {
				t.Fatal(err)
			}
		}
		if _, last := to.sent(); last != 0 {
			t.Errorf("a request waited for %s", last)
		}
	})
}

func TestEventsDoNotOutliveTheirRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, to := paced()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var err error
		for range eventsAtOnce + 1 {
			_, err = p.RoundTrip(request(ctx, t, eventsPath))
		}
		if got, _ := to.sent(); !errors.Is(err, context.DeadlineExceeded) || got != eventsAtOnce {
			t.Errorf("%d requests were sent, and the last returned %v", got, err)
		}
	})
}
