// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"cmp"
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	defaultPageSize = 500
	// listShare is how many objects of a list cost as much as a request for one object. With fewer TrainJobs for each job
	// that has not finished, all of them are listed.
	listShare = 10
	// concurrency is how many TrainJobs are read at a time.
	concurrency = 16
)

// phaseField is the field of Dispatches by which the API server selects. A hub with Kubernetes before 1.31, or with the
// CRD of an earlier version, cannot.
const phaseField = "status.phase"

var trainJobs = trainjobs.GroupVersionKind.GroupVersion().WithResource("trainjobs")

// Hub has the informers of one hub's TrainJobs and Dispatches, which read what has finished last.
type Hub struct {
	trainJobs        dynamic.NamespaceableResourceInterface
	dispatches, jobs *source
	once, begun      sync.Once
	// unfinished are the keys of the Dispatches that had not finished when they were listed first. named is closed then.
	unfinished []types.NamespacedName
	named      chan struct{}
}

// Options of a Hub.
type Options struct {
	// Config is the configuration of a client of the hub's API server.
	Config *rest.Config
	// PageSize is how many objects a request of a list gets, zero for 500. A hub that has no more needs one request.
	PageSize int64
}

// New makes a Hub.
func New(o Options) (*Hub, error) {
	all, err := dynamic.NewForConfig(o.Config) //nolint:forbidigo // It is a client of the hub.
	if err != nil {
		return nil, fmt.Errorf("make a client for TrainJobs: %w", err)
	}
	h := &Hub{trainJobs: all.Resource(trainJobs), named: make(chan struct{})}
	size := cmp.Or(o.PageSize, defaultPageSize)
	h.dispatches, h.jobs = newSource(h.listUnfinished, size), newSource(h.readUnfinished, size)
	begun := make(chan struct{})
	h.dispatches.known, h.jobs.known = h.name, func([]runtime.Object) { h.begun.Do(func() { close(begun) }) }
	// First what cannot wait, of both kinds. Then the rest: whoever gets a finished job finds its Dispatch.
	h.jobs.before, h.dispatches.after, h.jobs.after = h.named, begun, h.dispatches.over
	return h, nil
}

// NewInformer is NewInformer for an informer that reads what has finished last. There is one informer of each kind.
func (h *Hub) NewInformer(
	from toolscache.ListerWatcher, example runtime.Object, resync time.Duration, indexers toolscache.Indexers,
) toolscache.SharedIndexInformer {
	s := h.sourceOf(example)
	if s == nil {
		return NewInformer(from, example, resync, indexers)
	}
	s.from, s.example = toolscache.ToListerWatcherWithContext(from), example
	s.transform = packing(nil) // Until the cache sets its own.
	made := NewInformer(s, example, resync, indexers)
	s.follow(made)
	return made
}

// Fill makes a cache begin with both kinds. Of a Hub's informers, that of TrainJobs waits for that of Dispatches.
func Fill(ctx context.Context, caches cache.Cache) error {
	for _, object := range []client.Object{&v1alpha1.Dispatch{}, trainjobs.New()} {
		if _, err := caches.GetInformer(ctx, object, cache.BlockUntilSynced(false)); err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
	}
	return nil
}

// sourceOf returns the source of a kind, nil if the kind has none.
func (h *Hub) sourceOf(example runtime.Object) *source {
	switch {
	case !isPackable(example):
		return nil
	case isDispatch(example):
		return h.dispatches
	default:
		return h.jobs
	}
}

// listUnfinished lists the Dispatches that had not finished at the version of a page. ok is false if the API server
// cannot select them.
func (h *Hub) listUnfinished(ctx context.Context, first page) (found []runtime.Object, ok bool, err error) {
	selector := fields.OneTermNotEqualSelector(phaseField, string(v1alpha1.PhaseFinished))
	at := metav1.ListOptions{
		FieldSelector: selector.String(), Limit: h.dispatches.pageSize,
		ResourceVersion: first.version, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	}
	for {
		listed, err := h.dispatches.list(ctx, at)
		if apierrors.IsBadRequest(err) {
			return nil, false, nil
		}
		if err != nil {
			return nil, false, fmt.Errorf("list the Dispatches that have not finished: %w", err)
		}
		found = append(found, listed.items...)
		if listed.next == "" {
			return found, true, nil
		}
		at = metav1.ListOptions{FieldSelector: at.FieldSelector, Limit: h.dispatches.pageSize, Continue: listed.next}
	}
}

// name notes which Dispatches have not finished, once.
func (h *Hub) name(dispatches []runtime.Object) {
	h.once.Do(func() {
		for _, object := range dispatches { // A packed one has finished.
			if d, ok := object.(*v1alpha1.Dispatch); ok && d.Status.Phase != v1alpha1.PhaseFinished {
				h.unfinished = append(h.unfinished, types.NamespacedName{Namespace: d.Namespace, Name: d.Name})
			}
		}
		close(h.named)
	})
}

// readUnfinished reads the TrainJobs of the Dispatches that had not finished, as they were at the version of a page. ok
// is false if it is cheaper to list all TrainJobs.
func (h *Hub) readUnfinished(ctx context.Context, first page) (found []runtime.Object, ok bool, err error) {
	if int64(len(h.unfinished))*listShare > int64(len(first.items))+first.remaining {
		return nil, false, nil
	}
	var mu sync.Mutex // It guards found.
	readers, ctx := errgroup.WithContext(ctx)
	readers.SetLimit(concurrency)
	for _, key := range h.unfinished {
		readers.Go(func() error {
			job, err := h.readAt(ctx, key, first.version)
			if err != nil || job == nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			found = append(found, job)
			return nil
		})
	}
	return found, true, readers.Wait()
}

// readAt reads a TrainJob as it was at a version, nil if there was none.
func (h *Hub) readAt(ctx context.Context, key types.NamespacedName, version string) (*unstructured.Unstructured, error) {
	list, err := h.trainJobs.Namespace(key.Namespace).List(ctx, metav1.ListOptions{
		FieldSelector:   fields.OneTermEqualSelector(metav1.ObjectNameField, key.Name).String(),
		ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact,
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("read TrainJob %s: %w", key, err)
	case len(list.Items) == 0:
		return nil, nil
	}
	return &list.Items[0], nil
}

// DispatchesRead is closed when the caches have all Dispatches, also those that have finished.
func (h *Hub) DispatchesRead() <-chan struct{} { return h.dispatches.over }

// remainingOf is how many objects a list has after a page.
func remainingOf(list metav1.ListInterface) int64 { return ptr.Deref(list.GetRemainingItemCount(), 0) }
