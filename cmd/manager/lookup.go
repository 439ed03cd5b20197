// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/dependencies"
	"github.com/trainyard/trainyard/controllers/hub/mirror"
	"github.com/trainyard/trainyard/remote"
	"github.com/trainyard/trainyard/webhooks/validation"
)

// referencesFunc returns what the pods of a copy name.
type referencesFunc = func(context.Context, *unstructured.Unstructured) ([]dependencies.Reference, error)

// lookUp looks for what the pods of copies name, nil without --lookup.
func (w *wiring) lookUp(connection *remote.Cluster) *mirror.LookUp {
	if w.references == nil {
		return nil
	}
	return &mirror.LookUp{
		References: w.references, Refused: connection.DoubtRights,
		Permitted: func() bool { return !slices.Contains(connection.Status().Forbidden, remote.LookUp) },
	}
}

// newReferences returns a function that finds in a copy and its runtime what the pods name. It reads runtimes with the
// client.
func newReferences(ctx context.Context, hub client.Client) (referencesFunc, error) {
	checker, err := validation.New(ctx, validation.Options{
		Client: hub, Live: hub, NewRuntimes: newRuntimes, Framework: validation.EmptyCluster{Client: hub},
	})
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context, copy *unstructured.Unstructured) ([]dependencies.Reference, error) {
		job := &trainer.TrainJob{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(copy.Object, job); err != nil {
			return nil, fmt.Errorf("convert TrainJob %s/%s: %w", copy.GetNamespace(), copy.GetName(), err)
		}
		return checker.References(ctx, job)
	}, nil
}
