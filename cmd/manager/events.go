// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"net/http"
	"strings"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/rest"
)

const (
	// eventsAtOnce and eventsPerSecond limit how many Events are written without delay. Other Events wait. So in a burst
	// of jobs, the hub's API server first serves the requests that start jobs.
	eventsAtOnce    = 20
	eventsPerSecond = 10
	// maxEventDelay is how long an Event waits at most. Its eventTime is when the event happened.
	maxEventDelay = 10 * time.Second
)

// withPacedEvents returns a configuration whose clients delay Events.
func withPacedEvents(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return &pacedEvents{next: next, limiter: rate.NewLimiter(eventsPerSecond, eventsAtOnce)}
	})
	return config
}

// pacedEvents is a transport that delays only Events.
type pacedEvents struct {
	next    http.RoundTripper
	limiter *rate.Limiter
}

// RoundTrip implements http.RoundTripper.
func (p *pacedEvents) RoundTrip(request *http.Request) (*http.Response, error) {
	if strings.Contains(request.URL.Path, "/apis/events.k8s.io/") {
		if err := p.wait(request); err != nil {
			return nil, err
		}
	}
	return p.next.RoundTrip(request)
}

func (p *pacedEvents) wait(request *http.Request) error {
	turn := p.limiter.Reserve()
	delay := turn.Delay()
	if delay == 0 {
		return nil
	}
	if delay > maxEventDelay {
		turn.Cancel() // It would delay later Events for nothing.
		delay = maxEventDelay
	}
	timer := time.NewTimer(delay)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-request.Context().Done():
		return request.Context().Err()
	}
}
