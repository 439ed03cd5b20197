// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package hubcache

import (
	"crypto/sha256"
	"encoding/json"
	"runtime"
	"sync"
	"weak"
)

// shapes are what packed objects of one kind have in common, as long as a packed object has it.
type shapes[T any] struct {
	mu sync.Mutex
	// known has the shapes by the digest of their JSON, under mu.
	known map[digest]weak.Pointer[T]
}

type digest [sha256.Size]byte

// of returns the known shape that equals this one. If there is none, this one becomes known. It is nil if the shape
// cannot be encoded. Nobody may change what it returns.
func (s *shapes[T]) of(shape *T) *T {
	data, err := json.Marshal(shape)
	if err != nil {
		return nil
	}
	key := digest(sha256.Sum256(data))
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.known[key].Value(); known != nil {
		return known
	}
	if s.known == nil {
		s.known = map[digest]weak.Pointer[T]{}
	}
	s.known[key] = weak.Make(shape)
	runtime.AddCleanup(shape, s.forget, key)
	return shape
}

// forget drops a shape that no object has any more, unless the same shape has become known again.
func (s *shapes[T]) forget(key digest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.known[key].Value() == nil {
		delete(s.known, key)
	}
}
