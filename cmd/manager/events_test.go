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
)

type transport func(*http.Request) (*http.Response, error)

func (t transport) RoundTrip(request *http.Request) (*http.Response, error) { return t(request) }

// paced is a transport as the manager's, and when its requests went on, from the first call on.
func paced() (p *pacedEvents, sent *[]time.Duration) {
	began := time.Now()
	sent = &[]time.Duration{}
	var mu sync.Mutex
	next := transport(func(*http.Request) (*http.Response, error) {
		mu.Lock()
		defer mu.Unlock()
		*sent = append(*sent, time.Since(began))
		return &http.Response{StatusCode: http.StatusCreated}, nil
	})
	return &pacedEvents{next: next, limiter: rate.NewLimiter(eventsPerSecond, eventsAtOnce)}, sent
}

func request(t *testing.T, ctx context.Context, path string) *http.Request {
	t.Helper()
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, "https://hub/prefix"+path, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

const eventsPath = "/apis/events.k8s.io/v1/namespaces/default/events"

func TestEventsArePaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, sent := paced()
		const count = 200
		for range count {
			go func() { _, _ = p.RoundTrip(request(t, t.Context(), eventsPath)) }()
		}
		synctest.Wait()
		if got := len(*sent); got != eventsAtOnce {
			t.Errorf("%d Events were sent at once, want %d", got, eventsAtOnce)
		}
		time.Sleep(time.Second + time.Millisecond)
		synctest.Wait()
		if got := len(*sent); got != eventsAtOnce+eventsPerSecond {
			t.Errorf("%d Events were sent within a second, want %d", got, eventsAtOnce+eventsPerSecond)
		}
		time.Sleep(maxEventDelay)
		synctest.Wait()
		if got := len(*sent); got != count {
			t.Errorf("%d of %d Events were sent within %s", got, count, maxEventDelay)
		}
		time.Sleep(time.Duration(eventsAtOnce) * time.Second / eventsPerSecond)
		if _, err := p.RoundTrip(request(t, t.Context(), eventsPath)); err != nil {
			t.Fatal(err)
		}
		if got := len(*sent); got != count+1 {
			t.Errorf("an Event after the flood waits for those that had gone too late")
		}
	})
}

func TestNothingButEventsIsPaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, sent := paced()
		for range 10 * eventsAtOnce {
			if _, err := p.RoundTrip(request(t, t.Context(), "/apis/trainyard.dev/v1alpha1/namespaces/default/dispatches/events")); err != nil {
				t.Fatal(err)
			}
		}
		if last := (*sent)[len(*sent)-1]; last != 0 {
			t.Errorf("a request waited for %s", last)
		}
	})
}

func TestEventsDoNotOutliveTheirRequest(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p, sent := paced()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		var err error
		for range eventsAtOnce + 1 {
			_, err = p.RoundTrip(request(t, ctx, eventsPath))
		}
		if !errors.Is(err, context.DeadlineExceeded) || len(*sent) != eventsAtOnce {
			t.Errorf("%d requests were sent, and the last returned %v", len(*sent), err)
		}
	})
}
