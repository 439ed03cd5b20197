// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package drift

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// ignored is the TTL of a JobSet. What the hub brings to workers has none, so it is no difference that counts.
const ignored = "spec.template.spec.ttlSecondsAfterFinished"

// emptyIsAbsent are the fields that some clients write as {} and others leave out, where both mean the same. Of other
// fields {} says something: emptyDir or torch, say.
var emptyIsAbsent = map[string]bool{"metadata": true, "resources": true, "securityContext": true}

// differences returns the paths at which two specs differ, sorted. The specs are as an unstructured object has them.
func differences(a, b any) []string {
	var paths []string
	compare("spec", a, b, &paths)
	slices.Sort(paths)
	return paths
}

func compare(path string, a, b any, paths *[]string) {
	switch {
	case path == ignored || isAbsent(path, a) && isAbsent(path, b):
		return
	case isAbsent(path, a) || isAbsent(path, b):
		*paths = append(*paths, path)
		return
	}
	switch a := a.(type) {
	case map[string]any:
		if b, same := b.(map[string]any); same {
			compareMaps(path, a, b, paths)
			return
		}
	case []any:
		if b, same := b.([]any); same {
			for i := range max(len(a), len(b)) {
				compare(fmt.Sprintf("%s[%d]", path, i), at(a, i), at(b, i), paths)
			}
			return
		}
	default:
		if isEqual(path, a, b) {
			return
		}
	}
	*paths = append(*paths, path)
}

func compareMaps(path string, a, b map[string]any, paths *[]string) {
	keys := maps.Clone(a)
	maps.Copy(keys, b)
	for key := range keys {
		compare(path+step(key), a[key], b[key], paths)
	}
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return nil
}

// isAbsent is true for null, an empty list, and an empty object that says nothing.
func isAbsent(path string, value any) bool {
	switch value := value.(type) {
	case nil:
		return true
	case []any:
		return len(value) == 0
	case map[string]any:
		if !emptyIsAbsent[path[strings.LastIndex(path, ".")+1:]] {
			return false
		}
		for _, field := range value {
			if field != nil {
				return false
			}
		}
		return true
	}
	return false
}

// isQuantity matches the paths of amounts of resources.
var isQuantity = regexp.MustCompile(`\.(requests|limits|numProcPerNode)(\.[^.]*|\['[^']*'\])?$`)

// isEqual compares two values. Amounts are equal in any notation: a Go client writes 1 for 1000m.
func isEqual(path string, a, b any) bool {
	if a == b {
		return true
	}
	if !isQuantity.MatchString(path) {
		return false
	}
	first, err := resource.ParseQuantity(fmt.Sprint(a))
	if err != nil {
		return false
	}
	second, err := resource.ParseQuantity(fmt.Sprint(b))
	return err == nil && first.Cmp(second) == 0
}

var plainKey = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_-]*$`)

// step is a key of an object in a JSON path.
func step(key string) string {
	if plainKey.MatchString(key) {
		return "." + key
	}
	return "['" + key + "']"
}
