// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"encoding/json"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// mostValues is how many values the spec of a cached TrainJob may have. A map in memory takes thirty times the space of
	// its JSON, so one job of an API server's largest size would take 40 MB.
	mostValues = 2000
	// fieldPacked is the field of a cached spec that has the whole spec as JSON, and fieldDigest its digest. No API server
	// has these fields.
	fieldPacked = v1alpha1.KeyPrefix + "packed"
	fieldDigest = v1alpha1.KeyPrefix + "digest"
)

// pack replaces the spec of a TrainJob by its JSON if it has more than mostValues values. The fields that are asked all
// the time stay as they are.
func pack(job *unstructured.Unstructured) {
	spec, _ := job.Object["spec"].(map[string]any)
	if !hasMore(spec, mostValues) {
		return
	}
	data, err := json.Marshal(spec)
	if err != nil {
		return // It is not JSON. No API server sends that.
	}
	packed := PickFields(spec, "managedBy", "suspend", "runtimeRef")
	packed[fieldPacked], packed[fieldDigest] = string(data), digestOf(spec)
	job.Object["spec"] = packed
}

// packedSpec returns the JSON of a spec that was packed.
func packedSpec(job *unstructured.Unstructured) (data string, ok bool) {
	spec, _ := job.Object["spec"].(map[string]any)
	data, ok = spec[fieldPacked].(string)
	return data, ok
}

// Spec returns the spec of a TrainJob: the map itself, or a new map if the cache has packed it. It is nil if there is
// none.
func Spec(job *unstructured.Unstructured) map[string]any {
	spec, _ := job.Object["spec"].(map[string]any)
	data, packed := packedSpec(job)
	if !packed {
		return spec
	}
	whole := &unstructured.Unstructured{}
	// Of the decoders, this one makes whole numbers int64, as an informer does.
	if err := whole.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Spec","spec":%s}`, data)); err != nil {
		return spec // It is what pack has encoded.
	}
	unpacked, _ := whole.Object["spec"].(map[string]any)
	return unpacked
}

// hasMore is true if value has more than some number of values, itself and what is in it.
func hasMore(value any, number int) bool {
	return count(value, number+1) > number
}

// count counts the values of a value, up to a limit.
func count(value any, limit int) int {
	number := 1
	switch v := value.(type) {
	case map[string]any:
		for _, inner := range v {
			if number >= limit {
				break
			}
			number += count(inner, limit-number)
		}
	case []any:
		for _, inner := range v {
			if number >= limit {
				break
			}
			number += count(inner, limit-number)
		}
	}
	return number
}
