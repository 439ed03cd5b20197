// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// bookmarkInterval is about the interval of an API server.
const bookmarkInterval = time.Minute

// watcher has the events that a watch has to send.
type watcher struct {
	kind *kind
	wake chan struct{} // Has a value while there is something to say.

	mu      sync.Mutex
	pending []event // Under mu.
	cut     bool    // Under mu: nobody has listened for too long.
}

// put is called under store.mu.
func (w *watcher) put(e event) {
	w.mu.Lock()
	if w.pending = append(w.pending, e); len(w.pending) > maxPending {
		w.pending, w.cut = nil, true
	}
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

func (w *watcher) take() (events []event, cut bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	events, w.pending = w.pending, nil
	return events, w.cut
}

// watch begins to watch a kind: after a version, or, if that is 0, with the present objects. It returns the present
// objects and their version.
func (s *store) watch(k *kind, after uint64) (w *watcher, now []*object, version uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if after > 0 && (after < s.floor[k] || after < firstVersion) {
		return nil, nil, 0, apierrors.NewResourceExpired(fmt.Sprintf("too old resource version: %d (%d)", after, max(s.floor[k], firstVersion)))
	}
	w = &watcher{kind: k, wake: make(chan struct{}, 1)}
	s.watchers[w] = true
	if after == 0 {
		return w, s.sorted(k), s.version, nil
	}
	from, _ := slices.BinarySearchFunc(s.events[k], after+1, func(e event, version uint64) int { return int(e.version) - int(version) })
	for _, e := range s.events[k][from:] {
		w.put(e)
	}
	return w, nil, after, nil
}

func (s *store) unwatch(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.watchers, w)
}

// seen returns the version as of which a watcher has been given everything.
func (s *store) seen(w *watcher) (version uint64, idle bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.mu.Lock()
	defer w.mu.Unlock()
	return s.version, len(w.pending) == 0
}

// stream writes the answer to a watch.
type stream struct {
	selection
	request *http.Request
	encoder *json.Encoder
	flush   func() error
}

func (h *handler) watch(w http.ResponseWriter, r *http.Request, of target) {
	query := r.URL.Query()
	selection, err := newSelection(of.kind, of.key.Namespace, query)
	if err == nil && query.Get("sendInitialEvents") != "" && query.Get("resourceVersionMatch") != "NotOlderThan" {
		err = apierrors.NewInvalid(metav1.SchemeGroupVersion.WithKind("ListOptions").GroupKind(), "", nil)
	}
	var after uint64
	if version := query.Get("resourceVersion"); err == nil && version != "" {
		if after, err = strconv.ParseUint(version, 10, 64); err != nil {
			err = apierrors.NewBadRequest(fmt.Sprintf("resourceVersion: Invalid value: %q", version))
		}
	}
	if err != nil {
		refuse(w, err)
		return
	}
	w.Header().Set("Content-Type", jsonType)
	w.WriteHeader(http.StatusOK)
	s := &stream{selection: selection, request: r, encoder: json.NewEncoder(w), flush: http.NewResponseController(w).Flush}
	initial := query.Get("sendInitialEvents") == "true"
	if initial {
		after = 0 // The present objects are not older than the requested version.
	}
	watcher, now, version, err := h.store.watch(of.kind, after)
	if err != nil {
		_ = s.send(watch.Error, statusOf(err)) // The stream ends either way.
		return
	}
	defer h.store.unwatch(watcher)
	for _, o := range now {
		if s.matches(o) && s.send(watch.Added, shown(r, o)) != nil {
			return
		}
	}
	bookmarks := query.Get("allowWatchBookmarks") == "true"
	if initial && bookmarks && s.bookmark(version, map[string]any{metav1.InitialEventsAnnotationKey: "true"}) != nil {
		return
	}
	if s.flush() != nil {
		return
	}
	seconds, _ := strconv.Atoi(query.Get("timeoutSeconds")) // Without a number there is no end.
	h.follow(s, watcher, bookmarks, time.Duration(seconds)*time.Second)
}

// follow sends what happens until the client goes away, or the time is over.
func (h *handler) follow(s *stream, w *watcher, bookmarks bool, limit time.Duration) {
	var end <-chan time.Time
	if limit > 0 {
		timer := time.NewTimer(limit)
		defer timer.Stop()
		end = timer.C
	}
	ticker := time.NewTicker(bookmarkInterval)
	defer ticker.Stop()
	for {
		select {
		case <-s.request.Context().Done():
			return
		case <-end:
			return
		case <-ticker.C:
			if version, idle := h.store.seen(w); bookmarks && idle && s.bookmark(version, nil) != nil {
				return
			}
		case <-w.wake:
			events, cut := w.take()
			for _, e := range events {
				if s.tell(e) != nil {
					return
				}
			}
			if cut {
				return
			}
		}
		if s.flush() != nil {
			return
		}
	}
}

// tell sends an event if it concerns the watched objects. For a watch, an object that is no longer selected is deleted.
func (s *stream) tell(e event) error {
	was, is := s.matches(e.before), s.matches(e.after)
	switch {
	case !was && is:
		return s.send(watch.Added, shown(s.request, e.after))
	case was && is:
		return s.send(watch.Modified, shown(s.request, e.after))
	case was && e.after == nil:
		return s.send(watch.Deleted, shown(s.request, e.before))
	case was:
		last := &object{kind: e.kind, key: e.before.key, meta: metadataOf(fork(e.before.content()))}
		last.meta.SetResourceVersion(strconv.FormatUint(e.version, 10))
		return s.send(watch.Deleted, shown(s.request, last))
	}
	return nil
}

func (s *stream) bookmark(version uint64, annotations map[string]any) error {
	metadata := map[string]any{"resourceVersion": strconv.FormatUint(version, 10)}
	if annotations != nil {
		metadata["annotations"] = annotations
	}
	o := &object{kind: s.kind, meta: metadataOf(map[string]any{
		"apiVersion": s.kind.GroupVersion().String(), "kind": s.kind.Kind, "metadata": metadata,
	})}
	return s.send(watch.Bookmark, shown(s.request, o))
}

func (s *stream) send(kind watch.EventType, of any) error {
	return s.encoder.Encode(map[string]any{"type": kind, "object": of})
}
