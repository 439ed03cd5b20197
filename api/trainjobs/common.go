// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
)

const (
	// longest is how many bytes the canonical form of a shared value may have.
	longest = 1024
	// mostKnown is how many values may be known. With more, all are dropped and learned again.
	mostKnown = 4096
)

// common are the values that the TrainJobs in the caches of this process have in common.
var common commonValues

// commonValues saves memory for objects that stay in memory. A decoder of JSON allocates all names and values again for
// each object, although most are equal in a thousand jobs of one team, and in a job and its copy. Its methods may be
// called concurrently. Do not change what they return.
type commonValues struct {
	mu sync.Mutex
	// known has values by their canonical form. For a text that is the quoted text. form is a buffer. mu guards both.
	known map[string]any
	form  []byte
}

// of returns the object with shared values. Its metadata is not shared: it is a map of its own.
func (c *commonValues) of(object map[string]any) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own(object, "metadata")
}

// own returns an unshared map with shared values. The value of the field apart is an unshared map too.
func (c *commonValues) own(fields map[string]any, apart string) map[string]any {
	shared := make(map[string]any, len(fields))
	for name, value := range fields {
		c.form = c.form[:0]
		if inner, ok := value.(map[string]any); ok && name == apart {
			shared[name] = c.own(inner, "")
		} else {
			shared[c.name(name)] = c.share(value)
		}
	}
	return shared
}

// share returns the known equal value, and appends its canonical form to form.
func (c *commonValues) share(value any) any {
	start := len(c.form)
	switch v := value.(type) {
	case map[string]any:
		shared := make(map[string]any, len(v))
		c.form = append(c.form, '{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			key := c.name(name) // It does not change form.
			c.form = append(strconv.AppendQuote(c.form, name), ':')
			shared[key] = c.share(v[name])
		}
		c.form = append(c.form, '}')
		value = shared
	case []any:
		shared := make([]any, len(v))
		c.form = append(c.form, '[')
		for i := range v {
			shared[i] = c.share(v[i])
			c.form = append(c.form, ',')
		}
		c.form = append(c.form, ']')
		value = shared
	case string:
		c.form = strconv.AppendQuote(c.form, v)
	default: // A number, true, false or null. 1.0 is not 1.
		c.form = fmt.Appendf(c.form, "%T(%v)", v, v)
	}
	return c.learn(start, value)
}

// name returns the known equal name of a field. It does not change form.
func (c *commonValues) name(name string) string {
	start := len(c.form)
	c.form = strconv.AppendQuote(c.form, name)
	known, _ := c.learn(start, name).(string)
	c.form = c.form[:start]
	return known
}

// learn returns the known value whose form is form[start:]. If there is none, value becomes known.
func (c *commonValues) learn(start int, value any) any {
	form := c.form[start:]
	if len(form) > longest {
		return value
	}
	if known, ok := c.known[string(form)]; ok {
		return known
	}
	if c.known == nil || len(c.known) >= mostKnown {
		c.known = make(map[string]any)
	}
	c.known[string(form)] = value
	return value
}
