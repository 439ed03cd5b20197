// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
)

// informer is the SharedIndexInformer of one kind in the caches of a worker. client-go's own has a queue and a goroutine
// for each of its parts, and two goroutines and a buffer of 18 KB for each handler. With many workers that is most of
// what an idle worker costs. This one has a reflector, which writes to the indexer and calls the handlers itself. So
// handlers must not block, and take no lock under which anybody reads a cache of the worker, which waits for its list.
//
// What handlers see is as with client-go's: an object is in the indexer before they hear of it, a list is in the indexer
// as a whole, deletions that only a list has shown come as DeletedFinalStateUnknown, and a handler that joins late gets
// the objects that are there. There is no resync.
type informer struct {
	kind    string
	guard   guard
	indexer toolscache.Indexer
	// transform changes objects before anybody sees them. It may be called twice for an object.
	transform toolscache.TransformFunc
	reflector *toolscache.Reflector
	// failed is called when the reflector has to start again.
	failed toolscache.WatchErrorHandlerWithContext
	// run runs a function until the life of the caches ends.
	run func(func(context.Context))
	// ended says whether that life has ended.
	ended  func() bool
	listed listed

	mu sync.Mutex
	// locked is guarded by mu. It is held while handlers are called: so a handler that joins misses nothing.
	locked struct {
		handlers []*registration
	}
}

// listed says when the first list is in the indexer and the handlers have had it.
type listed struct {
	kind string
	done chan struct{}
}

// Name implements DoneChecker.
func (l listed) Name() string { return "informer of a worker's " + l.kind }

// Done implements DoneChecker.
func (l listed) Done() <-chan struct{} { return l.done }

// HasSynced implements SharedIndexInformer and ResourceEventHandlerRegistration.
func (l listed) HasSynced() bool { return toolscache.IsDone(l) }

// HasSyncedChecker implements SharedIndexInformer and ResourceEventHandlerRegistration.
func (l listed) HasSyncedChecker() toolscache.DoneChecker { return l }

// registration is a handler that has joined.
type registration struct {
	listed
	handler toolscache.ResourceEventHandler
}

func newInformer(
	kind *cachedKind, source toolscache.ListerWatcher, object runtime.Object, indexers toolscache.Indexers, c *caches,
) *informer {
	i := &informer{
		kind: kind.gvk.Kind, guard: c.guard, indexer: toolscache.NewIndexer(toolscache.MetaNamespaceKeyFunc, indexers),
		transform: c.guard.transform(kind.gvk.Kind, kind.options.Transform), run: c.run, ended: func() bool { return c.ctx.Err() != nil },
		listed: listed{kind: kind.gvk.Kind, done: make(chan struct{})},
	}
	i.reflector = toolscache.NewReflectorWithOptions(selecting(kind, source), object, store{i}, toolscache.ReflectorOptions{Name: kind.gvk.Kind})
	return i
}

// RunWithContext starts the reflector and returns at once. Its caller would need two more goroutines while it runs
// (controller-runtime's Informers), so the caches run it.
func (i *informer) RunWithContext(ctx context.Context) {
	logger := klog.FromContext(ctx)
	i.run(func(ctx context.Context) {
		ctx = klog.NewContext(ctx, logger)
		// As a reflector's own RunWithContext, which cannot be given another error handler.
		backoff := wait.Backoff{Duration: 800 * time.Millisecond, Factor: 2, Jitter: 1, Steps: 38, Cap: 30 * time.Second}
		_ = backoff.DelayWithReset(clock.RealClock{}, 2*time.Minute).Until(ctx, true, true, func(ctx context.Context) (bool, error) {
			if err := i.reflector.ListAndWatchWithContext(ctx); err != nil {
				i.failed(ctx, i.reflector, err)
			}
			return false, nil
		})
	})
}

// Run implements SharedIndexInformer.
func (i *informer) Run(stop <-chan struct{}) { i.RunWithContext(wait.ContextForChannel(stop)) }

