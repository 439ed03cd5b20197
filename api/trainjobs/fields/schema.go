// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
)

// A document of a real API server is far below these limits. They keep another one from filling the memory.
const (
	maxDepth  = 64
	maxFields = 100_000
)

// ErrTooLarge is the error of a schema that no API server has.
var ErrTooLarge = fmt.Errorf("a schema is deeper than %d levels, or has more than %d fields", maxDepth, maxFields)

var errSyntax = errors.New("the answer is no OpenAPI document")

// Schema is what an API knows of an object or of a value.
type Schema struct {
	// fields of an object, or of the elements of a list.
	fields map[string]*Schema
	// any is true if the names of fields are free: maps, and objects that keep unknown fields.
	any bool
	// types are the JSON types of a scalar, sorted. Empty: it is no scalar, or its type is not known.
	types []string
}

// Field returns the schema of a field, nil if there is none.
func (s *Schema) Field(name string) *Schema {
	if s == nil {
		return nil
	}
	return s.fields[name]
}

// Names returns the names of the fields, sorted.
func (s *Schema) Names() []string {
	if s == nil {
		return nil
	}
	names := make([]string, 0, len(s.fields))
	for name := range s.fields {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// At returns the schema of the field with a path, nil if there is none.
func (s *Schema) At(path string) *Schema {
	for name := range strings.SplitSeq(path, ".") {
		s = s.Field(name)
	}
	return s
}

// Has says whether the schema has a field with this path.
func (s *Schema) Has(path string) bool { return s.At(path) != nil }

// Read reads an OpenAPI v3 document, and returns the schemas of the specs of some kinds. It keeps nothing else of the
// document. A kind that the document does not have is missing in the result.
func Read(document io.Reader, kinds ...string) (map[string]*Schema, error) {
	r := &reader{decoder: json.NewDecoder(document)}
	specs := map[string]*Schema{}
	err := r.object(func(key string) error {
		if key != "components" {
			return r.skip()
		}
		return r.object(func(key string) error {
			if key != "schemas" {
				return r.skip()
			}
			return r.object(func(name string) error {
				kind := name[strings.LastIndexByte(name, '.')+1:]
				if !slices.Contains(kinds, kind) {
					return r.skip()
				}
				schema, err := r.kind()
				if err == nil && schema != nil {
					specs[kind] = schema
				}
				return err
			})
		})
	})
	return specs, err
}

// reader reads a document token by token.
type reader struct {
	decoder *json.Decoder
	depth   int
	fields  int
}

// object reads an object. each has to read the value of a key.
func (r *reader) object(each func(key string) error) error {
	if err := r.delim('{'); err != nil {
		return err
	}
	for r.decoder.More() {
		token, err := r.decoder.Token()
		if err != nil {
			return err
		}
		key, ok := token.(string)
		if !ok {
			return errSyntax
		}
		if err := each(key); err != nil {
			return err
		}
	}
	return r.delim('}')
}

func (r *reader) list(each func() error) error {
	if err := r.delim('['); err != nil {
		return err
	}
	for r.decoder.More() {
		if err := each(); err != nil {
			return err
		}
	}
	return r.delim(']')
}

func (r *reader) delim(want json.Delim) error {
	token, err := r.decoder.Token()
	if err != nil {
		return err
	}
	if token != want {
		return errSyntax
	}
	return nil
}

// skip reads a value and forgets it.
func (r *reader) skip() error {
	open := 0
	for {
		token, err := r.decoder.Token()
		if err != nil {
			return err
		}
		switch token {
		case json.Delim('{'), json.Delim('['):
			open++
		case json.Delim('}'), json.Delim(']'):
			open--
		}
		if open == 0 {
			return nil
		}
	}
}

// kind reads the schema of a kind, and returns that of its spec.
func (r *reader) kind() (spec *Schema, err error) {
	err = r.object(func(key string) error {
		if key != "properties" {
			return r.skip()
		}
		return r.object(func(name string) error {
			if name != "spec" {
				return r.skip()
			}
			spec, err = r.schema()
			return err
		})
	})
	return spec, err
}

// schema reads a schema. Of a list, it is the schema of the elements.
func (r *reader) schema() (*Schema, error) {
	r.depth++
	defer func() { r.depth-- }()
	if r.fields++; r.depth > maxDepth || r.fields > maxFields {
		return nil, ErrTooLarge
	}
	s := &Schema{}
	err := r.object(func(key string) error {
		switch key {
		case "properties":
			return r.properties(s)
		case "items":
			items, err := r.schema()
			s.add(items)
			return err
		case "type":
			return r.scalar(s)
		case "anyOf": // Of an int-or-string.
			return r.list(func() error {
				one, err := r.schema()
				s.add(one)
				return err
			})
		case "additionalProperties", "$ref", "allOf", "oneOf":
			s.any = true
		case "x-kubernetes-preserve-unknown-fields":
			return r.decoder.Decode(&s.any)
		}
		return r.skip()
	})
	slices.Sort(s.types)
	s.types = slices.Compact(s.types)
	return s, err
}

func (r *reader) properties(s *Schema) error {
	return r.object(func(name string) error {
		field, err := r.schema()
		if err != nil {
			return err
		}
		if s.fields == nil {
			s.fields = map[string]*Schema{}
		}
		s.fields[name] = field
		return nil
	})
}

func (r *reader) scalar(s *Schema) error {
	var name string
	if err := r.decoder.Decode(&name); err != nil {
		return err
	}
	if name != "object" && name != "array" {
		s.types = append(s.types, name)
	}
	return nil
}

// add makes s know what part knows.
func (s *Schema) add(part *Schema) {
	if part == nil {
		return
	}
	s.any = s.any || part.any
	s.types = append(s.types, part.types...)
	for name, field := range part.fields {
		if s.fields == nil {
			s.fields = map[string]*Schema{}
		}
		if s.fields[name] == nil {
			s.fields[name] = field
		}
	}
}

// Missing returns the fields of s that other does not know, and the types of scalars that other does not take, sorted.
// Of a field that is missing, it does not have the fields below.
func (s *Schema) Missing(other *Schema) []string { return s.MissingBelow("", other) }

// MissingBelow is Missing for the schema of the field with a path. It returns whole paths.
func (s *Schema) MissingBelow(path string, other *Schema) []string {
	missing := s.missing(nil, path, other)
	slices.Sort(missing)
	return missing
}

func (s *Schema) missing(found []string, path string, other *Schema) []string {
	if other.any {
		return found
	}
	if len(other.types) > 0 {
		for _, name := range s.types {
			if !takes(other.types, name) {
				found = append(found, typed(path, name))
			}
		}
	}
	for name, field := range s.fields {
		below := join(path, name)
		if known := other.fields[name]; known != nil {
			found = field.missing(found, below, known)
		} else {
			found = append(found, below)
		}
	}
	return found
}

// takes says whether a scalar with these types takes a value of a type.
func takes(types []string, name string) bool {
	return slices.Contains(types, name) || name == "integer" && slices.Contains(types, "number")
}

func join(path, name string) string {
	if path == "" {
		return name
	}
	return path + "." + name
}

func typed(path, name string) string { return path + " (" + name + ")" }
