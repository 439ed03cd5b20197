// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
)

// dependencyWarnings are about a new job whose pods need objects that its policy brings to workers and that have no consent
// on the hub. Of objects without consent the hub knows nothing, not even whether they are there.
func (r Reviewer) dependencyWarnings(ctx context.Context, seen *observation) ([]string, error) {
	if r.consented == nil {
		return nil, nil
	}
	job := seen.needs.job
	var missing []v1alpha1.Dependency
	for _, dependency := range seen.needs.needed {
		object := &metav1.PartialObjectMetadata{}
		object.SetGroupVersionKind(corev1.SchemeGroupVersion.WithKind(dependency.Kind))
		err := r.consented.Get(ctx, types.NamespacedName{Namespace: job.Namespace, Name: dependency.Name}, object)
		switch {
		case apierrors.IsNotFound(err):
			missing = append(missing, dependency)
		case err != nil:
			return nil, fmt.Errorf("get %s: %w", dependency, err)
		}
	}
	if words := demand.Unbrought(missing, job.Namespace); words != "" {
		return []string{words}, nil
	}
	return nil, nil
}