// AddEventHandler implements SharedIndexInformer.
func (i *informer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	if i.ended() {
		return nil, fmt.Errorf("handle events of a worker's %s: its caches have ended", i.kind)
	}
	joined := &registration{listed: i.listed, handler: handler}
	i.mu.Lock()
	defer i.mu.Unlock()
	for _, object := range i.indexer.List() {
		i.call(joined, func(h toolscache.ResourceEventHandler) { h.OnAdd(object, true) })
	}
	i.locked.handlers = append(i.locked.handlers, joined)
	return joined, nil
}

// AddEventHandlerWithResyncPeriod implements SharedIndexInformer.
func (i *informer) AddEventHandlerWithResyncPeriod(
	handler toolscache.ResourceEventHandler, _ time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// AddEventHandlerWithOptions implements SharedIndexInformer.
func (i *informer) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, _ toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.AddEventHandler(handler)
}

// RemoveEventHandler implements SharedIndexInformer. A handler must not call it.
func (i *informer) RemoveEventHandler(handle toolscache.ResourceEventHandlerRegistration) error {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.locked.handlers = slices.DeleteFunc(i.locked.handlers, func(r *registration) bool {
		return toolscache.ResourceEventHandlerRegistration(r) == handle
	})
	return nil
}

// GetStore implements SharedIndexInformer.
func (i *informer) GetStore() toolscache.Store { return i.indexer }

// GetIndexer implements SharedIndexInformer.
func (i *informer) GetIndexer() toolscache.Indexer { return i.indexer }

// AddIndexers implements SharedIndexInformer.
func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	return i.indexer.AddIndexers(indexers)
}

// GetController implements SharedIndexInformer. It is deprecated: there is no controller.
func (i *informer) GetController() toolscache.Controller { return nil }

// HasSynced implements SharedIndexInformer.
func (i *informer) HasSynced() bool { return i.listed.HasSynced() }

// HasSyncedChecker implements SharedIndexInformer.
func (i *informer) HasSyncedChecker() toolscache.DoneChecker { return i.listed }

// LastSyncResourceVersion implements SharedIndexInformer.
func (i *informer) LastSyncResourceVersion() string { return i.reflector.LastSyncResourceVersion() }

// SetWatchErrorHandler implements SharedIndexInformer.
func (i *informer) SetWatchErrorHandler(handler toolscache.WatchErrorHandler) error {
	return i.SetWatchErrorHandlerWithContext(func(_ context.Context, r *toolscache.Reflector, err error) { handler(r, err) })
}

// SetWatchErrorHandlerWithContext implements SharedIndexInformer. It must be called before the informer runs.
func (i *informer) SetWatchErrorHandlerWithContext(handler toolscache.WatchErrorHandlerWithContext) error {
	i.failed = handler
	return nil
}

// SetTransform implements SharedIndexInformer. The kind has its transform already.
func (i *informer) SetTransform(toolscache.TransformFunc) error { return nil }

// IsStopped implements SharedIndexInformer.
func (i *informer) IsStopped() bool { return i.ended() }

// call calls a handler. It drops an event over which the handler panics.
func (i *informer) call(r *registration, event func(toolscache.ResourceEventHandler)) {
	defer i.guard.recover("an event of a " + i.kind)
	event(r.handler)
}

// tell calls all handlers. The caller holds mu.
func (i *informer) tell(event func(toolscache.ResourceEventHandler)) {
	for _, r := range i.locked.handlers {
		i.call(r, event)
	}
}

// told tells the handlers that an object has come or changed. The caller holds mu. before is nil if the object was not
// there.
func (i *informer) told(before, object any, first bool) {
	switch {
	case before == nil:
		i.tell(func(h toolscache.ResourceEventHandler) { h.OnAdd(object, first) })
	case versionOf(before) != versionOf(object): // A list repeats objects that have not changed.
		i.tell(func(h toolscache.ResourceEventHandler) { h.OnUpdate(before, object) })
	}
}

func versionOf(object any) string {
	accessor, err := meta.Accessor(object)
	if err != nil {
		return ""
	}
	return accessor.GetResourceVersion()
}
