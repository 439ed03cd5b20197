// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// replaced ends the source of a runtime that was written strictly and as a whole. Earlier releases left out what the
// worker does not know, and left there what was gone on the hub. Their source has no such end, so what they wrote is
// written anew.
const replaced = "replaced"

// propagateRuntime makes sure that the worker has the job's runtime, and, where it came from here, that it is the
// hub's.
func (r *reconciler) propagateRuntime(
	ctx context.Context, worker client.Client, f facts, past *recollection, policy *v1alpha1.DispatchPolicy,
) error {
	kind, key := runtimeOf(f.job)
	gvk := trainer.SchemeGroupVersion.WithKind(kind)
	onWorker := metadataOf(gvk.GroupVersion().String(), kind)
	err := worker.Get(ctx, key, onWorker)
	exists := err == nil
	if exists && onWorker.Labels[v1alpha1.LabelPropagatedBy] != r.HubID {
		return nil
	}
	if client.IgnoreNotFound(err) != nil {
		return err
	}
	onHub := metadataOf(gvk.GroupVersion().String(), kind)
	if err := r.Hub.Get(ctx, key, onHub); err != nil {
		if !apierrors.IsNotFound(err) || exists {
			return client.IgnoreNotFound(err)
		}
		return refusal(fmt.Sprintf("%s %q is neither on worker %q nor on the hub", kind, key.Name, r.Cluster))
	}
	source := fmt.Sprintf("%s.%d.%s", onHub.UID, onHub.Generation, replaced)
	if exists && onWorker.Annotations[v1alpha1.AnnotationSource] == source {
		return nil
	}
	if !mayCreateRuntimes(policy) {
		if exists {
			return nil
		}
		return r.forbidden(kind, key.Name, policy)
	}
	full, err := r.propagated(ctx, onHub, source)
	if err != nil {
		return err
	}
	if exists {
		err = replaceRuntime(ctx, worker, onWorker, full)
	} else {
		// What has come to be there since is left alone.
		err = worker.Create(ctx, full, fieldOwner, client.FieldValidation(metav1.FieldValidationStrict))
		err = client.IgnoreAlreadyExists(err)
	}
	if err == nil {
		past.propagatedAt = r.Clock.Now()
	} else if isRefusal(err) { // The words are about the object that was sent, and do not name it.
		words := strictWords(refusalWords(err))
		return refusal(fmt.Sprintf("worker %q refuses %s %q of the hub: %s", r.Cluster, kind, key.Name, words))
	}
	return err
}

// strictWords are the words from where they name the field that is unknown, if one is. The answer to a patch quotes
// the whole object before.
func strictWords(words string) string {
	if at := strings.LastIndex(words, "strict decoding error:"); at > 0 {
		return words[at:]
	}
	return words
}

// replaceRuntime makes the runtime on the worker that of the hub: what is gone there goes here, and a field that the
// worker does not know is a refusal that names it. It fails with a conflict if the runtime is not the one that was
// read: it may be somebody else's by now.
func replaceRuntime(
	ctx context.Context, worker client.Client, onWorker *metav1.PartialObjectMetadata, full *unstructured.Unstructured,
) error {
	type operation struct {
		Op    string `json:"op"`
		Path  string `json:"path"`
		Value any    `json:"value"`
	}
	// To add what is there replaces it. None of these needs anything to be there: a patch that cannot be made is no
	// conflict to an API server.
	data, err := json.Marshal([]operation{
		{"add", "/metadata/resourceVersion", onWorker.ResourceVersion},
		{"add", "/metadata/labels", full.GetLabels()},
		{"add", "/metadata/annotations", merged(onWorker.Annotations, full.GetAnnotations())},
		{"add", "/spec", full.Object["spec"]},
	})
	if err != nil {
		return fmt.Errorf("encode patch of %s %q: %w", onWorker.Kind, onWorker.Name, err)
	}
	patch := client.RawPatch(types.JSONPatchType, data)
	err = worker.Patch(ctx, full, patch, fieldOwner, client.FieldValidation(metav1.FieldValidationStrict))
	if apierrors.IsNotFound(err) { // It is created when the cache shows that it is gone.
		resource := schema.GroupResource{Group: trainer.SchemeGroupVersion.Group, Resource: onWorker.Kind}
		return apierrors.NewConflict(resource, onWorker.Name, err)
	}
	return err
}

// propagated is the hub's runtime as it is to be on the worker. It is read from the hub's API server as it is, since
// the Go type of one release of Trainer would lose what it does not know.
func (r *reconciler) propagated(
	ctx context.Context, onHub *metav1.PartialObjectMetadata, source string,
) (*unstructured.Unstructured, error) {
	full := &unstructured.Unstructured{}
	full.SetGroupVersionKind(onHub.GroupVersionKind())
	if err := r.HubReader.Get(ctx, client.ObjectKeyFromObject(onHub), full); err != nil {
		//nolint:errorlint // The hub's answer must not be taken for the worker's.
		return nil, fmt.Errorf("%w: get %s %q: %v", errHub, onHub.Kind, onHub.Name, err)
	}
	labels := full.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[v1alpha1.LabelPropagatedBy] = r.HubID
	copy := &unstructured.Unstructured{Object: map[string]any{"spec": full.Object["spec"]}}
	copy.SetGroupVersionKind(onHub.GroupVersionKind())
	copy.SetNamespace(onHub.Namespace)
	copy.SetName(onHub.Name)
	copy.SetLabels(labels)
	copy.SetAnnotations(map[string]string{v1alpha1.AnnotationSource: source})
	return copy, nil
}
