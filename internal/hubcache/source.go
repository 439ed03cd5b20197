// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"context"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/log"
)

// source gives an informer the objects of one kind: with its first list those that cannot wait, and the others between
// the events of the watch, page by page. All of them are as they were at one version, from which the watch goes on. So
// an object of a page that the watch has spoken of since is out of date, and is left out.
type source struct {
	// begin returns the objects that cannot wait, as they were at the version of the first page of all. ok is false if all
	// of them have to be listed at once. known, nil for none, gets the objects of the first list.
	begin func(ctx context.Context, first page) (objects []runtime.Object, ok bool, err error)
	known func(objects []runtime.Object)
	// before is closed when the first list may begin, and after when the rest may be read. Nil: at once. over is closed
	// when the informer's store has all objects.
	before, after <-chan struct{}
	over          chan struct{}
	// pageSize is how many objects a request of a list gets.
	pageSize int64
	// from is the API server, example an object of the kind, stored says whether the informer's store has a key, and
	// transform is what is done with an object before it comes there. The informer sets them before it runs.
	from      toolscache.ListerWatcherWithContext
	example   runtime.Object
	stored    func(key string) bool
	transform toolscache.TransformFunc

	mu sync.Mutex
	// The following fields are under mu.
	//
	// listed is true after the first list. version is that of the last event that the informer has got.
	listed  bool
	version string
	// rest has the objects that the informer has not got yet, nil if it has got all. cancel ends their reading. pending is
	// what was not taken before its watch ended.
	rest    chan watch.Event
	cancel  context.CancelFunc
	pending *watch.Event
	// spoken are the keys that the informer has heard of in another way than from rest. It is nil when rest is.
	spoken map[string]bool
	// sent are the keys of objects from rest that have not come to the store yet, and complete says that no more follow.
	sent     map[string]bool
	complete bool
	// arrived has a token when the last of them has come.
	arrived chan struct{}
}

func newSource(begin func(context.Context, page) ([]runtime.Object, bool, error), pageSize int64) *source {
	return &source{begin: begin, over: make(chan struct{}), pageSize: pageSize, spoken: map[string]bool{}, sent: map[string]bool{}, arrived: make(chan struct{}, 1)}
}

// isOver is true once the informer's store has all objects.
func (s *source) isOver() bool {
	select {
	case <-s.over:
		return true
	default:
		return false
	}
}

// page is a page of a list.
type page struct {
	items         []runtime.Object
	version, next string
	remaining     int64
}

// list reads a page.
func (s *source) list(ctx context.Context, options metav1.ListOptions) (page, error) {
	list, err := s.from.ListWithContext(ctx, options)
	if err != nil {
		return page{}, err
	}
	about, err := meta.ListAccessor(list)
	if err != nil {
		return page{}, fmt.Errorf("read a list: %w", err)
	}
	items, err := meta.ExtractListWithAlloc(list)
	return page{items: items, version: about.GetResourceVersion(), next: about.GetContinue(), remaining: remainingOf(about)}, err
}

// List implements toolscache.Lister.
func (s *source) List(options metav1.ListOptions) (runtime.Object, error) {
	return s.ListWithContext(context.Background(), options) //nolint:forbidigo // The interface has no context.
}

// ListWithContext implements toolscache.ListerWithContext. An informer lists again when its watch has missed something:
// what such a list lacks, it deletes.
func (s *source) ListWithContext(ctx context.Context, _ metav1.ListOptions) (runtime.Object, error) {
	if err := await(ctx, s.before); err != nil {
		return nil, err
	}
	first, err := s.list(ctx, metav1.ListOptions{Limit: s.pageSize})
	if err != nil {
		return nil, err
	}
	objects, some, err := s.firstOf(ctx, first)
	if err != nil {
		return nil, err
	}
	if !some {
		if objects, err = s.all(ctx, first); err != nil {
			return nil, err
		}
	}
	if s.known != nil {
		s.known(objects)
	}
	if some {
		s.beginWith(ctx, objects, first)
	} else {
		s.haveAll(objects, first.version)
	}
	return first.with(objects), nil
}

// firstOf returns the objects of a list that has to have only some.
func (s *source) firstOf(ctx context.Context, first page) (objects []runtime.Object, some bool, err error) {
	s.mu.Lock()
	again := s.listed
	s.mu.Unlock()
	if again || first.next == "" {
		return nil, false, nil
	}
	return s.begin(ctx, first)
}

