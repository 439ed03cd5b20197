// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// reported is what Events have reported of the copy, so that they report it once.
type reported struct {
	// generation of the job that was last compared with the copy.
	generation int64
	// refusal of a write to the copy.
	refusal string
	// cut is true once an Event has said that the status of the copy is too large for the hub.
	cut bool
}

// settable are the fields of a spec that the CRD lets a user set or remove once the job is there, besides
// runtimePatches.
var settable = []string{"activeDeadlineSeconds", "initializer", "trainer"}

// translatedFields are what runtimePatches are translated into.
var translatedFields = []string{string(v1alpha1.PodTemplateOverrides), string(v1alpha1.PodSpecOverrides), "labels", "annotations"}

// uncopied says once for each generation of the job what the user has changed since the copy was made: a copy keeps
// the spec with which it was created. The hub's webhook refuses such a change, where it is served.
func (a *announcer) uncopied() {
	generation := a.seen.job.GetGeneration()
	if a.attempt.reported.generation == generation || a.seen.copy.GetAnnotations()[v1alpha1.AnnotationSource] == sourceOf(a.seen.job) {
		return
	}
	a.attempt.reported.generation = generation
	if trainjobs.Suspended(a.seen.job) {
		return // The next copy has the change.
	}
	if names := uncopied(newSpec(a.seen.job, a.seen.dispatch, a.seen.copy), specOf(a.seen.copy)); len(names) > 0 {
		a.record(corev1.EventTypeWarning, "ChangeNotCopied",
			"The copy on worker %q does not get the change of %s, because it was made before; to bring the change to a new copy, "+
				"suspend the TrainJob, and resume it", a.cluster, strings.Join(names, ", "))
	}
}

// uncopied returns the fields in which a copy differs from what a new copy would have. The worker may have added
// defaults.
func uncopied(wanted, found map[string]any) []string {
	var names []string
	for _, field := range settable {
		if differs(wanted[field], found[field]) {
			names = append(names, "spec."+field)
		}
	}
	want, got := patchesOf(wanted), patchesOf(found)
	delete(want, trainjobs.TopologyManager) // The user does not set it.
	delete(got, trainjobs.TopologyManager)
	for _, manager := range slices.Sorted(maps.Keys(union(want, got))) {
		if differs(want[manager], got[manager]) {
			names = append(names, edit{path: []string{fieldPatches, manager}}.String())
		}
	}
	// The worker's Kueue may have added something.
	translated := func(field string) bool {
		return differs(wanted[field], found[field]) && !isPart(wanted[field], found[field])
	}
	if slices.ContainsFunc(translatedFields, translated) {
		names = append(names, "spec."+fieldPatches)
	}
	return names
}

// differs is true if something of wanted is missing in found, or if only one of them is there.
func differs(wanted, found any) bool {
	want, isMap := wanted.(map[string]any)
	got, wasMap := found.(map[string]any)
	if !isMap || !wasMap {
		return !equality.Semantic.DeepEqual(wanted, found)
	}
	for key, value := range want {
		if _, has := got[key]; !has || differs(value, got[key]) {
			return true
		}
	}
	return false
}

// refusal says once that the worker refuses a write to the copy, if the write does not correct an edit.
func (a *announcer) refusal(err error) {
	words := refusalWords(err)
	if a.attempt.reported.refusal == words {
		return
	}
	a.attempt.reported.refusal = words
	a.record(corev1.EventTypeWarning, "ChangeRefused", "Worker %s refuses to let the copy go on: %s", a.cluster, words)
}
