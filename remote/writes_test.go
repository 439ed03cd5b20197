// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"errors"
	"net/http"
	"sync/atomic"
	"testing"
	"time"

	"github.com/onsi/gomega"
)

// TestFormerLeaderWritesToNoWorker checks that a process that was paused or had to wait sends no write to a worker unless
// it still leads.
func TestFormerLeaderWritesToNoWorker(t *testing.T) {
	cases := map[string]struct {
		reason string
		method string
		// questions is how often leading returns true before it returns false.
		questions int32
		sent      bool
	}{
		"Create":         {reason: "A copy of an attempt that is over would run.", method: http.MethodPost},
		"Patch":          {reason: "A copy would be changed that another process looks after.", method: http.MethodPatch},
		"Delete":         {reason: "Another process decides which copies go.", method: http.MethodDelete},
		"Read":           {reason: "To read changes nothing.", method: http.MethodGet, sent: true},
		"Leader":         {reason: "It leads all the time.", method: http.MethodPost, questions: 100, sent: true},
		"OnceConnected":  {reason: "It was paused while a connection was made.", method: http.MethodPost, questions: 1},
		"PatchConnected": {reason: "The same for a change.", method: http.MethodPatch, questions: 1},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.use(t, "one", open)
			var arrived, questions atomic.Int32
			r.handle(func(http.ResponseWriter, *http.Request) { arrived.Add(1) })
			r.leading = func() bool { return questions.Add(1) <= tc.questions }
			_, err := r.do(t.Context(), callers{r.sender}, tc.method, "/api/v1/pods/one", "body")
			if sent := arrived.Load() > 0; sent != tc.sent || (err == nil) != tc.sent {
				t.Errorf("%s\nthe request arrived: %t, and its error is %v", tc.reason, sent, err)
			}
			if tc.questions == 0 && !tc.sent && !errors.Is(err, ErrNotLeading) {
				t.Errorf("the error is %v, want ErrNotLeading", err)
			}
		})
	}
}

// TestOnlyLeaderWrites checks the same of OnlyLeaderWrites, the transport of the hub's clients.
func TestOnlyLeaderWrites(t *testing.T) {
	cases := map[string]struct {
		reason    string
		method    string
		questions int32
		sent      bool
	}{
		"Read":          {reason: "To read changes nothing.", method: http.MethodGet, sent: true},
		"Patch":         {reason: "What it says of a worker may be old.", method: http.MethodPatch},
		"Delete":        {reason: "The same.", method: http.MethodDelete},
		"OnceConnected": {reason: "It was paused while a connection was made.", method: http.MethodPut, questions: 1},
		"Leader":        {reason: "It leads all the time.", method: http.MethodPost, questions: 100, sent: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			var arrived, questions atomic.Int32
			r.handle(func(http.ResponseWriter, *http.Request) { arrived.Add(1) })
			leading := func() bool { return questions.Add(1) <= tc.questions }
			_, err := r.do(t.Context(), OnlyLeaderWrites(leading)(r.server.Client().Transport), tc.method, "/api/v1/pods/one", "body")
			if sent := arrived.Load() > 0; sent != tc.sent || (err == nil) != tc.sent {
				t.Errorf("%s\nthe request arrived: %t, and its error is %v", tc.reason, sent, err)
			}
			if tc.questions == 0 && !tc.sent && !errors.Is(err, ErrNotLeading) {
				t.Errorf("the error is %v, want ErrNotLeading", err)
			}
		})
	}
}

// TestWriteThatWaited checks that a write that waits for verification asks for the leadership after the wait.
func TestWriteThatWaited(t *testing.T) {
	r := newRig(t)
	r.use(t, "one", held)
	var arrived atomic.Int32
	var leads atomic.Bool
	leads.Store(true)
	r.handle(func(http.ResponseWriter, *http.Request) { arrived.Add(1) })
	r.leading = leads.Load
	answer := make(chan error, 1)
	go func() {
		_, err := r.do(context.Background(), callers{r.sender}, http.MethodPost, "/api/v1/pods", "body")
		answer <- err
	}()
	leads.Store(false)
	r.open(open)
	if err := <-answer; !errors.Is(err, ErrNotLeading) || arrived.Load() > 0 {
		t.Errorf("the write got %v, and %d requests arrived", err, arrived.Load())
	}
}

// TestTimeoutsOfWrites checks that a creation waits until the API server must have answered, and sends that deadline to
// the API server.
func TestTimeoutsOfWrites(t *testing.T) {
	const short, long = 50 * time.Millisecond, time.Hour
	cases := map[string]struct {
		reason       string
		method, path string
		long         func(*sender)
		deadline     string
	}{
		"Creation": {
			reason: "Several admission webhooks that hang may come one after the other.", method: http.MethodPost, path: "/api/v1/pods",
			long: func(s *sender) { s.changeTimeout, s.requestTimeout = long, long }, deadline: "1m0s",
		},
		"Patch": {
			reason: "One webhook may hang.", method: http.MethodPatch, path: "/api/v1/namespaces/a/pods/one",
			long: func(s *sender) { s.creationTimeout, s.requestTimeout = long, long },
		},
		"Deletion": {
			reason: "As a patch.", method: http.MethodDelete, path: "/api/v1/namespaces/a/pods/one",
			long: func(s *sender) { s.creationTimeout, s.requestTimeout = long, long },
		},
		"Lease": {
			reason: "An answer to a challenge that is late is worth nothing.", method: http.MethodPatch,
			path: "/apis/trainyard.dev/v1alpha1/executionleases/hub", long: func(s *sender) { s.creationTimeout, s.changeTimeout = long, long },
		},
		"Read": {
			reason: "Nobody has to be asked.", method: http.MethodGet, path: "/api/v1/pods",
			long: func(s *sender) { s.creationTimeout, s.changeTimeout = long, long },
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.use(t, "one", open)
			r.requestTimeout, r.changeTimeout, r.creationTimeout = short, short, short
			tc.long(r.sender)
			release, deadline := make(chan struct{}), make(chan string, 1)
			defer close(release)
			r.handle(func(_ http.ResponseWriter, req *http.Request) {
				deadline <- req.URL.Query().Get("timeout")
				<-release
			})
			if _, err := r.do(t.Context(), callers{r.sender}, tc.method, tc.path, "body"); !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("%s\nthe request ended with %v, want its timeout", tc.reason, err)
			}
			gomega.NewWithT(t).Eventually(deadline, 10*time.Second).Should(gomega.Receive(gomega.Equal(tc.deadline)), "what the server is told")
		})
	}
}
