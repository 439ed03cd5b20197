// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	toolscache "k8s.io/client-go/tools/cache"
)

// store takes what a reflector lists and watches.
type store struct{ informer *informer }

// Transformer implements TransformingStore: then a reflector keeps no object whole while it reads a list.
func (s store) Transformer() toolscache.TransformFunc { return s.informer.transform }

// Add implements ReflectorStore.
func (s store) Add(object any) error { return s.Update(object) }

// Update implements ReflectorStore.
func (s store) Update(object any) error {
	i := s.informer
	object, err := i.transform(object)
	if err != nil {
		return fmt.Errorf("strip a worker's %s: %w", i.kind, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	before, _, err := i.indexer.Get(object)
	if err != nil {
		return err
	}
	if err := i.indexer.Update(object); err != nil {
		return err
	}
	i.told(before, object, false)
	return nil
}

// Delete implements ReflectorStore.
func (s store) Delete(object any) error {
	i := s.informer
	object, err := i.transform(object)
	if err != nil {
		return fmt.Errorf("strip a worker's %s: %w", i.kind, err)
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	if err := i.indexer.Delete(object); err != nil {
		return err
	}
	i.tell(func(h toolscache.ResourceEventHandler) { h.OnDelete(object) })
	return nil
}

// Replace implements ReflectorStore.
func (s store) Replace(list []any, version string) error {
	i := s.informer
	for n := range list {
		object, err := i.transform(list[n])
		if err != nil {
			return fmt.Errorf("strip a worker's %s: %w", i.kind, err)
		}
		list[n] = object
	}
	i.mu.Lock()
	defer i.mu.Unlock()
	gone, before, err := compare(i.indexer, list)
	if err != nil {
		return err
	}
	if err := i.indexer.Replace(list, version); err != nil {
		return err
	}
	for _, deleted := range gone {
		i.tell(func(h toolscache.ResourceEventHandler) { h.OnDelete(deleted) })
	}
	first := !i.HasSynced()
	for n, object := range list {
		i.told(before[n], object, first)
	}
	if first {
		close(i.listed.done)
	}
	return nil
}

// compare returns what is in the indexer and not in a list, and what the indexer has in place of each object of the
// list: nil for nothing.
func compare(indexer toolscache.Indexer, list []any) (gone []toolscache.DeletedFinalStateUnknown, before []any, err error) {
	before = make([]any, len(list))
	listed := make(map[string]struct{}, len(list))
	for n, object := range list {
		key, err := toolscache.MetaNamespaceKeyFunc(object)
		if err != nil {
			return nil, nil, err
		}
		listed[key] = struct{}{}
		if before[n], _, err = indexer.GetByKey(key); err != nil {
			return nil, nil, err
		}
	}
	for _, key := range indexer.ListKeys() {
		if _, there := listed[key]; there {
			continue
		}
		object, _, err := indexer.GetByKey(key)
		if err != nil {
			return nil, nil, err
		}
		gone = append(gone, toolscache.DeletedFinalStateUnknown{Key: key, Obj: object})
	}
	return gone, before, nil
}

// Resync implements ReflectorStore. There is none.
func (s store) Resync() error { return nil }

// selecting returns a source that asks only for the objects that the caches hold of a kind.
func selecting(kind *cachedKind, source toolscache.ListerWatcher) toolscache.ListerWatcher {
	from := toolscache.ToListerWatcherWithContext(source)
	selected := func(options metav1.ListOptions) metav1.ListOptions {
		if kind.options.Label != nil {
			options.LabelSelector = kind.options.Label.String()
		}
		if kind.options.Field != nil {
			options.FieldSelector = kind.options.Field.String()
		}
		return options
	}
	return &toolscache.ListWatch{
		ListWithContextFunc: func(ctx context.Context, options metav1.ListOptions) (runtime.Object, error) {
			return from.ListWithContext(ctx, selected(options))
		},
		WatchFuncWithContext: func(ctx context.Context, options metav1.ListOptions) (watch.Interface, error) {
			return from.WatchWithContext(ctx, selected(options))
		},
	}
}
