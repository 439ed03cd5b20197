// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package fakeservers

import (
	"net/http"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

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
