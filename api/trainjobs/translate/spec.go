// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package translate

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs/fields"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// keyed are the lists of a pod that the Kubeflow Trainer merges by the keys of their elements.
var keyed = []string{"containers", "imagePullSecrets", "initContainers", "schedulingGates", "volumes"}

// UntranslatableError says which field of a spec cannot be translated.
type UntranslatableError struct {
	// Field is a path from the spec down, as Fields returns it.
	Field string
	// Into is the field that the worker has.
	Into v1alpha1.PatchesField
}

// Error implements error.
func (e *UntranslatableError) Error() string {
	return fmt.Sprintf("spec.%s cannot be translated into spec.%s", e.Field, e.Into)
}

// Spec translates the runtimePatches of a TrainJob's spec into the field that a worker has, which must not be empty. It
// returns another spec, and changes nothing. Its error is an UntranslatableError. What the worker's field does not know of
// pods is translated too: Lacking names it, and the worker's API server refuses it.
func Spec(spec map[string]any, into v1alpha1.PatchesField) (map[string]any, error) {
	t := &translation{into: into, spec: maps.Clone(spec), open: map[string]map[string]any{}}
	delete(t.spec, Patches)
	patches, _ := spec[Patches].([]any)
	for _, patch := range patches {
		if into != v1alpha1.PodSpecOverrides {
			clear(t.open)
		}
		if err := t.take(patch, Patches, ""); err != nil {
			return nil, err
		}
	}
	if len(t.entries) > 0 {
		t.spec[string(into)] = t.entries
	}
	return t.spec, nil
}

// translation is a spec that is being translated.
type translation struct {
	into v1alpha1.PatchesField
	spec map[string]any
	// entries of the field, and those of them to which parts are added, by the replicated job.
	entries []any
	open    map[string]map[string]any
}

// take translates what stands at a path in an entry of runtimePatches. job is the replicated job that it is about.
func (t *translation) take(value any, path, job string) error {
	switch value := value.(type) {
	case []any:
		for _, element := range value {
			fields, _ := element.(map[string]any)
			name, _ := fields["name"].(string)
			if err := t.take(element, path, name); err != nil {
				return err
			}
		}
		return nil
	case map[string]any:
		for _, key := range slices.Sorted(maps.Keys(value)) {
			if err := t.takeField(value[key], path+"."+key, job); err != nil {
				return err
			}
		}
		return nil
	}
	return &UntranslatableError{Field: path, Into: t.into}
}

func (t *translation) takeField(value any, path, job string) error {
	rules := rules[t.into]
	at := slices.IndexFunc(rules, func(r rule) bool { return r.part == path })
	switch {
	case value == nil, slices.Contains(structure, path):
		return nil
	case at >= 0:
		part, is := value.(map[string]any)
		if !is {
			return &UntranslatableError{Field: path, Into: t.into}
		}
		return t.put(part, rules[at].becomes, job)
	case slices.ContainsFunc(rules, func(r rule) bool { return strings.HasPrefix(r.part, path+".") }):
		return t.take(value, path, job)
	}
	return &UntranslatableError{Field: path, Into: t.into}
}

// put adds a part to the field that it becomes.
func (t *translation) put(part map[string]any, becomes, job string) error {
	if len(part) == 0 {
		return nil
	}
	below, ofPods := strings.CutPrefix(becomes, string(t.into))
	if !ofPods {
		t.spec[becomes] = merged(t.spec[becomes], part)
		return nil
	}
	entry := t.entry(job)
	if below == "" {
		return t.add(entry, part)
	}
	names := strings.Split(below, ".")[1:]
	for _, name := range names[:len(names)-1] {
		inner, _ := entry[name].(map[string]any)
		if inner == nil {
			inner = map[string]any{}
			entry[name] = inner
		}
		entry = inner
	}
	entry[names[len(names)-1]] = part
	return nil
}

// entry returns the entry for the pods of a replicated job.
func (t *translation) entry(job string) map[string]any {
	if t.open[job] == nil {
		t.open[job] = map[string]any{"targetJobs": []any{map[string]any{"name": job}}}
		t.entries = append(t.entries, t.open[job])
	}
	return t.open[job]
}

// add adds what a patch says of the pods of a replicated job to what earlier patches say.
func (t *translation) add(entry, pod map[string]any) error {
	for _, name := range slices.Sorted(maps.Keys(pod)) {
		earlier, has := entry[name]
		switch selector, isMap := pod[name].(map[string]any); {
		case isMap && hasDirective(selector):
			return &UntranslatableError{Field: directive, Into: t.into}
		case !has, name == "serviceAccountName", name == "tolerations":
			entry[name] = pod[name] // Of these two, the last one counts.
		case isMap && name == "nodeSelector":
			entry[name] = merged(earlier, selector)
		default:
			return &UntranslatableError{Field: podSpec + "." + name + Twice, Into: t.into}
		}
	}
	return nil
}

// merged is what is in both objects. The second one counts.
func merged(earlier any, later map[string]any) map[string]any {
	all := map[string]any{}
	if before, is := earlier.(map[string]any); is {
		maps.Copy(all, before)
	}
	maps.Copy(all, later)
	return all
}

func hasDirective(selector map[string]any) bool {
	for key := range selector {
		if strings.HasPrefix(key, "$") {
			return true
		}
	}
	return false
}

// Fields returns the fields that a spec has, as fields.Of, and what else Lacking can name: the lists that several patches of
// one replicated job have, with Twice, and directives in node selectors.
func Fields(spec map[string]any) []string {
	has := fields.Of(spec)
	patches, _ := spec[Patches].([]any)
	seen := map[[2]string]bool{}
	for _, patch := range patches {
		for job, pod := range podsOf(patch) {
			for _, list := range keyed {
				if _, is := pod[list]; is && seen[[2]string{job, list}] {
					has = append(has, podSpec+"."+list+Twice)
				} else if is {
					seen[[2]string{job, list}] = true
				}
			}
			if selector, is := pod["nodeSelector"].(map[string]any); is && hasDirective(selector) {
				has = append(has, directive)
			}
		}
	}
	slices.Sort(has)
	return slices.Compact(has)
}

// podsOf returns what an entry of runtimePatches says of pods, by the replicated job.
func podsOf(patch any) map[string]map[string]any {
	entry, _ := patch.(map[string]any)
	jobs, _, _ := unstructured.NestedFieldNoCopy(entry, "trainingRuntimeSpec", "template", "spec", "replicatedJobs")
	list, _ := jobs.([]any)
	pods := map[string]map[string]any{}
	for _, job := range list {
		fields, _ := job.(map[string]any)
		name, _ := fields["name"].(string)
		pod, _, _ := unstructured.NestedFieldNoCopy(fields, "template", "spec", "template", "spec")
		pods[name], _ = pod.(map[string]any)
	}
	return pods
}
