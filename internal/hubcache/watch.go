// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"context"
	"sync"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// IsWatchListSemanticsUnSupported makes an informer list: a stream would have all objects before it is over.
func (s *source) IsWatchListSemanticsUnSupported() bool { return true }

// Watch implements toolscache.Watcher.
func (s *source) Watch(options metav1.ListOptions) (watch.Interface, error) {
	return s.WatchWithContext(context.Background(), options) //nolint:forbidigo // The interface has no context.
}

// WatchWithContext implements toolscache.WatcherWithContext.
func (s *source) WatchWithContext(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
	s.mu.Lock()
	rest := s.rest
	if rest != nil {
		// The informer asks for the version of the object that it has got last, which may be an old one from rest.
		options.ResourceVersion = s.version
	}
	s.mu.Unlock()
	from, err := s.from.WatchWithContext(ctx, options)
	if rest == nil || err != nil {
		return from, err
	}
	m := &merged{source: s, from: from, rest: rest, to: make(chan watch.Event), stopped: make(chan struct{})}
	go m.run()
	return m, nil
}

// merged is a watch that has objects of rest between its events.
type merged struct {
	source  *source
	from    watch.Interface
	rest    <-chan watch.Event
	to      chan watch.Event
	stopped chan struct{}
	stop    sync.Once
}

// Stop implements watch.Interface.
func (m *merged) Stop() { m.stop.Do(func() { close(m.stopped) }) }

// ResultChan implements watch.Interface.
func (m *merged) ResultChan() <-chan watch.Event { return m.to }

func (m *merged) run() {
	defer close(m.to)
	defer m.from.Stop()
	rest := m.rest
	for {
		event, ok := m.source.left()
		if !ok {
			select {
			case <-m.stopped:
				return
			case event, ok = <-m.from.ResultChan():
				if !ok || !m.pass(event) {
					return
				}
				continue
			case event, ok = <-rest:
			}
		}
		switch {
		case !ok: // These were all.
			if !m.send(m.source.mark()) {
				return
			}
			m.source.end()
			rest = nil
		case !m.source.admits(event):
		case !m.send(event):
			m.source.leave(event)
			return
		}
	}
}

func (m *merged) send(event watch.Event) bool {
	select {
	case m.to <- event:
		return true
	case <-m.stopped:
		return false
	}
}

// pass sends an event of the API server.
func (m *merged) pass(event watch.Event) bool {
	m.source.hear(event)
	if !m.send(event) {
		return false // The next watch begins before it.
	}
	m.source.heard(event)
	return true
}

// hear notes that the watch speaks of an object, before the informer gets the event.
func (s *source) hear(event watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.spoken != nil && event.Type != watch.Bookmark && event.Type != watch.Error {
		s.spoken[keyOf(event.Object)] = true
	}
}

// heard notes the version up to which the informer has all events.
func (s *source) heard(event watch.Event) {
	about, err := meta.Accessor(event.Object)
	if err != nil {
		return // It is an error.
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.version = about.GetResourceVersion()
}

// left takes what the watch before could not send.
func (s *source) left() (event watch.Event, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.pending == nil {
		return watch.Event{}, false
	}
	event, s.pending = *s.pending, nil
	return event, true
}

// leave keeps what could not be sent for the next watch.
func (s *source) leave(event watch.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rest != nil {
		s.pending = &event
	}
}

// admits is true if the informer has to get an event of rest. Of an object of which it has heard since, it has a later
// state, or the object is gone.
func (s *source) admits(event watch.Event) bool {
	if event.Type == watch.Error {
		return true
	}
	key := keyOf(event.Object)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rest == nil || s.spoken[key] {
		return false
	}
	s.sent[key] = true
	return true
}

// mark is the event that tells the informer the version of the watch after the objects of rest, which have old ones.
func (s *source) mark() watch.Event {
	s.mu.Lock()
	defer s.mu.Unlock()
	object := s.example.DeepCopyObject()
	if about, err := meta.Accessor(object); err == nil {
		about.SetResourceVersion(s.version)
	}
	return watch.Event{Type: watch.Bookmark, Object: object}
}

// end notes that the informer has got all of rest.
func (s *source) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.rest == nil {
		return
	}
	s.cancel()
	s.rest, s.cancel, s.spoken, s.complete = nil, nil, nil, true
	s.closeIfOver()
}

// follow notices what comes to the store of an informer, until all is there.
func (s *source) follow(made toolscache.SharedIndexInformer) {
	store := made.GetStore()
	s.stored = func(key string) bool {
		_, exists, err := store.GetByKey(key)
		return exists && err == nil
	}
	arrived := func(object any) {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.sent, keyOf(object))
		if len(s.sent) == 0 {
			select {
			case s.arrived <- struct{}{}:
			default: // There is a token.
			}
		}
		s.closeIfOver()
	}
	followed, err := made.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc: arrived, UpdateFunc: func(_, object any) { arrived(object) }, DeleteFunc: arrived,
	})
	if err != nil {
		return // The informer has ended already.
	}
	go func() {
		<-s.over
		_ = made.RemoveEventHandler(followed)
	}()
}

// The informer asks for both.
var (
	_ toolscache.ListerWatcherWithContext = &source{}
	_ runtime.Object                      = &finishedDispatch{}
)
