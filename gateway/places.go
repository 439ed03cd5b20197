// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package gateway

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"

	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// places knows which workers have jobs of a namespace, and tells open watches of Dispatches that have changed.
type places struct {
	mu sync.Mutex
	// byJob and counts under mu: the worker of each job, and how many jobs of a namespace each worker has.
	byJob  map[types.NamespacedName]v1alpha1.ClusterName
	counts map[string]map[v1alpha1.ClusterName]int
	// watchers under mu. A function must not block.
	watchers map[*func(types.NamespacedName)]bool
}

func newPlaces() *places {
	return &places{
		byJob:  map[types.NamespacedName]v1alpha1.ClusterName{},
		counts: map[string]map[v1alpha1.ClusterName]int{}, watchers: map[*func(types.NamespacedName)]bool{},
	}
}

// follow reads the Dispatches from a cache.
func (p *places) follow(ctx context.Context, caches cache.Cache) error {
	informer, err := caches.GetInformer(ctx, &v1alpha1.Dispatch{}, cache.BlockUntilSynced(false))
	if err != nil {
		return fmt.Errorf("watch Dispatches: %w", err)
	}
	_, err = informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { p.changed(o, false) },
		UpdateFunc: func(_, o any) { p.changed(o, false) },
		DeleteFunc: func(o any) { p.changed(o, true) },
	})
	return err
}

func (p *places) changed(o any, deleted bool) {
	if gone, ok := o.(toolscache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	d, ok := o.(*v1alpha1.Dispatch)
	if !ok {
		return
	}
	key, now := types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, d.Spec.Cluster
	if deleted {
		now = ""
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.count(key, p.byJob[key], -1)
	p.count(key, now, 1)
	if p.byJob[key] = now; now == "" {
		delete(p.byJob, key)
	}
	for notify := range p.watchers {
		(*notify)(key)
	}
}

// count is called under mu.
func (p *places) count(key types.NamespacedName, name v1alpha1.ClusterName, by int) {
	if name == "" {
		return
	}
	for _, namespace := range []string{key.Namespace, ""} {
		if p.counts[namespace] == nil {
			p.counts[namespace] = map[v1alpha1.ClusterName]int{}
		}
		if p.counts[namespace][name] += by; p.counts[namespace][name] == 0 {
			delete(p.counts[namespace], name)
		}
	}
}

// of returns the workers that have jobs of a namespace, or of all if it is empty, sorted.
func (p *places) of(namespace string) []v1alpha1.ClusterName {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Sorted(maps.Keys(p.counts[namespace]))
}

// subscribe calls notify with the key of each Dispatch that changes. notify must not block.
func (p *places) subscribe(notify func(types.NamespacedName)) (cancel func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.watchers[&notify] = true
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.watchers, &notify)
	}
}
