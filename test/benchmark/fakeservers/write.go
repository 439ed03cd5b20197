// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"errors"
	"fmt"
	"maps"
	"mime"
	"net/http"
	"slices"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/utils/ptr"
)

func (h *handler) create(w http.ResponseWriter, r *http.Request, of target) {
	content, err := decode(r)
	if err != nil {
		refuse(w, err)
		return
	}
	h.createFrom(w, r, of, content)
}

func (h *handler) createFrom(w http.ResponseWriter, r *http.Request, of target, content map[string]any) {
	var err error
	if of.key.Name, err = nameOf(of, content); err == nil {
		content, err = known(r, of.kind, content)
	}
	if err != nil {
		refuse(w, err)
		return
	}
	switch {
	case of.kind.status && of.kind.custom:
		delete(content, "status")
	case of.kind == namespaces:
		content = mergeJSON(content, newNamespace(of.key.Name))
	}
	o, err := h.store.create(of.kind, of.key, content)
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusCreated, shown(r, o))
}

// nameOf is the name of what is to be created.
func nameOf(of target, content map[string]any) (string, error) {
	meta := metadataOf(content)
	name := meta.GetName()
	switch {
	case meta.GetNamespace() != "" && meta.GetNamespace() != of.key.Namespace:
		return "", apierrors.NewBadRequest("the namespace of the provided object does not match the namespace sent on the request")
	case meta.GetKind() != of.kind.Kind && meta.GetKind() != "":
		return "", badKind(meta.GetKind(), of.kind, "")
	case name == "" && meta.GetGenerateName() != "":
		return meta.GetGenerateName() + utilrand.String(5), nil
	}
	path := field.NewPath("metadata", "name")
	if name == "" {
		fault := field.Required(path, "name or generateName is required")
		return "", apierrors.NewInvalid(of.kind.GroupKind(), name, field.ErrorList{fault})
	}
	if faults := validation.IsDNS1123Subdomain(name); len(faults) > 0 {
		return "", apierrors.NewInvalid(of.kind.GroupKind(), name, field.ErrorList{field.Invalid(path, name, faults[0])})
	}
	return name, nil
}

func badKind(is string, wanted *kind, why string) error {
	return apierrors.NewBadRequest(fmt.Sprintf("%s in version %q cannot be handled as a %s%s", is, wanted.Version, wanted.Kind, why))
}

// known refuses or prunes unknown fields of a TrainJob's spec, as the request wants it.
func known(r *http.Request, k *kind, content map[string]any) (map[string]any, error) {
	spec, _ := content["spec"].(map[string]any)
	if k != trainJobs || spec == nil {
		return content, nil
	}
	pruned := maps.Clone(spec)
	for _, name := range slices.Sorted(maps.Keys(spec)) {
		if slices.Contains(specFields, name) {
			continue
		}
		if r.URL.Query().Get("fieldValidation") == "Strict" {
			return nil, badKind(k.Kind, k, fmt.Sprintf(": strict decoding error: unknown field \"spec.%s\"", name))
		}
		delete(pruned, name)
	}
	content = maps.Clone(content)
	content["spec"] = pruned
	return content, nil
}

func (h *handler) replace(w http.ResponseWriter, r *http.Request, of target) {
	content, err := decode(r)
	if err == nil && of.kind.custom && metadataOf(content).GetResourceVersion() == "" {
		fault := field.Invalid(field.NewPath("metadata", "resourceVersion"), 0, "must be specified for an update")
		err = apierrors.NewInvalid(of.kind.GroupKind(), of.key.Name, field.ErrorList{fault})
	}
	if err != nil {
		refuse(w, err)
		return
	}
	h.write(w, r, of, func(before *object) (map[string]any, error) {
		if uid := metadataOf(content).GetUID(); uid != "" && uid != before.meta.GetUID() {
			return nil, unmet(before, of.kind.plural, "UID", string(uid), string(before.meta.GetUID()))
		}
		return content, nil
	})
}

func (h *handler) patch(w http.ResponseWriter, r *http.Request, of target) {
	media, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")) // Without one it is none of these.
	apply := types.PatchType(media) == types.ApplyPatchType
	if !apply && types.PatchType(media) != types.MergePatchType {
		refuse(w, &apierrors.StatusError{ErrStatus: metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusUnsupportedMediaType, Reason: metav1.StatusReasonUnsupportedMediaType,
			Message: fmt.Sprintf("the fake server knows merge patches and applies, and not %q", media),
		}})
		return
	}
	patch, err := decode(r)
	if err != nil {
		refuse(w, err)
		return
	}
	if apply {
		if _, err := h.store.get(of.kind, of.key); apierrors.IsNotFound(err) && of.subresource == "" {
			h.createFrom(w, r, of, patch)
			return
		}
	}
	h.write(w, r, of, func(before *object) (map[string]any, error) {
		if uid := metadataOf(patch).GetUID(); uid != "" && uid != before.meta.GetUID() {
			fault := field.Invalid(field.NewPath("metadata", "uid"), uid, "field is immutable")
			return nil, apierrors.NewInvalid(of.kind.GroupKind(), of.key.Name, field.ErrorList{fault})
		}
		return mergeJSON(before.content(), patch), nil
	})
}

