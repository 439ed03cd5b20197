// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package memory

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// Change is a change of an object. Before is nil if it was created. After is nil if it is gone.
type Change struct {
	Kind          Kind
	Key           client.ObjectKey
	Before, After *Version
	// Actor made the change.
	Actor string
	// At is the time of the change.
	At time.Duration
}

// Server is an API server.
type Server struct {
	// Name is the name of the cluster. UIDs contain it.
	Name string
	// Now returns the time, and Wall the time of the server's clock.
	Now  func() time.Duration
	Wall func(time.Duration) time.Time
	// Changed is called after each change. It may be nil.
	Changed func(Change)
	// Tried is called after each dry run of a creation that would have succeeded. It may be nil.
	Tried func(object client.Object)

	objects map[Kind]map[client.ObjectKey]*Version
	// base is what there was before the first change in the logs.
	base map[Kind]map[client.ObjectKey]*Version
	logs map[Kind][]Change
	// revision counts changes, uids objects.
	revision, uids int64
	// Unlocked servers do not check resourceVersions and preconditions. This is for tests of tests.
	Unlocked bool
}

// NewServer makes a server without objects.
func NewServer(name string, now func() time.Duration, wall func(time.Duration) time.Time) *Server {
	return &Server{
		Name: name, Now: now, Wall: wall, revision: 1, logs: map[Kind][]Change{},
		objects: map[Kind]map[client.ObjectKey]*Version{}, base: map[Kind]map[client.ObjectKey]*Version{},
	}
}

// Get returns the current version of an object, nil if there is none.
func (s *Server) Get(kind Kind, key client.ObjectKey) *Version { return s.objects[kind][key] }

// List returns all objects of a kind in the order of their keys.
func (s *Server) List(kind Kind) []*Version { return sorted(s.objects[kind]) }

func sorted(objects map[client.ObjectKey]*Version) []*Version {
	if len(objects) == 0 {
		return nil
	}
	list := slices.Collect(maps.Values(objects))
	slices.SortFunc(list, func(a, b *Version) int {
		return cmp.Or(cmp.Compare(a.Object.GetNamespace(), b.Object.GetNamespace()), cmp.Compare(a.Object.GetName(), b.Object.GetName()))
	})
	return list
}

// commit makes a version the current version of an object. Nil: the object is gone.
func (s *Server) commit(kind Kind, key client.ObjectKey, after *Version, actor string) {
	if s.objects[kind] == nil {
		s.objects[kind] = map[client.ObjectKey]*Version{}
	}
	change := Change{Kind: kind, Key: key, Before: s.objects[kind][key], After: after, Actor: actor, At: s.Now()}
	if after == nil {
		delete(s.objects[kind], key)
	} else {
		s.objects[kind][key] = after
	}
	s.logs[kind] = append(s.logs[kind], change)
	if s.Changed != nil {
		s.Changed(change)
	}
}

// Snapshot has everything that a backup of a server's store would have.
type Snapshot map[Kind]map[client.ObjectKey]*Version

// Snapshot returns the present objects.
func (s *Server) Snapshot() Snapshot {
	snapshot := Snapshot{}
	for kind, objects := range s.objects {
		snapshot[kind] = maps.Clone(objects)
	}
	return snapshot
}

// Restore replaces the objects by the objects of a snapshot. Nobody is told of these changes, so the views must be made
// again. Versions count on, as after a careful restore of a store.
func (s *Server) Restore(snapshot Snapshot) {
	s.logs = map[Kind][]Change{}
	s.objects, s.base = map[Kind]map[client.ObjectKey]*Version{}, map[Kind]map[client.ObjectKey]*Version{}
	for kind, objects := range snapshot {
		s.objects[kind], s.base[kind] = maps.Clone(objects), maps.Clone(objects)
	}
}

// View is a cache of one kind.
type View struct {
	server  *Server
	kind    Kind
	filter  func(client.Object) bool
	at      int
	objects map[client.ObjectKey]*Version
	// late are objects that the cache has yet to read.
	late map[client.ObjectKey]*Version
}

// NewView returns a cache with the server's objects before the latest changes; behind says how many changes. It has
// only objects for which filter is true. A nil filter lets all objects through.
func (s *Server) NewView(kind Kind, behind int, filter func(client.Object) bool) *View {
	v := &View{server: s, kind: kind, filter: filter, objects: map[client.ObjectKey]*Version{}}
	for key, version := range s.base[kind] {
		if v.shows(version) {
			v.objects[key] = version
		}
	}
	for v.at < len(s.logs[kind])-behind {
		v.Next()
	}
	return v
}

func (v *View) shows(version *Version) bool {
	return version != nil && (v.filter == nil || v.filter(version.Object))
}

// Behind returns how many changes the cache has not yet taken in.
func (v *View) Behind() int { return len(v.server.logs[v.kind]) - v.at }

// Due returns when the next change was made, and false if there is none.
func (v *View) Due() (at time.Duration, ok bool) {
	if v.Behind() == 0 {
		return 0, false
	}
	return v.server.logs[v.kind][v.at].At, true
}

// Next takes in one change, and returns it as the cache sees it. It returns false if the cache sees no change.
func (v *View) Next() (Change, bool) {
	if v.Behind() == 0 {
		return Change{}, false
	}
	change := v.server.logs[v.kind][v.at]
	v.at++
	change.Before = v.objects[change.Key]
	delete(v.late, change.Key) // Package hubcache does not take in what the watch has spoken of.
	if v.shows(change.After) {
		v.objects[change.Key] = change.After
	} else {
		change.After = nil
		delete(v.objects, change.Key)
	}
	return change, change.Before != nil || change.After != nil
}

// Delay makes a new cache lack the objects for which late is true, until ReadLate has taken in all of them.
func (v *View) Delay(late func(client.Object) bool) {
	v.late = map[client.ObjectKey]*Version{}
	for key, version := range v.objects {
		if late(version.Object) {
			v.late[key] = version
			delete(v.objects, key)
		}
	}
}

// IsLate is true while the cache has yet to read objects.
func (v *View) IsLate() bool { return len(v.late) > 0 }

// ReadLate takes in one of the late objects. It returns false if there is none.
func (v *View) ReadLate() (Change, bool) {
	if !v.IsLate() {
		return Change{}, false
	}
	version := sorted(v.late)[0]
	key := client.ObjectKeyFromObject(version.Object)
	delete(v.late, key)
	v.objects[key] = version
	return Change{Kind: v.kind, Key: key, After: version}, true
}

// Get returns the object in the cache, nil if there is none.
func (v *View) Get(key client.ObjectKey) *Version { return v.objects[key] }

// List returns all objects in the cache, in the order of their keys.
func (v *View) List() []*Version { return sorted(v.objects) }

// Kind returns the kind of the objects.
func (v *View) Kind() Kind { return v.kind }
