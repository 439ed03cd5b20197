// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"encoding/json"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/trainyard/trainyard/api/trainjobs/translate"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// CopySpec returns the spec of the copy of a job, with the fields of the hub. The entry of the hub's Kueue stays on the hub:
// it names the hub's queues, and the worker's Kueue makes its own entry under the same key. In its place the copy may have
// flavors, as FlavorsEntry returns them. Pods that belong together select the domain that the Dispatch names. The process
// is told what the Dispatch says about checkpoints.
func CopySpec(job *unstructured.Unstructured, dispatch *v1alpha1.DispatchSpec, flavors map[string]any) map[string]any {
	spec := runtime.DeepCopyJSON(Spec(job))
	if spec == nil {
		spec = map[string]any{}
	}
	spec["managedBy"] = v1alpha1.ManagedByBuiltIn
	patches, _ := spec[translate.Patches].([]any)
	patches = slices.DeleteFunc(patches, func(patch any) bool { return StaysOnHub(ManagerOf(patch)) })
	if flavors != nil {
		patches = append(patches, flavors)
	}
	for _, patch := range ownPatches(dispatch) {
		patches = append(patches, patch)
	}
	AddCheckpointEnv(spec, dispatch)
	if spec[translate.Patches] = patches; len(patches) == 0 {
		delete(spec, translate.Patches)
	}
	return spec
}

// ManagerOf returns the manager of an entry of runtimePatches.
func ManagerOf(patch any) string {
	fields, _ := patch.(map[string]any)
	manager, _ := fields["manager"].(string)
	return manager
}

// ownPatches returns the entries that keep pods in the domain of a Dispatch, and that give pods the grace period of their
// policy.
func ownPatches(dispatch *v1alpha1.DispatchSpec) []map[string]any {
	var typed []*trainer.RuntimePatch
	if domain := dispatch.Domain; domain != nil {
		typed = append(typed, DomainPatch(*domain, dispatch.PodSets))
	}
	if checkpoint := dispatch.Checkpoint; checkpoint != nil {
		typed = append(typed, GracePatch(checkpoint.Grace))
	}
	var patches []map[string]any
	for _, patch := range typed {
		if patch == nil {
			continue
		}
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(patch)
		if err == nil { // It is made of strings and numbers.
			patches = append(patches, fields)
		}
	}
	return patches
}

// FlavorsEntry returns what the entry of the hub's Kueue in a job says about nodes, as an entry of HubFlavorsManager, nil
// for nothing. The tolerations of an entry replace those of the runtime and of the user. So the entry has these too, from
// the PodSets, which were derived with them.
func FlavorsEntry(job *unstructured.Unstructured, podSets []v1alpha1.PodSet) map[string]any {
	patches, _ := Spec(job)[translate.Patches].([]any)
	at := slices.IndexFunc(patches, func(patch any) bool { return ManagerOf(patch) == KueueManager })
	if at < 0 {
		return nil
	}
	fields, _ := patches[at].(map[string]any)
	var entry trainer.RuntimePatch
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(fields, &entry); err != nil {
		return nil // Nor could the demand be derived.
	}
	flavors := FlavorsOf(entry)
	if flavors == nil {
		return nil
	}
	for _, patched := range PatchedJobs(*flavors) {
		pod := patched.Template.Spec.Template.Spec
		at := slices.IndexFunc(podSets, func(set v1alpha1.PodSet) bool { return set.Name == patched.Name })
		if len(pod.Tolerations) > 0 && at >= 0 {
			pod.Tolerations = WithTolerations(podSets[at].Tolerations, pod.Tolerations)
		}
	}
	nodes, err := runtime.DefaultUnstructuredConverter.ToUnstructured(flavors)
	if err != nil {
		return nil
	}
	return nodes
}

// Translate translates the spec of a copy for its worker. The annotations of the copy say that, and keep the entries of
// Trainyard's own managers, which nobody could recognise in the translation. A spec that cannot be translated stays as it
// is, and the worker refuses it.
func Translate(copy *unstructured.Unstructured, into v1alpha1.PatchesField) {
	spec := Spec(copy)
	translated, err := translate.Spec(spec, into)
	if err != nil {
		return
	}
	patches, _ := spec[translate.Patches].([]any)
	own := slices.DeleteFunc(slices.Clone(patches), func(patch any) bool { return !StaysOnHub(ManagerOf(patch)) })
	if encoded, err := json.Marshal(own); err == nil && len(own) > 0 {
		SetAnnotation(copy, v1alpha1.AnnotationOwnPatches, string(encoded))
	}
	SetAnnotation(copy, v1alpha1.AnnotationTranslatedInto, string(into))
	copy.Object["spec"] = translated
}

// TranslatedInto returns the field into which Translate has translated a copy, empty if it has not.
func TranslatedInto(copy *unstructured.Unstructured) v1alpha1.PatchesField {
	switch into := v1alpha1.PatchesField(copy.GetAnnotations()[v1alpha1.AnnotationTranslatedInto]); into {
	case v1alpha1.PodTemplateOverrides, v1alpha1.PodSpecOverrides:
		return into
	}
	return ""
}

// TranslatedFlavors returns the entry of HubFlavorsManager that a copy was translated with, nil if there was none.
func TranslatedFlavors(copy *unstructured.Unstructured) map[string]any {
	for _, patch := range translatedPatches(copy) {
		if ManagerOf(patch) == HubFlavorsManager {
			return patch
		}
	}
	return nil
}

// translatedPatches are the entries of Trainyard's own managers that a copy was translated with.
func translatedPatches(copy *unstructured.Unstructured) (own []map[string]any) {
	// Of the decoders, this one makes whole numbers int64, as an informer does.
	if err := utiljson.Unmarshal([]byte(copy.GetAnnotations()[v1alpha1.AnnotationOwnPatches]), &own); err != nil {
		return nil // Somebody on the worker has changed it.
	}
	return own
}
