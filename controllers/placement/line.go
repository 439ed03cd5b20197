// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"slices"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// line is where jobs wait, in classes. The jobs of a class have the same demand under the same rules, so what does not help
// the first does not help the others: a change wakes the first of each class, and each that is placed wakes the next. So
// 10,000 waiting jobs of one kind and one freed GPU are two decisions.
type line struct {
	mu sync.Mutex
	// classes by name, each in order, and places by key. Under mu.
	classes map[string][]*place
	places  map[types.NamespacedName]*place
}

// place is where a job stands.
type place struct {
	key     types.NamespacedName
	uid     types.UID
	class   string
	created time.Time
	// waits is true once there was no room for the job.
	waits bool
	// explained is when the job's explanation was last written.
	explained time.Time
}

// before is the order of a class: age, by the hub's creation time, then UID.
func before(a, b *place) int {
	return cmp.Or(a.created.Compare(b.created), cmp.Compare(a.uid, b.uid))
}

// stand puts a job in line, or moves it to another class, and returns the one that is now first in the class that it has left.
func (l *line) stand(wanted place) (next types.NamespacedName, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.classes == nil {
		l.classes = map[string][]*place{}
		l.places = map[types.NamespacedName]*place{}
	}
	if existing := l.places[wanted.key]; existing != nil {
		if existing.class == wanted.class && existing.uid == wanted.uid {
			return next, false
		}
		wanted.explained = existing.explained
		next, ok = l.remove(existing)
	}
	p := &wanted
	class := l.classes[p.class]
	at, _ := slices.BinarySearchFunc(class, p, before)
	l.classes[p.class] = slices.Insert(class, at, p)
	l.places[p.key] = p
	return next, ok
}

// leave takes a job out of line, and returns the one that is now first in its class if the job was first.
func (l *line) leave(key types.NamespacedName) (next types.NamespacedName, ok bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.places[key]; p != nil {
		return l.remove(p)
	}
	return next, false
}

// remove takes a place out, and returns the one that is first now if it was. The caller holds mu.
func (l *line) remove(p *place) (next types.NamespacedName, ok bool) {
	delete(l.places, p.key)
	class := l.classes[p.class]
	at, found := slices.BinarySearchFunc(class, p, before)
	if !found {
		return next, false
	}
	if class = slices.Delete(class, at, at+1); len(class) == 0 {
		delete(l.classes, p.class)
		return next, false
	}
	l.classes[p.class] = class
	return class[0].key, at == 0
}

// behind is true if an older job of the job's class has been told to wait. One that is just being decided on does not count.
func (l *line) behind(key types.NamespacedName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.places[key]
	if p == nil {
		return false
	}
	for _, older := range l.classes[p.class] {
		if older == p {
			return false
		}
		if older.waits {
			return true
		}
	}
	return false
}

// wait notes that a job in line has been told to wait.
func (l *line) wait(key types.NamespacedName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if p := l.places[key]; p != nil {
		p.waits = true
	}
}

// find returns the place of a job, nil if it is not in line.
func (l *line) find(key types.NamespacedName) *place {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.places[key]
}

// heads are the first of every class, the oldest first.
func (l *line) heads() []types.NamespacedName {
	return l.keys(func(class []*place) []*place { return class[:1] })
}

// all are all that wait, the oldest first.
func (l *line) all() []types.NamespacedName {
	return l.keys(func(class []*place) []*place { return class })
}

func (l *line) keys(of func([]*place) []*place) []types.NamespacedName {
	l.mu.Lock()
	var places []*place
	for _, class := range l.classes {
		places = append(places, of(class)...)
	}
	l.mu.Unlock()
	slices.SortFunc(places, before)
	keys := make([]types.NamespacedName, len(places))
	for i, p := range places {
		keys[i] = p.key
	}
	return keys
}
