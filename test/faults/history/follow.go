// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"context"
	"strconv"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// retryDelay is how long to wait for an API server that is away.
	retryDelay = 50 * time.Millisecond
	// A change may have happened up to breakLag before the end of a watch without an event.
	breakLag = 100 * time.Millisecond
)

// follower tells all that happens to the objects of one kind on one cluster.
type follower struct {
	client client.WithWatch
	list   client.ObjectList // an empty one of the kind
	handle func(object client.Object, gone bool, when moment)

	known   map[types.UID]client.Object
	version string // of the last event; empty: list again
	// The watch was interrupted. Events up to the version replayed are from before its return. broken is the time since
	// when nothing is known.
	replayed uint64
	broken   time.Time
}

// run follows until the context ends. It calls ready when it knows all that there is.
func (f *follower) run(ctx context.Context, ready func()) {
	f.known, f.broken = map[types.UID]client.Object{}, time.Now()
	for ctx.Err() == nil {
		err := f.resume(ctx)
		if err == nil {
			ready()
			err = f.watch(ctx)
			f.broken = time.Now().Add(-breakLag)
		}
		if apierrors.IsGone(err) || apierrors.IsResourceExpired(err) {
			f.version = ""
		}
		select {
		case <-ctx.Done():
		case <-time.After(retryDelay):
		}
	}
}

// resume finds out up to which version events come late. If they cannot come any more, it lists everything.
func (f *follower) resume(ctx context.Context) error {
	list := f.list.DeepCopyObject().(client.ObjectList)
	options := &client.ListOptions{}
	if f.version != "" {
		options.Limit = 1 // Only the version of the list counts.
	}
	if err := f.client.List(ctx, list, options); err != nil {
		return err
	}
	version := list.GetResourceVersion()
	replayed, err := strconv.ParseUint(version, 10, 64)
	if err != nil {
		return err
	}
	f.replayed = replayed
	if f.version != "" {
		return nil
	}
	listed := map[types.UID]bool{}
	when := moment{earliest: f.broken, latest: time.Now()}
	err = meta.EachListItem(list, func(item runtime.Object) error {
		object := item.(client.Object)
		listed[object.GetUID()] = true
		f.known[object.GetUID()] = object
		f.handle(object, false, when)
		return nil
	})
	for uid, object := range f.known {
		if !listed[uid] {
			delete(f.known, uid)
			f.handle(object, true, when)
		}
	}
	f.version = version
	return err
}

// watch tells events until the watch ends.
func (f *follower) watch(ctx context.Context) error {
	events, err := f.client.Watch(ctx, f.list.DeepCopyObject().(client.ObjectList), &client.ListOptions{
		Raw: &metav1.ListOptions{ResourceVersion: f.version, AllowWatchBookmarks: true},
	})
	if err != nil {
		return err
	}
	defer events.Stop()
	for event := range events.ResultChan() {
		if event.Type == watch.Error {
			return apierrors.FromObject(event.Object)
		}
		object, ok := event.Object.(client.Object)
		if !ok {
			continue
		}
		f.version = object.GetResourceVersion()
		if event.Type == watch.Bookmark {
			continue
		}
		when := moment{earliest: time.Now(), latest: time.Now()}
		if version, err := strconv.ParseUint(f.version, 10, 64); err == nil && version <= f.replayed {
			when.earliest = f.broken
		}
		gone := event.Type == watch.Deleted
		if gone {
			delete(f.known, object.GetUID())
		} else {
			f.known[object.GetUID()] = object
		}
		f.handle(object, gone, when)
	}
	return nil
}
