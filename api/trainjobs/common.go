// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"fmt"
	"hash/maphash"
	"maps"
	"slices"
	"strconv"
	"sync"
)

const (
	// longest is how many bytes the canonical form of a shared value may have.
	longest = 1024
	// shelves is in how many parts the known values are divided, so that caches of many workers seldom meet.
	shelves = 64
	// mostKnown is how many values one shelf may have. With more, the values of the shelf are dropped and learned again.
	mostKnown = 64
)

// common are the values that the TrainJobs in the caches of this process have in common.
var common commonValues

// seed of the hash by which a value has its shelf.
var seed = maphash.MakeSeed()

// commonValues saves memory for objects that stay in memory. A decoder of JSON allocates all names and values again for
// each object, although most are equal in a thousand jobs of one team, and in a job and its copy. Its methods may be
// called concurrently. Do not change what they return.
type commonValues struct{ known [shelves]shelf }

// shelf has known values.
type shelf struct {
	mu sync.Mutex
	// values by their canonical form, under mu. For a text that is the quoted text.
	values map[string]any
}

// of returns the object with shared values. Its metadata is not shared: it is a map of its own.
func (c *commonValues) of(object map[string]any) map[string]any {
	s := &sharing{known: c}
	return s.own(object, "metadata")
}

// learn returns the known value of this form. If there is none, value becomes known.
func (c *commonValues) learn(form []byte, value any) any {
	if len(form) > longest {
		return value
	}
	s := &c.known[maphash.Bytes(seed, form)%shelves]
	s.mu.Lock()
	defer s.mu.Unlock()
	if known, ok := s.values[string(form)]; ok {
		return known
	}
	if s.values == nil || len(s.values) >= mostKnown {
		s.values = make(map[string]any)
	}
	s.values[string(form)] = value
	return value
}

// sharing is the work on one object.
type sharing struct {
	known *commonValues
	// form is a buffer.
	form []byte
}

// own returns an unshared map with shared values. The value of the field apart is an unshared map too.
func (s *sharing) own(fields map[string]any, apart string) map[string]any {
	shared := make(map[string]any, len(fields))
	for name, value := range fields {
		s.form = s.form[:0]
		if inner, ok := value.(map[string]any); ok && name == apart {
			shared[name] = s.own(inner, "")
		} else {
			shared[s.name(name)] = s.share(value)
		}
	}
	return shared
}

// share returns the known equal value, and appends its canonical form to form.
func (s *sharing) share(value any) any {
	start := len(s.form)
	switch v := value.(type) {
	case map[string]any:
		shared := make(map[string]any, len(v))
		s.form = append(s.form, '{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			key := s.name(name) // It does not change form.
			s.form = append(strconv.AppendQuote(s.form, name), ':')
			shared[key] = s.share(v[name])
		}
		s.form = append(s.form, '}')
		value = shared
	case []any:
		shared := make([]any, len(v))
		s.form = append(s.form, '[')
		for i := range v {
			shared[i] = s.share(v[i])
			s.form = append(s.form, ',')
		}
		s.form = append(s.form, ']')
		value = shared
	case string:
		if len(v) > longest { // It makes each form too long in which it is.
			s.form = append(s.form, v[:longest+1]...)
			return value
		}
		s.form = strconv.AppendQuote(s.form, v)
	default: // A number, true, false or null. 1.0 is not 1.
		s.form = fmt.Appendf(s.form, "%T(%v)", v, v)
	}
	return s.known.learn(s.form[start:], value)
}

// name returns the known equal name of a field. It does not change form.
func (s *sharing) name(name string) string {
	start := len(s.form)
	s.form = strconv.AppendQuote(s.form, name)
	known, _ := s.known.learn(s.form[start:], name).(string)
	s.form = s.form[:start]
	return known
}
