// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	toolscache "k8s.io/client-go/tools/cache"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// NewInformer makes the informers of the hub's caches: cache.Options.NewInformer.
func NewInformer(
	from toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	all := toolscache.NewSharedIndexInformer(from, example, resync, indexers)
	if !isPackable(example) {
		return all
	}
	return &informer{all, from}
}

// isPackable is true for the kinds that are packed.
func isPackable(example runtime.Object) bool {
	if job, ok := example.(*unstructured.Unstructured); ok {
		return job.GroupVersionKind() == trainjobs.GroupVersionKind
	}
	return isDispatch(example)
}

func isDispatch(example runtime.Object) bool {
	_, ok := example.(*v1alpha1.Dispatch)
	return ok
}

// informer is an informer that keeps finished objects packed.
type informer struct {
	toolscache.SharedIndexInformer
	from toolscache.ListerWatcher
}

// SetTransform implements toolscache.SharedInformer. The cache calls it for each informer.
func (i *informer) SetTransform(transform toolscache.TransformFunc) error {
	transform = packing(transform)
	if from, ok := i.from.(*source); ok {
		from.transform = transform
	}
	return i.SharedIndexInformer.SetTransform(transform)
}

// AddEventHandler implements toolscache.SharedInformer.
func (i *informer) AddEventHandler(
	to toolscache.ResourceEventHandler,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandler(unpacking{to})
}

// AddEventHandlerWithResyncPeriod implements toolscache.SharedInformer.
func (i *informer) AddEventHandlerWithResyncPeriod(
	to toolscache.ResourceEventHandler, resync time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithResyncPeriod(unpacking{to}, resync)
}

// AddEventHandlerWithOptions implements toolscache.SharedInformer.
func (i *informer) AddEventHandlerWithOptions(
	to toolscache.ResourceEventHandler, options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.SharedIndexInformer.AddEventHandlerWithOptions(unpacking{to}, options)
}

// AddIndexers implements toolscache.SharedIndexInformer.
func (i *informer) AddIndexers(indexers toolscache.Indexers) error {
	return i.SharedIndexInformer.AddIndexers(ofUnpacked(indexers))
}

// GetStore implements toolscache.SharedInformer.
func (i *informer) GetStore() toolscache.Store { return i.GetIndexer() }

// GetIndexer implements toolscache.SharedIndexInformer.
func (i *informer) GetIndexer() toolscache.Indexer { return store{i.SharedIndexInformer.GetIndexer()} }

// unpacking is an event handler that gets unpacked objects.
type unpacking struct {
	toolscache.ResourceEventHandler
}

// OnAdd implements toolscache.ResourceEventHandler.
func (u unpacking) OnAdd(object any, isInInitialList bool) {
	u.ResourceEventHandler.OnAdd(unpack(object), isInInitialList)
}

// OnUpdate implements toolscache.ResourceEventHandler.
func (u unpacking) OnUpdate(before, after any) {
	u.ResourceEventHandler.OnUpdate(unpack(before), unpack(after))
}

// OnDelete implements toolscache.ResourceEventHandler.
func (u unpacking) OnDelete(object any) { u.ResourceEventHandler.OnDelete(unpack(object)) }

// ofUnpacked makes indexes of unpacked objects.
func ofUnpacked(indexers toolscache.Indexers) toolscache.Indexers {
	wrapped := toolscache.Indexers{}
	for name, index := range indexers {
		wrapped[name] = func(object any) ([]string, error) { return index(unpack(object)) }
	}
	return wrapped
}

// store is a store from which objects are read unpacked.
type store struct{ toolscache.Indexer }

// AddIndexers implements toolscache.Indexer.
func (s store) AddIndexers(indexers toolscache.Indexers) error {
	return s.Indexer.AddIndexers(ofUnpacked(indexers))
}

// Get implements toolscache.Store.
func (s store) Get(object any) (item any, exists bool, err error) {
	item, exists, err = s.Indexer.Get(object)
	return unpack(item), exists, err
}

// GetByKey implements toolscache.Store.
func (s store) GetByKey(key string) (item any, exists bool, err error) {
	item, exists, err = s.Indexer.GetByKey(key)
	return unpack(item), exists, err
}

// List implements toolscache.Store.
func (s store) List() []any { return unpackAll(s.Indexer.List()) }

// Index implements toolscache.Indexer.
func (s store) Index(name string, object any) ([]any, error) {
	found, err := s.Indexer.Index(name, object)
	return unpackAll(found), err
}

// ByIndex implements toolscache.Indexer.
func (s store) ByIndex(name, value string) ([]any, error) {
	found, err := s.Indexer.ByIndex(name, value)
	return unpackAll(found), err
}
