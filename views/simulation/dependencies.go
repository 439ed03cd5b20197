// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package simulation

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch"
)

// noteUnbrought notes what the pods of a job need that its policy brings to workers, and that has no consent on the hub. What
// the user may not read counts as there. Without a hub nothing is known. Only metadata is read.
func (w *world) noteUnbrought(ctx context.Context, needed []v1alpha1.Dependency, job *dispatch.Job) {
	if w.hub == nil {
		return
	}
	var missing []v1alpha1.Dependency
	for _, dependency := range needed {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(dependency.Kind))
		err := w.hub.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: dependency.Name}, object)
		if apierrors.IsNotFound(err) || err == nil && object.Labels[v1alpha1.LabelPropagate] != v1alpha1.PropagateYes {
			missing = append(missing, dependency)
		}
	}
	if words := demand.Unbrought(missing, job.Namespace); words != "" {
		w.note("TrainJob %q: %s", job.Name, words)
	}
}
