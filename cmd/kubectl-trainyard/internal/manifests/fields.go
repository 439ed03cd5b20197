// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package manifests

import (
	"fmt"
	"reflect"
	"strings"

	"github.com/trainyard/trainyard/internal/spelling"
)

// nearestField returns a part of a sentence with the field that is most similar to a path, or "". The path has the form
// that decoders use: spec.template.spec.containers[0].imag.
func nearestField(object any, path string) string {
	t := reflect.TypeOf(object)
	steps := strings.Split(path, ".")
	for _, step := range steps[:len(steps)-1] {
		name, _, isItem := strings.Cut(step, "[")
		if t = field(t, name); t == nil {
			return ""
		}
		if isItem {
			t = element(t)
		}
	}
	if near := spelling.Nearest(steps[len(steps)-1], fields(t)); near != "" {
		return fmt.Sprintf(" (did you mean %q?)", near)
	}
	return ""
}

// field returns the type of a field, by its JSON name, or nil.
func field(t reflect.Type, name string) reflect.Type {
	var found reflect.Type
	each(t, func(f reflect.StructField, n string) {
		if n == name {
			found = f.Type
		}
	})
	if found == nil && bare(t).Kind() == reflect.Map {
		return bare(t).Elem()
	}
	return found
}

func fields(t reflect.Type) (names []string) {
	each(t, func(_ reflect.StructField, name string) { names = append(names, name) })
	return names
}

// each visits the fields of a struct, including the fields of embedded structs.
func each(t reflect.Type, visit func(reflect.StructField, string)) {
	t = bare(t)
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case name == "" && f.Anonymous:
			each(f.Type, visit)
		case name != "":
			visit(f, name)
		}
	}
}

func element(t reflect.Type) reflect.Type {
	if t = bare(t); t.Kind() == reflect.Slice || t.Kind() == reflect.Array {
		return t.Elem()
	}
	return t
}

func bare(t reflect.Type) reflect.Type {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	return t
}
