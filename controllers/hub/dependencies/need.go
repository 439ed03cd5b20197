// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package dependencies

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
	"github.com/trainyard/trainyard/internal/records"
)

// namedByJobs are the objects of a namespace that the Dispatches of jobs on the worker name, without those of one job.
func (k *Reconciler) namedByJobs(ctx context.Context, namespace string, but types.UID) (sets.Set[object], error) {
	dispatches, err := records.Dependent(ctx, k.Hub, k.Cluster, namespace)
	if err != nil {
		return nil, err
	}
	named := sets.Set[object]{}
	for i := range dispatches {
		spec := &dispatches[i].Spec
		if spec.TrainJob.UID == but || spec.ClusterID != "" && spec.ClusterID != k.ClusterID {
			continue
		}
		for _, dependency := range spec.Dependencies {
			named.Insert(object{Namespace: namespace, Dependency: dependency})
		}
	}
	return named, nil
}

// namedByCopies are the objects of a namespace that copies on the worker name which have not finished, without those of
// one job. The hub may have no record of such a copy, or an older one.
func (k *Reconciler) namedByCopies(ctx context.Context, worker copies.Worker, namespace string, but types.UID) (sets.Set[object], error) {
	list := trainjobs.NewList()
	if err := worker.List(ctx, list, client.InNamespace(namespace), client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("list copies on worker %q: %w", k.Cluster, err)
	}
	named := sets.Set[object]{}
	for i := range list.Items {
		copy := &list.Items[i]
		if isRunning(copy) && copy.GetLabels()[v1alpha1.LabelOriginUID] != string(but) {
			for _, dependency := range v1alpha1.ParseDependencyNames(copy.GetAnnotations()[v1alpha1.AnnotationDependencies]) {
				named.Insert(object{Namespace: namespace, Dependency: dependency})
			}
		}
	}
	return named, nil
}

// isRunning is true for a copy that has not finished.
func isRunning(copy *unstructured.Unstructured) bool { return trainjobs.Terminal(copy) == nil }

// named are the objects of a namespace that jobs or copies on the worker name, without those of one job, and the Secrets that
// accounts among them pull images with.
func (k *Reconciler) named(ctx context.Context, worker copies.Worker, namespace string, but types.UID) (sets.Set[object], error) {
	byJobs, err := k.namedByJobs(ctx, namespace, but)
	if err != nil {
		return nil, err
	}
	byCopies, err := k.namedByCopies(ctx, worker, namespace, but)
	if err != nil {
		return nil, err
	}
	all := byJobs.Union(byCopies)
	pulled, unknown := k.known.pulled(all)
	isRecorded := func(o object) bool { return k.recorded[o] }
	if slices.ContainsFunc(unknown.UnsortedList(), isRecorded) { // Its consent may have been taken back. Each Secret may be one of its own.
		for o := range k.recorded {
			if o.Namespace == namespace && o.Kind == kindSecret {
				pulled.Insert(o)
			}
		}
	}
	return all.Union(pulled), nil
}
