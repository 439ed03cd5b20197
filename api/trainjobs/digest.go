// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

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
			return OfHubKueue(manager)
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
