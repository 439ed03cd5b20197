// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"slices"
	"strings"

	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Patches is the field of the hub's TrainJobs that is translated.
const Patches = "runtimePatches"

// Twice comes after the name of a list that several patches of one replicated job have.
const Twice = " (in two patches of a replicated job)"

// Paths in an entry of runtimePatches, from the spec down.
const (
	jobSet        = Patches + ".trainingRuntimeSpec.template"
	replicatedJob = jobSet + ".spec.replicatedJobs"
	podTemplate   = replicatedJob + ".template.spec.template"
	podSpec       = podTemplate + ".spec"
	// directive is a key of a node selector by which the Kubeflow Trainer removes what the runtime selects.
	directive = podSpec + ".nodeSelector.$patch"
)

// rule says which field of a worker's TrainJobs has what a part of an entry of runtimePatches says.
type rule struct{ part, becomes string }

// ofJobSet are for both releases.
var ofJobSet = []rule{
	{jobSet + ".metadata.labels", "labels"},
	{jobSet + ".metadata.annotations", "annotations"},
}

// rules are the parts that can be translated, by the field that a worker has. All other parts cannot.
var rules = map[v1alpha1.PatchesField][]rule{
	v1alpha1.PodTemplateOverrides: slices.Concat(ofJobSet, []rule{
		{podTemplate + ".metadata.labels", "podTemplateOverrides.metadata.labels"},
		{podTemplate + ".metadata.annotations", "podTemplateOverrides.metadata.annotations"},
		{podSpec, "podTemplateOverrides.spec"},
	}),
	v1alpha1.PodSpecOverrides: slices.Concat(ofJobSet, []rule{{podSpec, "podSpecOverrides"}}),
}

// structure are the fields of an entry that say where a part belongs, or nothing to the Kubeflow Trainer.
var structure = []string{Patches + ".manager", Patches + ".time", replicatedJob + ".name"}

// Into returns the field into which runtimePatches have to be translated for a worker whose TrainJobs have a spec with
// these fields. Empty: the worker has runtimePatches, or nothing like that.
func Into(has []string) v1alpha1.PatchesField {
	for _, field := range []v1alpha1.PatchesField{Patches, v1alpha1.PodTemplateOverrides, v1alpha1.PodSpecOverrides} {
		if slices.Contains(has, string(field)) {
			if field == Patches {
				return ""
			}
			return field
		}
	}
	return ""
}

// Lacking returns the fields of the hub's TrainJobs that can be brought to a worker in no form, sorted: the worker does not
// have them, and they cannot be translated. The names are those that Fields returns.
func Lacking(hub, worker *fields.Schema) []string {
	missing, into := hub.Missing(worker), Into(worker.Names())
	at := slices.Index(missing, Patches)
	if into == "" || at < 0 {
		return missing
	}
	lacking := slices.Delete(missing, at, at+1)
	lacking = untranslatable(lacking, Patches, hub.At(Patches), worker, rules[into])
	if into == v1alpha1.PodSpecOverrides {
		lacking = append(lacking, directive)
		for _, list := range keyed {
			if worker.Has(string(into) + "." + list) {
				lacking = append(lacking, podSpec+"."+list+Twice)
			}
		}
	}
	slices.Sort(lacking)
	return lacking
}

// untranslatable adds the fields below a path for which there is no rule, or which the worker does not have by the rule.
func untranslatable(found []string, path string, hub, worker *fields.Schema, rules []rule) []string {
	for _, name := range hub.Names() {
		below := path + "." + name
		at := slices.IndexFunc(rules, func(r rule) bool { return r.part == below })
		switch {
		case at >= 0 && worker.Has(rules[at].becomes):
			found = append(found, hub.Field(name).MissingBelow(below, worker.At(rules[at].becomes))...)
		case at < 0 && slices.ContainsFunc(rules, func(r rule) bool { return strings.HasPrefix(r.part, below+".") }):
			found = untranslatable(found, below, hub.Field(name), worker, rules)
		case !slices.Contains(structure, below):
			found = append(found, below)
		}
	}
	return found
}
