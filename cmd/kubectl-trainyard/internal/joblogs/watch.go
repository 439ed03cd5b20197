// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"context"
	"fmt"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic/dynamicinformer"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// watcher keeps the current state of a job and its pods, and tells of changes. Its watches outlive connections.
type watcher struct {
	reader reader
	uid    types.UID
	job    cache.SharedIndexInformer
	pods   cache.SharedIndexInformer
	fail   context.CancelCauseFunc

	mu            sync.Mutex
	change        chan struct{}          // closed at the next change; under mu
	jobSet        *jobsetv1alpha2.JobSet // once it was read; under mu
	jobSetDeleted bool                   // under mu
	where         string                 // under mu

	finalOnce sync.Once
	finalPods []*corev1.Pod
	finalErr  error
}

// watch watches a job. The UID distinguishes it from a later job of the same name. The returned context ends with ctx,
// or with a cause if the user may not watch.
func (r reader) watch(ctx context.Context, uid types.UID) (context.Context, *watcher, error) {
	ctx, fail := context.WithCancelCause(ctx)
	w := &watcher{reader: r, uid: uid, fail: fail, change: make(chan struct{})}
	w.job = dynamicinformer.NewFilteredDynamicInformer(r.clients.Dynamic, trainJobs, r.job.Namespace, 0, cache.Indexers{},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, r.job.Name).String()
		}).Informer()
	w.pods = coreinformers.NewFilteredPodInformer(r.clients.Kubernetes, r.job.Namespace, 0, cache.Indexers{},
		func(o *metav1.ListOptions) { o.LabelSelector = r.podSelector() })
	for _, informer := range []cache.SharedIndexInformer{w.job, w.pods} {
		if err := w.start(ctx, informer); err != nil {
			return ctx, nil, err
		}
	}
	if !cache.WaitForCacheSync(ctx.Done(), w.job.HasSynced, w.pods.HasSynced) {
		return ctx, nil, context.Cause(ctx)
	}
	return ctx, w, nil
}

func (w *watcher) start(ctx context.Context, informer cache.SharedIndexInformer) error {
	err := informer.SetWatchErrorHandlerWithContext(func(_ context.Context, _ *cache.Reflector, err error) {
		// After all other errors the reflector continues by itself.
		if apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
			w.fail(fmt.Errorf("watch TrainJob %q: %w", w.reader.job.Name, err))
		}
	})
	if err != nil {
		return fmt.Errorf("watch TrainJob %q: %w", w.reader.job.Name, err)
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(any) { w.tell() },
		UpdateFunc: func(any, any) { w.tell() },
		DeleteFunc: func(any) { w.tell() },
	})
	if err != nil {
		return fmt.Errorf("watch TrainJob %q: %w", w.reader.job.Name, err)
	}
	go informer.RunWithContext(ctx)
	return nil
}

func (w *watcher) tell() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.change)
	w.change = make(chan struct{})
}

// changed returns a channel that is closed at the next change. A snapshot after this call misses no change.
func (w *watcher) changed() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.change
}

func (w *watcher) snapshot() (*snapshot, error) {
	var pods []*corev1.Pod
	for _, object := range w.pods.GetStore().List() {
		pods = append(pods, object.(*corev1.Pod))
	}
	return w.newSnapshot(pods)
}

// final returns a snapshot at the end of the job. The first call reads pods that the watch may not have seen yet.
func (w *watcher) final(ctx context.Context) (*snapshot, error) {
	w.finalOnce.Do(func() { w.finalPods, w.finalErr = w.reader.listPods(ctx, w.reader.podSelector()) })
	if w.finalErr != nil {
		return nil, w.finalErr
	}
	return w.newSnapshot(w.finalPods)
}

func (w *watcher) newSnapshot(pods []*corev1.Pod) (*snapshot, error) {
	var job *unstructured.Unstructured
	for _, object := range w.job.GetStore().List() {
		if u := object.(*unstructured.Unstructured); u.GetUID() == w.uid {
			job = u
		}
	}
	w.mu.Lock()
	jobSet, deleted, where := w.jobSet, w.jobSetDeleted, w.where
	w.mu.Unlock()
	if w.reader.elsewhere {
		s, err := newSnapshotElsewhere(job, pods, w.reader.clients.Clock.Now())
		if err == nil {
			s.where = where
		}
		return s, err
	}
	s, err := newSnapshot(job, jobSet, pods, w.reader.clients.Clock.Now())
	if err == nil {
		s.jobSetDeleted = deleted
	}
	return s, err
}

// readRest reads what is not watched. It is called when the job or a pod has changed.
func (w *watcher) readRest(ctx context.Context) {
	if w.reader.elsewhere {
		w.readWhere(ctx)
		return
	}
	w.readJobSet(ctx)
}

// readWhere reads where the job is, while it has no pods.
func (w *watcher) readWhere(ctx context.Context) {
	var where string
	if len(w.pods.GetStore().ListKeys()) == 0 {
		dispatch, err := w.reader.readDispatch(ctx)
		if err != nil {
			return // The next change asks again.
		}
		where = whereItIs(dispatch)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.where = where
}

// readJobSet reads the JobSet if it has not been read. The JobSet is not watched, because only its spec matters here.
// The job's status has the rest.
func (w *watcher) readJobSet(ctx context.Context) {
	w.mu.Lock()
	known := w.jobSet != nil
	w.mu.Unlock()
	if known {
		return
	}
	jobSet, read := w.reader.readJobSet(ctx)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.jobSet, w.jobSetDeleted = jobSet, read && jobSet == nil
}
