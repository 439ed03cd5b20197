// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package remote

import (
	"context"
	"fmt"
	"runtime/debug"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"
)

// guard keeps a panic over an object of one worker from ending the process. client-go calls transforms and event
// handlers in goroutines of its own, in which nobody recovers. The guard says what could not be handled, and why.
type guard func(what string, value any, stack []byte)

// recover is to be deferred.
func (g guard) recover(what string) {
	if value := recover(); value != nil {
		g(what, value, debug.Stack())
	}
}

// transform returns a transform that keeps an object as it is if the given one panics over it.
func (g guard) transform(kind string, transform toolscache.TransformFunc) toolscache.TransformFunc {
	return func(in any) (out any, err error) {
		out = in
		defer g.recover("a " + kind)
		return transform(in)
	}
}

// handler returns an event handler that drops an event over which the given one panics.
func (g guard) handler(kind string, handler toolscache.ResourceEventHandler) toolscache.ResourceEventHandler {
	what := "an event of a " + kind
	return toolscache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, isInInitialList bool) {
			defer g.recover(what)
			handler.OnAdd(obj, isInInitialList)
		},
		UpdateFunc: func(before, after any) {
			defer g.recover(what)
			handler.OnUpdate(before, after)
		},
		DeleteFunc: func(obj any) {
			defer g.recover(what)
			handler.OnDelete(obj)
		},
	}
}

// guardedInformer guards the handlers that it is given.
type guardedInformer struct {
	cache.Informer
	guard guard
	kind  string
}

// AddEventHandler implements cache.Informer.
func (i guardedInformer) AddEventHandler(handler toolscache.ResourceEventHandler) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandler(i.guard.handler(i.kind, handler))
}

// AddEventHandlerWithResyncPeriod implements cache.Informer.
func (i guardedInformer) AddEventHandlerWithResyncPeriod(
	handler toolscache.ResourceEventHandler, period time.Duration,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithResyncPeriod(i.guard.handler(i.kind, handler), period)
}

// AddEventHandlerWithOptions implements cache.Informer.
func (i guardedInformer) AddEventHandlerWithOptions(
	handler toolscache.ResourceEventHandler, options toolscache.HandlerOptions,
) (toolscache.ResourceEventHandlerRegistration, error) {
	return i.Informer.AddEventHandlerWithOptions(i.guard.handler(i.kind, handler), options)
}

// GetInformer implements cache.Cache.
func (c *caches) GetInformer(ctx context.Context, object client.Object, opts ...cache.InformerGetOption) (cache.Informer, error) {
	gvk, err := apiutil.GVKForObject(object, c.scheme)
	if err != nil {
		return nil, fmt.Errorf("get informer of the worker's caches: %w", err)
	}
	informer, err := c.Cache.GetInformer(ctx, object, opts...)
	if err != nil {
		return nil, err
	}
	return guardedInformer{informer, c.guard, gvk.Kind}, nil
}

// GetInformerForKind implements cache.Cache.
func (c *caches) GetInformerForKind(ctx context.Context, gvk schema.GroupVersionKind, opts ...cache.InformerGetOption) (cache.Informer, error) {
	informer, err := c.Cache.GetInformerForKind(ctx, gvk, opts...)
	if err != nil {
		return nil, err
	}
	return guardedInformer{informer, c.guard, gvk.Kind}, nil
}