// write replaces an object by the result of make. Only what may be written at the path of the request changes.
func (h *handler) write(w http.ResponseWriter, r *http.Request, of target, make func(*object) (map[string]any, error)) {
	o, err := h.store.update(of.kind, of.key, func(before *object) (map[string]any, error) {
		wanted, err := make(before)
		if err != nil {
			return nil, err
		}
		if err := sameVersion(before, wanted); err != nil {
			return nil, err
		}
		content, err := writable(of, before, fork(wanted))
		if err != nil {
			return nil, err
		}
		return known(r, of.kind, content)
	})
	if err != nil {
		refuse(w, err)
		return
	}
	answer(w, http.StatusOK, shown(r, o))
}

// sameVersion compares a resource version with the version that a client has seen.
func sameVersion(before *object, wanted map[string]any) error {
	if version := metadataOf(wanted).GetResourceVersion(); version != "" && version != before.meta.GetResourceVersion() {
		return apierrors.NewConflict(before.kind.resource(), before.key.Name,
			errors.New("the object has been modified; please apply your changes to the latest version and try again"))
	}
	return nil
}

// unmet is the error of a precondition. as is the kind or the resource: some errors of API servers name the kind,
// others the resource.
func unmet(before *object, as, what, wanted, is string) error {
	words := fmt.Sprintf("Precondition failed: %[1]s in precondition: %[2]s, %[1]s in object meta: %[3]s", what, wanted, is)
	return apierrors.NewConflict(schema.GroupResource{Group: before.kind.Group, Resource: as}, before.key.Name, errors.New(words))
}

// writable keeps what a client may write at this path: at the status path only the status, otherwise everything else.
// It never keeps what only the API server writes.
func writable(of target, before *object, wanted map[string]any) (map[string]any, error) {
	old := before.content()
	if of.subresource == "status" {
		content := fork(old)
		if status, ok := wanted["status"]; ok {
			content["status"] = status
		}
		return content, nil
	}
	if of.kind.status {
		if delete(wanted, "status"); old["status"] != nil {
			wanted["status"] = old["status"]
		}
	}
	wanted["apiVersion"], wanted["kind"] = old["apiVersion"], old["kind"]
	metadata, was := wanted["metadata"].(map[string]any), old["metadata"].(map[string]any)
	if name := metadata["name"]; name != nil && name != before.key.Name {
		words := fmt.Sprintf("the name of the object (%v) does not match the name on the URL (%s)", name, before.key.Name)
		return nil, apierrors.NewBadRequest(words)
	}
	for _, name := range []string{
		"name", "namespace", "uid", "creationTimestamp", "deletionTimestamp", "deletionGracePeriodSeconds", "generation", "resourceVersion",
	} {
		if delete(metadata, name); was[name] != nil {
			metadata[name] = runtime.DeepCopyJSONValue(was[name])
		}
	}
	delete(metadata, "managedFields")
	return wanted, nil
}

func (h *handler) delete(w http.ResponseWriter, r *http.Request, of target) {
	options, err := deleteOptions(r)
	if err != nil {
		refuse(w, err)
		return
	}
	gone := false
	o, err := h.store.update(of.kind, of.key, func(before *object) (map[string]any, error) {
		content, err := deleted(before, options)
		gone = content == nil
		return content, err
	})
	switch {
	case err != nil:
		refuse(w, err)
	case gone && of.kind.custom:
		answer(w, http.StatusOK, metav1.Status{
			TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"}, Status: metav1.StatusSuccess,
			Details: &metav1.StatusDetails{Name: of.key.Name, Group: of.kind.Group, Kind: of.kind.plural, UID: o.meta.GetUID()},
		})
	default:
		answer(w, http.StatusOK, shown(r, o))
	}
}

func deleteOptions(r *http.Request) (metav1.DeleteOptions, error) {
	options := metav1.DeleteOptions{}
	content, err := decode(r)
	if err == nil {
		err = runtime.DefaultUnstructuredConverter.FromUnstructured(content, &options)
	}
	if policy := r.URL.Query().Get("propagationPolicy"); policy != "" {
		options.PropagationPolicy = ptr.To(metav1.DeletionPropagation(policy))
	}
	return options, err
}

// deleted returns what an object becomes when it is deleted, nil if it is gone at once.
func deleted(before *object, options metav1.DeleteOptions) (map[string]any, error) {
	if p := options.Preconditions; p != nil {
		if is := before.meta.GetUID(); ptr.Deref(p.UID, is) != is {
			return nil, unmet(before, before.kind.Kind, "UID", string(*p.UID), string(is))
		}
		if is := before.meta.GetResourceVersion(); ptr.Deref(p.ResourceVersion, is) != is {
			return nil, unmet(before, before.kind.Kind, "ResourceVersion", *p.ResourceVersion, is)
		}
	}
	finalizers := before.meta.GetFinalizers()
	switch ptr.Deref(options.PropagationPolicy, metav1.DeletePropagationBackground) {
	case metav1.DeletePropagationForeground:
		finalizers = with(finalizers, metav1.FinalizerDeleteDependents)
	case metav1.DeletePropagationOrphan:
		finalizers = with(finalizers, metav1.FinalizerOrphanDependents)
	case metav1.DeletePropagationBackground:
	}
	if len(finalizers) == 0 {
		return nil, nil
	}
	content := fork(before.content())
	meta := metadataOf(content)
	meta.SetFinalizers(finalizers)
	if before.meta.GetDeletionTimestamp() == nil {
		meta.SetDeletionTimestamp(ptr.To(metav1.NewTime(time.Now())))
		meta.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
	}
	return content, nil
}

func with(finalizers []string, finalizer string) []string {
	if slices.Contains(finalizers, finalizer) {
		return finalizers
	}
	return append(slices.Clone(finalizers), finalizer)
}
