// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fields

import (
	"maps"
	"regexp"
	"slices"
	"strings"
)

// Of returns the fields that an object has, sorted: its scalars with their types, and its empty lists and objects. A field
// without a value (null) is not there. Keys of maps that cannot be names of fields, such as those of labels, are left out.
func Of(object map[string]any) []string {
	found := map[string]bool{}
	collect(found, "", object)
	return slices.Sorted(maps.Keys(found))
}

// Unknown returns those of the missing fields, as Missing returns them, that are in has, as Of returns it.
func Unknown(has, missing []string) []string {
	var unknown []string
	for _, field := range missing {
		at, found := slices.BinarySearch(has, field)
		for ; !found && at < len(has) && strings.HasPrefix(has[at], field); at++ {
			rest := has[at][len(field):]
			found = strings.HasPrefix(rest, ".") || strings.HasPrefix(rest, " (")
		}
		if found {
			unknown = append(unknown, field)
		}
	}
	return unknown
}

// names are what fields of Kubernetes' APIs are called.
var names = regexp.MustCompile(`^[a-z][A-Za-z0-9]*$`)

func collect(found map[string]bool, path string, value any) {
	kind := ""
	switch value := value.(type) {
	case nil:
		return
	case map[string]any:
		named := false
		for key, field := range value {
			if names.MatchString(key) {
				collect(found, join(path, key), field)
				named = true
			}
		}
		if named || path == "" {
			return
		}
	case []any:
		for _, element := range value {
			collect(found, path, element)
		}
		if len(value) > 0 {
			return
		}
	case string:
		kind = "string"
	case bool:
		kind = "boolean"
	case float64:
		kind = "number"
	default: // int64, as unstructured objects have it.
		kind = "integer"
	}
	if kind != "" {
		path = typed(path, kind)
	}
	found[path] = true
}
