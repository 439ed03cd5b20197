// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/trainjobs/translate"
	"github.com/trainyard/trainyard/internal/records"
)

// The copy's spec may differ from the job's without an edit: the worker's API server has defaults, and its admission
// may change what is created. A difference is an edit if somebody else owns the field by metadata.managedFields, or if
// the copy lacks something of the job's: what is removed has no owner.

const (
	// kueueManagers is how the names of Kueue's field managers begin. Kueue changes the copies for which it has a
	// Workload.
	kueueManagers = "kueue"
	// fieldPatches is compared manager by manager. What it is translated into is compared as a whole.
	fieldPatches = translate.Patches
)

// edit is what somebody has changed.
type edit struct {
	// path has the names of the fields from the spec down to the changed field. A list is compared as a whole, except
	// runtimePatches: there the second name is the manager of the changed entry.
	path []string
	// value is what the field had before, nil if it had no value.
	value any
}

func (e edit) String() string {
	if e.path[0] == fieldPatches {
		return fmt.Sprintf("spec.%s[%s]", e.path[0], e.path[1])
	}
	return "spec." + strings.Join(e.path, ".")
}

// undo changes the spec back.
func (e edit) undo(spec map[string]any) {
	if e.path[0] == fieldPatches {
		undoPatch(spec, e.path[1], e.value)
		return
	}
	last := len(e.path) - 1
	for _, key := range e.path[:last] {
		spec = spec[key].(map[string]any) // compare came through it.
	}
	if e.value == nil {
		delete(spec, e.path[last])
	} else {
		spec[e.path[last]] = runtime.DeepCopyJSONValue(e.value)
	}
}

func undoPatch(spec map[string]any, manager string, value any) {
	patches, _ := spec[fieldPatches].([]any)
	at := slices.IndexFunc(patches, func(patch any) bool { return trainjobs.ManagerOf(patch) == manager })
	switch {
	case value == nil:
		patches = slices.Delete(patches, at, at+1)
	case at < 0:
		patches = append(patches, runtime.DeepCopyJSONValue(value))
	default:
		patches[at] = runtime.DeepCopyJSONValue(value)
	}
	if spec[fieldPatches] = patches; len(patches) == 0 {
		delete(spec, fieldPatches)
	}
}

// sameSpec is true if two specs do not differ in what is compared.
func sameSpec(a, b map[string]any) bool {
	return equality.Semantic.DeepEqual(compared(a), compared(b)) && equality.Semantic.DeepEqual(patchesOf(a), patchesOf(b))
}

// compared returns spec without the fields that are checked elsewhere or cannot change.
func compared(spec map[string]any) map[string]any {
	spec = maps.Clone(spec)
	for _, field := range []string{"suspend", "managedBy", "runtimeRef", fieldPatches} {
		delete(spec, field)
	}
	return spec
}

// patchesOf returns the runtimePatches of a spec by manager, without their times. It leaves out the entry of Kueue and
// the entry of the hub's flavors: a copy keeps the flavors with which it was created. Its domain and its grace period are
// compared: the Dispatch says both.
func patchesOf(spec map[string]any) map[string]any {
	patches, _ := spec[fieldPatches].([]any)
	byManager := map[string]any{}
	for _, patch := range patches {
		manager := trainjobs.ManagerOf(patch)
		recorded := manager == trainjobs.TopologyManager || manager == trainjobs.CheckpointManager
		if fields, ok := patch.(map[string]any); ok && (recorded || !trainjobs.StaysOnHub(manager)) {
			fields = maps.Clone(fields)
			delete(fields, "time")
			byManager[manager] = fields
		}
	}
	return byManager
}

// background is what has to be known to tell an edit from a difference.
type background struct {
	// jobChanged: the job has changed since the copy was made. What the copy lacks may be new on the hub.
	jobChanged bool
	// queued: the worker's Kueue has a Workload for the copy, so what Kueue has written is its own.
	queued bool
}

// editsOf returns what others have changed in the spec of a copy, which must have its managedFields.
func editsOf(wanted map[string]any, copy *unstructured.Unstructured, known background) []edit {
	owned := ownedByOthers(copy, known).inside("f:spec")
	edits := known.compare(nil, compared(wanted), compared(specOf(copy)), owned)
	want, found, owned := patchesOf(wanted), patchesOf(specOf(copy)), owned.inside("f:"+fieldPatches)
	for _, manager := range slices.Sorted(maps.Keys(union(want, found))) {
		others := len(owned.inside(fmt.Sprintf(`k:{"manager":%q}`, manager))) > 0
		missing := found[manager] == nil && !known.jobChanged
		if (others || missing) && !equality.Semantic.DeepEqual(want[manager], found[manager]) {
			edits = append(edits, edit{path: []string{fieldPatches, manager}, value: want[manager]})
		}
	}
	return edits
}

// compare returns the edits below a path, in the order of their names.
func (b background) compare(path []string, wanted, found map[string]any, owned ownership) []edit {
	var edits []edit
	for _, key := range slices.Sorted(maps.Keys(union(wanted, found))) {
		want, had := wanted[key]
		got, has := found[key]
		if equality.Semantic.DeepEqual(want, got) {
			continue
		}
		below, others := append(slices.Clone(path), key), owned.inside("f:"+key)
		wantMap, wasMap := want.(map[string]any)
		gotMap, isMap := got.(map[string]any)
		switch {
		case wasMap && isMap:
			edits = append(edits, b.compare(below, wantMap, gotMap, others)...)
		case len(others) > 0, !b.jobChanged && had && (!has || isPart(got, want)):
			edits = append(edits, edit{path: below, value: want})
		}
	}
	return edits
}

func union(a, b map[string]any) map[string]any {
	all := maps.Clone(a)
	maps.Copy(all, b)
	return all
}

// isPart is true if part is a list with fewer elements than whole, and whole has all of them.
func isPart(part, whole any) bool {
	some, isList := part.([]any)
	all, wasList := whole.([]any)
	return isList && wasList && len(some) < len(all) && !slices.ContainsFunc(some, func(one any) bool {
		return !slices.ContainsFunc(all, func(other any) bool { return equality.Semantic.DeepEqual(one, other) })
	})
}

// ownership is what some field managers own below one path: a tree for each, in the form of metadata.managedFields.
type ownership []map[string]any

// ownedByOthers is what was written by anybody except this hub, and except the worker's Kueue if it has the copy in its
// queue.
func ownedByOthers(copy *unstructured.Unstructured, known background) ownership {
	var owned ownership
	for _, entry := range copy.GetManagedFields() {
		ours := entry.Manager == string(records.FieldOwner) || known.queued && strings.HasPrefix(entry.Manager, kueueManagers)
		if ours || entry.Subresource != "" || entry.FieldsV1 == nil {
			continue
		}
		tree := map[string]any{}
		if err := json.Unmarshal(entry.FieldsV1.GetRawBytes(), &tree); err == nil {
			owned = append(owned, tree)
		}
	}
	return owned
}

// inside returns what is owned below one key. The owner of a field without listed parts owns everything in it.
func (o ownership) inside(key string) ownership {
	var below ownership
	for _, tree := range o {
		if len(tree) == 0 {
			below = append(below, tree)
		} else if child, ok := tree[key].(map[string]any); ok {
			below = append(below, child)
		}
	}
	return below
}
