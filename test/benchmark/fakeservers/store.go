// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
)

const (
	// firstVersion is the first resource version, similar to an API server that has just started.
	firstVersion = 1000
	// A watch can go back by so many events of its kind.
	history = 256
	// maxPending is how many events a watch may have to say until it is cut off.
	maxPending = 100_000
)

// event is a change of an object. before is nil if it was created, after if it was deleted.
type event struct {
	kind          *kind
	version       uint64
	before, after *object
}

// store has the objects of one worker.
type store struct {
	observers []func(event) // Set before anybody uses the store.

	mu sync.Mutex
	// The rest is under mu.
	version  uint64
	objects  map[*kind]map[types.NamespacedName]*object
	events   map[*kind][]event
	floor    map[*kind]uint64 // Events up to this version are forgotten.
	watchers map[*watcher]bool
}

func newStore() *store {
	return &store{
		version: firstVersion, objects: map[*kind]map[types.NamespacedName]*object{}, events: map[*kind][]event{},
		floor: map[*kind]uint64{}, watchers: map[*watcher]bool{},
	}
}

// observe makes the store call a function after each change, outside of the lock and before the client gets its answer.
func (s *store) observe(see func(event)) { s.observers = append(s.observers, see) }

func (s *store) get(k *kind, key types.NamespacedName) (*object, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.find(k, key)
}

// find is get under mu.
func (s *store) find(k *kind, key types.NamespacedName) (*object, error) {
	if o := s.objects[k][key]; o != nil {
		return o, nil
	}
	return nil, apierrors.NewNotFound(k.resource(), key.Name)
}

// list returns the objects of a kind, sorted by namespace and name, and the version of the list.
func (s *store) list(k *kind) ([]*object, uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sorted(k), s.version
}

func (s *store) sorted(k *kind) []*object {
	return slices.SortedFunc(maps.Values(s.objects[k]), func(a, b *object) int {
		return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name))
	})
}

// create stores an object, with what an API server adds to it.
func (s *store) create(k *kind, key types.NamespacedName, content map[string]any) (*object, error) {
	content = fork(content)
	meta := metadataOf(content)
	meta.SetGroupVersionKind(k.GroupVersionKind)
	meta.SetNamespace(key.Namespace)
	meta.SetName(key.Name)
	meta.SetUID(uuid.NewUUID())
	meta.SetCreationTimestamp(metav1.NewTime(time.Now()))
	meta.SetDeletionTimestamp(nil)
	meta.SetDeletionGracePeriodSeconds(nil)
	meta.SetManagedFields(nil)
	delete(content["metadata"].(map[string]any), "generation")
	if k.custom {
		meta.SetGeneration(1)
	}
	return s.commit(func() (event, error) {
		if k.namespaced {
			if err := s.admits(key, k); err != nil {
				return event{}, err
			}
		}
		if s.objects[k][key] != nil {
			return event{}, apierrors.NewAlreadyExists(k.resource(), key.Name)
		}
		return event{kind: k, after: &object{kind: k, key: key, meta: meta}}, nil
	})
}

// admits says whether something may be created in a namespace.
func (s *store) admits(key types.NamespacedName, k *kind) error {
	namespace, err := s.find(namespaces, types.NamespacedName{Name: key.Namespace})
	switch {
	case err != nil:
		return err
	case namespace.meta.GetDeletionTimestamp() != nil:
		return apierrors.NewForbidden(k.resource(), key.Name, fmt.Errorf("namespace %s is being terminated", key.Namespace))
	}
	return nil
}

// mustCreate is for what the package itself creates.
func (s *store) mustCreate(k *kind, content map[string]any) {
	key := types.NamespacedName{Namespace: metadataOf(content).GetNamespace(), Name: metadataOf(content).GetName()}
	if _, err := s.create(k, key, content); err != nil {
		panic(err)
	}
}

// update replaces an object by the result of change, and returns the new object. If the result is equal, nothing
// happens. If the result is nil, the object is deleted. An object that is being deleted is removed with its last
// finalizer.
func (s *store) update(k *kind, key types.NamespacedName, change func(*object) (map[string]any, error)) (*object, error) {
	return s.commit(func() (event, error) {
		before, err := s.find(k, key)
		if err != nil {
			return event{}, err
		}
		content, err := change(before)
		switch {
		case err != nil:
			return event{}, err
		case content == nil:
			return event{kind: k, before: before}, nil
		}
		if !differs(before.content(), content) {
			return event{kind: k, before: before, after: before}, nil
		}
		meta := metadataOf(content)
		after := &object{kind: k, key: key, meta: meta}
		ends := meta.GetDeletionTimestamp() != nil && before.meta.GetDeletionTimestamp() == nil
		if k.custom && (ends || specDiffers(before.content(), content)) {
			meta.SetGeneration(before.meta.GetGeneration() + 1)
		}
		return event{kind: k, before: before, after: after}, nil
	})
}

// commit decides under the lock what changes, stores it, and tells all watches. It returns the new object, or the last
// version of a deleted object.
func (s *store) commit(decide func() (event, error)) (*object, error) {
	e, left, err := s.commitLocked(decide)
	if err == nil && e.before != e.after {
		for _, see := range s.observers {
			see(e)
		}
	}
	return left, err
}

func (s *store) commitLocked(decide func() (event, error)) (e event, left *object, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e, err = decide()
	if err != nil || e.before == e.after {
		return e, e.after, err
	}
	s.version++
	e.version, left = s.version, e.after
	if left == nil {
		left = e.before
	}
	if e.after == nil || e.before != nil && left.meta.GetDeletionTimestamp() != nil && len(left.meta.GetFinalizers()) == 0 {
		// The event of a deletion has the object as it was stored, with a version of its own.
		last := &object{kind: e.kind, key: left.key, meta: metadataOf(fork(e.before.content()))}
		s.stamp(last)
		e.before, e.after = last, nil
	} else {
		s.stamp(e.after)
	}
	s.record(e)
	return e, left, nil
}

func (s *store) stamp(o *object) {
	o.version = s.version
	o.meta.SetResourceVersion(strconv.FormatUint(s.version, 10))
}

// record stores what an event says, and gives the event to the watches.
func (s *store) record(e event) {
	if e.after == nil {
		delete(s.objects[e.kind], e.before.key)
	} else {
		if s.objects[e.kind] == nil {
			s.objects[e.kind] = map[types.NamespacedName]*object{}
		}
		s.objects[e.kind][e.after.key] = e.after
	}
	s.events[e.kind] = append(s.events[e.kind], e)
	if past := s.events[e.kind]; len(past) > history {
		s.floor[e.kind] = past[0].version
		s.events[e.kind] = slices.Delete(past, 0, 1)
	}
	for w := range s.watchers {
		if w.kind == e.kind {
			w.put(e)
		}
	}
}

func specDiffers(a, b map[string]any) bool {
	return differs(map[string]any{"spec": a["spec"]}, map[string]any{"spec": b["spec"]})
}
