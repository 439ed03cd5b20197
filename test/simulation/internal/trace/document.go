// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sort"
	"strings"
)

// document reads a JSON array element by element, and remembers where each value was in the file.
type document struct {
	file    string
	lines   *lines
	decoder *json.Decoder
}

// lines counts lines while a file is read.
type lines struct {
	in   io.Reader
	read int64
	ends []int64 // Offsets behind line breaks.
}

// Read implements io.Reader.
func (l *lines) Read(p []byte) (int, error) {
	n, err := l.in.Read(p)
	for at := 0; ; {
		next := bytes.IndexByte(p[at:n], '\n')
		if next < 0 {
			break
		}
		at += next + 1
		l.ends = append(l.ends, l.read+int64(at))
	}
	l.read += int64(n)
	return n, err
}

// position of an offset, from 1.
func (l *lines) position(offset int64) (line, column int) {
	line = sort.Search(len(l.ends), func(i int) bool { return l.ends[i] > offset })
	begin := int64(0)
	if line > 0 {
		begin = l.ends[line-1]
	}
	return line + 1, int(offset-begin) + 1
}

func newDocument(file string, in io.Reader) *document {
	l := &lines{in: in}
	d := json.NewDecoder(l)
	d.UseNumber()
	return &document{file: file, lines: l, decoder: d}
}

// array calls element with each element of the array.
func (d *document) array(element func(*value)) error {
	token, err := d.decoder.Token()
	if err != nil {
		return d.syntax(err)
	}
	if token != json.Delim('[') {
		return &Fault{File: d.file, Line: 1, Column: 1, Value: fmt.Sprint(token), Want: "a list of jobs, [{\"jobid\": ...}, ...]"}
	}
	for d.decoder.More() {
		v, err := d.value("")
		if err != nil {
			return d.syntax(err)
		}
		element(v)
	}
	if _, err = d.decoder.Token(); err != nil {
		return d.syntax(err)
	}
	return nil
}

// syntax says where the document stops being JSON.
func (d *document) syntax(err error) error {
	at := d.decoder.InputOffset()
	if syntax := (*json.SyntaxError)(nil); errors.As(err, &syntax) {
		at = syntax.Offset
	}
	line, column := d.lines.position(at)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return fmt.Errorf("%s:%d:%d: the file ends in the middle of the list", d.file, line, column)
	}
	return fmt.Errorf("%s:%d:%d: no JSON: %w", d.file, line, column, err)
}

type kind uint8

const (
	isNull kind = iota
	isString
	isOther // A number or a boolean.
	isArray
	isObject
)

// value is a part of the document.
type value struct {
	document *document
	path     string
	end      int64 // Offset behind its first token.
	kind     kind
	string   string
	items    []*value
	fields   map[string]*value
}

// value reads the next value.
func (d *document) value(path string) (*value, error) {
	token, err := d.decoder.Token()
	if err != nil {
		return nil, err
	}
	v := &value{document: d, path: path, end: d.decoder.InputOffset()}
	switch token := token.(type) {
	case nil:
	case string:
		v.kind, v.string = isString, token
	case json.Delim:
		if token == '[' {
			v.kind = isArray
			err = d.items(v)
		} else {
			v.kind = isObject
			err = d.fields(v)
		}
	default:
		v.kind, v.string = isOther, fmt.Sprint(token)
	}
	return v, err
}

func (d *document) items(v *value) error {
	for d.decoder.More() {
		item, err := d.value(index(v.path, len(v.items)))
		if err != nil {
			return err
		}
		v.items = append(v.items, item)
	}
	_, err := d.decoder.Token()
	return err
}

func (d *document) fields(v *value) error {
	v.fields = map[string]*value{}
	for d.decoder.More() {
		name, err := d.decoder.Token()
		if err != nil {
			return err
		}
		field, err := d.value(strings.TrimPrefix(v.path+"."+fmt.Sprint(name), "."))
		if err != nil {
			return err
		}
		v.fields[fmt.Sprint(name)] = field
	}
	_, err := d.decoder.Token()
	return err
}

// fault ends the reading of a job, which catches it with recoverFault.
func (v *value) fault(want string) {
	shown := v.string
	switch v.kind {
	case isNull:
		shown = "null"
	case isArray:
		shown = "a list"
	case isObject:
		shown = "an object"
	case isString, isOther:
	}
	line, column := v.document.lines.position(v.begin())
	panic(&Fault{File: v.document.file, Line: line, Column: column, Field: v.path, Value: shown, Want: want})
}

// begin is where the first token begins, as far as it can be told: escapes in a string are not counted.
func (v *value) begin() int64 {
	switch v.kind {
	case isString:
		return v.end - int64(len(v.string)) - 2
	case isNull:
		return v.end - int64(len("null"))
	case isArray, isObject, isOther:
	}
	return v.end - int64(max(len(v.string), 1))
}

// recoverFault turns the panic of a fault into an error.
func recoverFault(err *error) {
	switch fault := recover().(type) {
	case nil:
	case *Fault:
		*err = fault
	default:
		panic(fault)
	}
}

func (v *value) want(k kind, what string) {
	if v.kind != k {
		v.fault(what)
	}
}

// text is the string that the value is.
func (v *value) text(want string) string {
	v.want(isString, want)
	return v.string
}

func (v *value) elements(want string) []*value {
	v.want(isArray, want)
	return v.items
}

// field returns a field of an object. If it is missing, the fault is at the object.
func (v *value) field(name string) *value {
	v.want(isObject, "an object with "+name)
	field := v.fields[name]
	if field == nil {
		v.fault("an object with " + name + ", which is missing")
	}
	return field
}
