// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package records

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Job reads the TrainJob of a name, on the hub or on a worker. It returns nil if there is none.
func Job(
	ctx context.Context, reader client.Reader, key types.NamespacedName, options ...client.GetOption,
) (*unstructured.Unstructured, error) {
	job := trainjobs.New()
	switch err := reader.Get(ctx, key, job, options...); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get TrainJob %s: %w", key, err)
	}
	return job, nil
}

// Dispatch reads the Dispatch of a name. It returns nil if there is none.
func Dispatch(
	ctx context.Context, reader client.Reader, key types.NamespacedName, options ...client.GetOption,
) (*v1alpha1.Dispatch, error) {
	d := &v1alpha1.Dispatch{}
	switch err := reader.Get(ctx, key, d, options...); {
	case apierrors.IsNotFound(err):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("get Dispatch %s: %w", key, err)
	}
	return d, nil
}
