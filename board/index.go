// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"context"
	"fmt"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/third_party/forked/golang/btree"
	ctrlcache "sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/views/jobs"
)

// index has what the pages show, as the watches bring it. Objects in it are those of the caches, and nobody changes them.
type index struct {
	// start begins the watches. changed has a value while there is a change that nobody has read.
	start   func() error
	changed chan struct{}
	synced  []toolscache.InformerSynced
	begin   sync.Once
	err     error

	mu sync.RWMutex
	// The rest under mu. lists has the jobs of each namespace, and those of all under "".
	rows    map[types.NamespacedName]*row
	lists   map[string]*list
	waiting map[types.NamespacedName]*row
	workers map[string]*v1alpha1.WorkerCluster
	// fleetVersion changes with each change of a worker.
	fleetVersion int64
}

// list is a list of jobs, the newest first.
type list struct {
	rows *btree.BTree[*row]
	// counts says how many jobs are in a state, by the word of the state.
	counts  map[string]int
	version int64
}

func newIndex() *index {
	return &index{
		changed: make(chan struct{}, 1), rows: map[types.NamespacedName]*row{}, lists: map[string]*list{},
		waiting: map[types.NamespacedName]*row{}, workers: map[string]*v1alpha1.WorkerCluster{},
	}
}

// ready starts the watches, and waits until the index has what they bring first.
func (x *index) ready(ctx context.Context) error {
	x.begin.Do(func() { x.err = x.start() })
	if x.err != nil {
		return x.err
	}
	if !toolscache.WaitForCacheSync(ctx.Done(), x.synced...) {
		return fmt.Errorf("the hub has not sent all objects yet: %w", context.Cause(ctx))
	}
	return nil
}

// follow lets the index follow caches until ctx ends.
func (x *index) follow(ctx context.Context, caches ctrlcache.Cache, watched Watched) error {
	watch := func(object client.Object, set func(key types.NamespacedName, object any)) error {
		informer, err := caches.GetInformer(ctx, object, ctrlcache.BlockUntilSynced(false))
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		put := func(o any) { set(client.ObjectKeyFromObject(o.(client.Object)), o) }
		registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
			AddFunc:    put,
			UpdateFunc: func(_, o any) { put(o) },
			DeleteFunc: func(o any) {
				if key, err := toolscache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
					namespace, name, _ := toolscache.SplitMetaNamespaceKey(key)
					set(types.NamespacedName{Namespace: namespace, Name: name}, nil)
				}
			},
		})
		if err != nil {
			return fmt.Errorf("watch %T: %w", object, err)
		}
		x.synced = append(x.synced, registration.HasSynced)
		return nil
	}
	if watched.Workers {
		if err := watch(&v1alpha1.WorkerCluster{}, x.setWorker); err != nil {
			return err
		}
	}
	if !watched.Jobs {
		return nil
	}
	if err := watch(trainjobs.New(), x.setJob); err != nil {
		return err
	}
	return watch(&v1alpha1.Dispatch{}, x.setDispatch)
}

func (x *index) setWorker(key types.NamespacedName, object any) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if object == nil {
		delete(x.workers, key.Name)
	} else {
		x.workers[key.Name] = object.(*v1alpha1.WorkerCluster)
	}
	x.fleetVersion++
	x.tell()
}

func (x *index) setJob(key types.NamespacedName, object any) {
	job, _ := object.(*unstructured.Unstructured)
	x.set(key, func(r *row) { r.job = job })
}

func (x *index) setDispatch(key types.NamespacedName, object any) {
	d, _ := object.(*v1alpha1.Dispatch)
	x.set(key, func(r *row) { r.dispatch = d })
}

// set replaces the row of a job by one with a change. Rows that readers have do not change.
func (x *index) set(key types.NamespacedName, change func(*row)) {
	next := &row{key: key}
	x.mu.Lock()
	defer x.mu.Unlock()
	before := x.rows[key]
	if before != nil {
		next.job, next.dispatch = before.job, before.dispatch
	}
	change(next)
	if before != nil {
		x.remove(before)
	}
	if next.job != nil || next.dispatch != nil {
		next.complete()
		x.add(next)
	}
	x.tell()
}

func (x *index) add(r *row) {
	x.rows[r.key] = r
	if r.dispatch != nil && jobs.Waits(r.dispatch) {
		x.waiting[r.key] = r
	}
	for _, namespace := range []string{"", r.key.Namespace} {
		l := x.lists[namespace]
		if l == nil {
			l = &list{rows: btree.New(32, newer), counts: map[string]int{}}
			x.lists[namespace] = l
		}
		l.rows.ReplaceOrInsert(r)
		l.counts[r.word]++
		l.version++
	}
}

func (x *index) remove(r *row) {
	delete(x.rows, r.key)
	delete(x.waiting, r.key)
	for _, namespace := range []string{"", r.key.Namespace} {
		l := x.lists[namespace]
		l.rows.Delete(r)
		if l.counts[r.word]--; l.counts[r.word] == 0 {
			delete(l.counts, r.word)
		}
		l.version++ // An empty list stays, so that its version never returns.
	}
}

func (x *index) tell() {
	select {
	case x.changed <- struct{}{}:
	default: // It has a value already.
	}
}

// waitingList returns the waiting jobs of a namespace, or of all. mu must be held.
func (x *index) waitingList(namespace string) jobs.WaitingList {
	created := map[types.UID]metav1.Time{}
	each := func(yield func(*v1alpha1.Dispatch) bool) {
		for _, r := range x.waiting {
			if namespace != "" && r.key.Namespace != namespace {
				continue
			}
			created[r.dispatch.Spec.TrainJob.UID] = metav1.NewTime(r.created)
			if !yield(r.dispatch) {
				return
			}
		}
	}
	return jobs.NewWaitingList(each, func(uid types.UID) (metav1.Time, bool) {
		at, known := created[uid]
		return at, known
	})
}

// newer is the order of jobs: the newest first.
func newer(a, b *row) bool {
	if !a.created.Equal(b.created) {
		return a.created.After(b.created)
	}
	if a.key.Namespace != b.key.Namespace {
		return a.key.Namespace < b.key.Namespace
	}
	return a.key.Name < b.key.Name
}

// createdOf is when a job was created, as far as that is known.
func createdOf(r *row) time.Time {
	if r.job != nil {
		return r.job.GetCreationTimestamp().Time
	}
	return r.dispatch.CreationTimestamp.Time
}
