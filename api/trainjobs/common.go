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
	// longest is how long, in bytes, the canonical form of a value may be to be looked for among those that are known.
	longest = 1024
	// mostKnown is how many values are known at most. With more all are forgotten, and those that come again are learned again.
	mostKnown = 4096
)

// common are the values that the TrainJobs in the caches of this process have in common.
var common commonValues

// commonValues makes objects take less memory for as long as they are kept. What a decoder of JSON returns has all its names and values
// for itself, though most are the same in a thousand jobs of one team, and in a job and its copy. Its methods may be called from several
// goroutines, and what they return must not be changed.
type commonValues struct {
	mu sync.Mutex
	// known values by their canonical form, which for a text is the text in quotes; and form is room to make one. Both under mu.
	known map[string]any
	form  []byte
}

// of returns the object with values that others have too. Its metadata, which is no other's, is a map of its own.
func (c *commonValues) of(object map[string]any) map[string]any {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.own(object, "metadata")
}

// own returns a map of its own with shared values, but for the field of the name, which is a map of its own too.
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

// share returns the value as it is known, and adds its canonical form to form.
func (c *commonValues) share(value any) any {
	start := len(c.form)
	switch v := value.(type) {
	case map[string]any:
		shared := make(map[string]any, len(v))
		c.form = append(c.form, '{')
		for _, name := range slices.Sorted(maps.Keys(v)) {
			key := c.name(name) // It leaves form as it was.
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

// name returns the name of a field as it is known. It leaves form as it was.
func (c *commonValues) name(name string) string {
	start := len(c.form)
	c.form = strconv.AppendQuote(c.form, name)
	known, _ := c.learn(start, name).(string)
	c.form = c.form[:start]
	return known
}

// learn returns the value as it is known by the form from start on, or has it known.
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
