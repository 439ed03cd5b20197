// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/requeue"
)

type dependency = v1alpha1.Dependency

// contents are the fields of each kind that go to workers. A ServiceAccount gets its tokens on the worker.
var contents = map[string][]string{
	"Secret":         {"type", "immutable", "data"},
	"ConfigMap":      {"immutable", "data", "binaryData"},
	"ServiceAccount": {"imagePullSecrets", "automountServiceAccountToken"},
}

// full is an object as it should be on the worker. It is kept as it was decoded: nobody looks into the data.
type full struct {
	*unstructured.Unstructured
	// source is the version of the hub's object.
	source string
	// isToken is true for a token of a ServiceAccount, which is never brought: the worker would delete it, or fill it with a
	// token of its own account.
	isToken bool
}

// read reads an object from the hub's API server. It fails with a conflict if the object is not there any more, or has
// lost its consent: the cache will show it.
func (k *Reconciler) read(ctx context.Context, o object) (*full, error) {
	onHub := &unstructured.Unstructured{}
	onHub.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(o.Kind))
	err := k.HubReader.Get(ctx, types.NamespacedName{Namespace: o.Namespace, Name: o.Name}, onHub)
	switch {
	case client.IgnoreNotFound(err) != nil:
		//nolint:errorlint // The hub's answer must not be taken for the worker's.
		return nil, fmt.Errorf("get %s in namespace %q: %v", o.Dependency, o.Namespace, err)
	case err != nil, onHub.GetDeletionTimestamp() != nil, onHub.GetLabels()[v1alpha1.LabelPropagate] != v1alpha1.PropagateYes:
		return nil, requeue.Outdated(fmt.Sprintf("%s has changed on the hub", o.Dependency))
	}
	sent := &unstructured.Unstructured{Object: map[string]any{}}
	sent.SetGroupVersionKind(onHub.GroupVersionKind())
	sent.SetNamespace(o.Namespace)
	sent.SetName(o.Name)
	labels := copies.Carried(onHub.GetLabels(), k.Unsent)
	labels[v1alpha1.LabelPropagatedBy] = k.HubID
	sent.SetLabels(labels)
	annotations := copies.Carried(onHub.GetAnnotations(), k.Unsent)
	annotations[v1alpha1.AnnotationSource] = sourceOf(onHub)
	sent.SetAnnotations(annotations)
	for _, field := range contents[o.Kind] {
		if value, has := onHub.Object[field]; has {
			sent.Object[field] = value
		}
	}
	return &full{Unstructured: sent, source: sourceOf(onHub), isToken: onHub.Object["type"] == string(corev1.SecretTypeServiceAccountToken)}, nil
}