// await waits until a channel is closed. Nil: it does not wait.
func await(ctx context.Context, closed <-chan struct{}) error {
	if closed == nil {
		return nil
	}
	select {
	case <-closed:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// with returns a list of these objects, at the version of the page.
func (p page) with(objects []runtime.Object) *metav1.List {
	list := &metav1.List{ListMeta: metav1.ListMeta{ResourceVersion: p.version}, Items: make([]runtime.RawExtension, len(objects))}
	for i := range objects {
		list.Items[i].Object = objects[i]
	}
	return list
}

// all reads the pages after the first one, and returns the objects of all. It packs them page by page: as they come, they
// take many times the memory.
func (s *source) all(ctx context.Context, p page) (objects []runtime.Object, err error) {
	for {
		for _, object := range p.items {
			transformed, err := s.transform(object)
			if err != nil {
				return nil, err
			}
			if kept, ok := transformed.(runtime.Object); ok {
				objects = append(objects, kept)
			}
		}
		if p.next == "" {
			return objects, nil
		}
		if p, err = s.list(ctx, metav1.ListOptions{Limit: s.pageSize, Continue: p.next}); err != nil {
			return nil, err
		}
	}
}

// beginWith notes what the first list has, and begins to read the rest.
func (s *source) beginWith(ctx context.Context, objects []runtime.Object, first page) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, object := range objects {
		s.spoken[keyOf(object)] = true
	}
	s.listed, s.version, s.rest = true, first.version, make(chan watch.Event)
	ctx, s.cancel = context.WithCancel(ctx)
	go s.read(ctx, first, s.rest)
}

// haveAll notes that a list has all objects. If it is not the first list, it ends the reading of the rest.
func (s *source) haveAll(objects []runtime.Object, version string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = map[string]bool{}   // What was not taken is in the list, or gone.
	if s.listed && !s.isOver() { // Nobody reads a store before the first list is in it.
		for _, object := range objects {
			// A list comes to the store as a whole. No event tells of an object that is there already.
			if key := keyOf(object); !s.stored(key) {
				s.sent[key] = true
			}
		}
	}
	if s.cancel != nil {
		s.cancel()
	}
	s.listed, s.version, s.complete = true, version, true
	s.rest, s.cancel, s.pending, s.spoken = nil, nil, nil, nil
	s.closeIfOver()
}

// closeIfOver is called under mu.
func (s *source) closeIfOver() {
	if s.complete && len(s.sent) == 0 && !s.isOver() {
		close(s.over)
	}
}

// read sends the objects of a page, and of those that it reads after it, until ctx ends.
func (s *source) read(ctx context.Context, p page, to chan<- watch.Event) {
	if await(ctx, s.after) != nil {
		return
	}
	for {
		for _, object := range p.items {
			if !send(ctx, to, watch.Event{Type: watch.Added, Object: object}) {
				return
			}
		}
		if p.next == "" {
			close(to)
			return
		}
		// The next page is read when this one is in the store: the rest must not keep live jobs from the CPUs.
		if !s.awaitArrival(ctx) {
			return
		}
		var err error
		if p, err = s.retry(ctx, p.next); err != nil {
			// The API server has forgotten the version. After this event an informer lists again.
			send(ctx, to, watch.Event{Type: watch.Error, Object: &expired.ErrStatus})
			return
		}
	}
}

// awaitArrival waits until what was sent has come to the store. It returns false when ctx ends.
func (s *source) awaitArrival(ctx context.Context) bool {
	for {
		s.mu.Lock()
		left := len(s.sent)
		s.mu.Unlock()
		if left == 0 {
			return true
		}
		select {
		case <-s.arrived:
		case <-ctx.Done():
			return false
		}
	}
}

var expired = apierrors.NewResourceExpired("the version from which the rest was read")

func send(ctx context.Context, to chan<- watch.Event, event watch.Event) bool {
	select {
	case to <- event:
		return true
	case <-ctx.Done():
		return false
	}
}

// retry reads a page until it succeeds. It fails only if the API server has forgotten the version, or when ctx ends.
func (s *source) retry(ctx context.Context, next string) (page, error) {
	backoff := wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.1, Steps: 8, Cap: 10 * time.Second}
	for logged := false; ; {
		p, err := s.list(ctx, metav1.ListOptions{Limit: s.pageSize, Continue: next})
		if err == nil || apierrors.IsResourceExpired(err) || apierrors.IsGone(err) {
			return p, err
		}
		if ctx.Err() == nil && !logged {
			log.FromContext(ctx).Error(err, "Finished jobs are not all read yet; trying again", "kind", fmt.Sprintf("%T", s.example))
			logged = true
		}
		select {
		case <-time.After(backoff.Step()):
		case <-ctx.Done():
			return page{}, ctx.Err()
		}
	}
}

// keyOf is the key of an object in the store. Each object from an API server has a name.
func keyOf(object any) string {
	key, _ := toolscache.DeletionHandlingMetaNamespaceKeyFunc(object)
	return key
}
