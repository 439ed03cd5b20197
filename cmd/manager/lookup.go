// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/dependencies"
	"github.com/trainyard/trainyard/webhooks/validation"
)

// addLookup finds out what the pods of copies name, if the mirrors are to look for it.
func (w *wiring) addLookup(ctx context.Context) error {
	if !w.options.lookup {
		return nil
	}
	hub := w.mgr.GetClient()
	checker, err := validation.New(ctx, validation.Options{
		Client: hub, Live: hub, NewRuntimes: newRuntimes, Framework: validation.EmptyCluster{Client: hub},
	})
	if err != nil {
		return err
	}
	w.references = func(ctx context.Context, copy *unstructured.Unstructured) ([]dependencies.Reference, error) {
		job := &trainer.TrainJob{}
		if err := runtime.DefaultUnstructuredConverter.FromUnstructured(copy.Object, job); err != nil {
			return nil, fmt.Errorf("convert TrainJob %s/%s: %w", copy.GetNamespace(), copy.GetName(), err)
		}
		return checker.References(ctx, job)
	}
	return nil
}
