// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"

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

// Digest sums up what of a hub TrainJob counts for its demand, its priority and its policy, and comes to its copy: the
// spec and the labels. What others write to start and stop a job is left out: spec.suspend, spec.managedBy, and what
// Kueue adds to spec.runtimePatches when it resumes the job. It is a SHA-256, so that no user can make two jobs with one
// digest.
func Digest(job *unstructured.Unstructured) string {
	spec, _ := job.Object["spec"].(map[string]any)
	digest, packed := spec[fieldDigest].(string)
	if !packed {
		digest = digestOf(spec)
	}
	return hashOf([]any{digest, job.GetLabels()})
}

// digestOf is the part of Digest that is about a spec, which must not be packed.
func digestOf(spec map[string]any) string {
	const patches = "runtimePatches"
	spec = maps.Clone(spec)
	delete(spec, "suspend")
	delete(spec, "managedBy")
	if entries, ok := spec[patches].([]any); ok {
		entries = slices.DeleteFunc(slices.Clone(entries), func(entry any) bool {
			fields, _ := entry.(map[string]any)
			manager, _ := fields["manager"].(string)
			return StaysOnHub(manager)
		})
		if spec[patches] = entries; len(entries) == 0 {
			delete(spec, patches)
		}
	}
	return hashOf(spec)
}

// hashOf is the SHA-256 of the JSON of a value. Maps are encoded in the order of their keys. A hash takes everything, and
// what JSON has made is JSON again.
func hashOf(value any) string {
	hash := sha256.New()
	_ = json.NewEncoder(hash).Encode(value)
	return hex.EncodeToString(hash.Sum(nil))
}
