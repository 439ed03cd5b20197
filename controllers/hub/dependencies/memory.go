// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// there is what is known of an object on the worker.
type there struct {
	// source is the version of the hub's object that was written last, or that could not be written.
	source string
	// version has the UID of the object on the worker. It has none if nobody has written the object since the connection.
	version client.Preconditions
	// left says why the object was not written, empty if it was.
	left string
	// pulls are the names of the Secrets that a ServiceAccount pulls images with, if it was written. Nil: not known.
	pulls []string
	// refused says that the object is there in another version, which cannot be changed while it is in use.
	refused bool
	at      time.Time
}

// memory is what is known of the objects on the worker. It is safe for concurrent use.
type memory struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	objects map[object]there // under mu
}

func newMemory(c clock.PassiveClock) *memory { return &memory{clock: c, objects: map[object]there{}} }

// of returns what is known of an object, nothing if it is empty.
func (m *memory) of(o object) there {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.objects[o]
}

func (m *memory) note(o object, known there) {
	known.at = m.clock.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.objects[o] = known
}

func (m *memory) forget(o object) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.objects, o)
}

// pull says whether an account that was written pulls images with a Secret.
func (m *memory) pull(secret object) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	for o, known := range m.objects {
		if o.Namespace == secret.Namespace && slices.Contains(known.pulls, secret.Name) {
			return true
		}
	}
	return false
}

// outdated returns those of the wanted objects that the worker may lack, or may have in another version.
func (m *memory) outdated(all []wanted) (outdated []wanted) {
	for _, w := range all {
		if known := m.of(w.object); known.source != w.source || known.refused || m.clock.Since(known.at) > rememberedFor {
			outdated = append(outdated, w)
		}
	}
	return outdated
}

// turn has a token while somebody writes.
type turn chan struct{}

// take returns false if somebody else has the turn.
func (t turn) take() bool {
	select {
	case t <- struct{}{}:
		return true
	default:
		return false
	}
}

func (t turn) giveBack() { <-t }
