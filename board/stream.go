// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"time"
)

const (
	// askAgain is how often a stream asks for the rights of its caller. It keeps connections alive, too.
	askAgain = 10 * time.Second
	// writeTimeout is how long a client may take for an update.
	writeTimeout = 30 * time.Second
)

// patience bounds how long the beginning of an answer takes.
func (b *Board) patience(r *http.Request) (context.Context, context.CancelFunc) {
	return context.WithTimeout(r.Context(), answerTimeout)
}

// stream sends a page, and then what changes, as server-sent events.
func (b *Board) stream(name string) func(http.ResponseWriter, *http.Request, Caller) {
	return func(w http.ResponseWriter, r *http.Request, c Caller) {
		leave, ok := c.Enter(r.Context())
		if !ok {
			refuse(w, http.StatusTooManyRequests, &problem{Error: "too many pages are open", Todo: "close some of them"})
			return
		}
		defer leave()
		q, ok := b.asked(w, r, c, name)
		if !ok {
			return
		}
		w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
		w.Header().Set("X-Accel-Buffering", "no") // Otherwise nginx collects events.
		s := &events{to: w, control: http.NewResponseController(w), now: b.options.Clock.Now}
		b.follow(r.Context(), s, q, c)
	}
}

// follow sends until the client goes, or may not have the page any more.
func (b *Board) follow(ctx context.Context, s *events, q query, c Caller) {
	again := b.options.Clock.NewTicker(askAgain)
	defer again.Stop()
	page := b.pages.of(q) // It stays as long as it is open, whatever others look at.
	var last *content
	for {
		next := b.pulse.wait() // Before the page is read, so that no change is missed.
		now := b.pages.get(page, q, b.options.Clock.Now)
		if now != last {
			if text := now.since(last); text != nil && s.send("page", text) != nil {
				return
			}
			last = now
		}
		select {
		case <-next:
		case <-again.C():
			scope, _, p := b.authorize(ctx, c, query{page: q.page, namespace: q.namespace})
			if p == nil && scope.whole != q.whole {
				p = &problem{Error: "your rights have changed", Todo: "load the page again"}
			}
			if p != nil {
				text, _ := json.Marshal(p) // Texts can be encoded.
				_ = s.send("refused", text)
				return
			}
			if s.send("alive", []byte("{}")) != nil {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// events writes server-sent events.
type events struct {
	to      http.ResponseWriter
	control *http.ResponseController
	now     func() time.Time
}

// send sends one event. JSON has no line breaks.
func (s *events) send(name string, data []byte) error {
	// Not every writer has deadlines. A client that takes nothing is noticed by TCP then.
	_ = s.control.SetWriteDeadline(s.now().Add(writeTimeout))
	for _, part := range [][]byte{[]byte("event: " + name + "\ndata: "), bytes.TrimSuffix(data, []byte("\n")), []byte("\n\n")} {
		if _, err := s.to.Write(part); err != nil { //nolint:gosec // It is JSON in a stream of events.
			return err
		}
	}
	return s.control.Flush()
}
