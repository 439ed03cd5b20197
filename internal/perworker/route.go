// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package perworker

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// isLive is true while a worker's controllers may have work for the Dispatch.
func isLive(dispatch *v1alpha1.Dispatch) bool {
	return record.StateOf(dispatch) != record.Finished
}

// route gives the hub's events to the controllers of the workers that they concern.
func (s *Set[C]) route(ctx context.Context) error {
	dispatches, err := s.hub.GetInformer(ctx, &v1alpha1.Dispatch{})
	if err != nil {
		return fmt.Errorf("watch Dispatches: %w", err)
	}
	jobs, err := s.hub.GetInformer(ctx, trainjobs.New())
	if err != nil {
		return fmt.Errorf("watch TrainJobs: %w", err)
	}
	_, err = dispatches.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { s.dispatchSeen(object.(*v1alpha1.Dispatch)) },
		UpdateFunc: func(before, after any) { s.dispatchChanged(before.(*v1alpha1.Dispatch), after.(*v1alpha1.Dispatch)) },
		DeleteFunc: func(object any) {
			if dispatch, ok := last(object).(*v1alpha1.Dispatch); ok {
				s.enqueue(dispatch.Spec.Cluster, client.ObjectKeyFromObject(dispatch))
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch Dispatches: %w", err)
	}
	_, err = jobs.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		UpdateFunc: func(before, after any) {
			if jobChanged(before.(*unstructured.Unstructured), after.(*unstructured.Unstructured)) {
				s.jobSeen(ctx, after.(*unstructured.Unstructured))
			}
		},
		DeleteFunc: func(object any) {
			if job, ok := last(object).(*unstructured.Unstructured); ok {
				s.jobSeen(ctx, job)
			}
		},
	})
	if err != nil {
		return fmt.Errorf("watch TrainJobs: %w", err)
	}
	return nil
}

func (s *Set[C]) dispatchSeen(dispatch *v1alpha1.Dispatch) {
	if isLive(dispatch) {
		s.enqueue(dispatch.Spec.Cluster, client.ObjectKeyFromObject(dispatch))
	}
}

// dispatchChanged enqueues the key for the worker of the Dispatch, and for the worker that the Dispatch named before.
func (s *Set[C]) dispatchChanged(before, after *v1alpha1.Dispatch) {
	if !isLive(before) && !isLive(after) {
		return
	}
	key := client.ObjectKeyFromObject(after)
	s.enqueue(after.Spec.Cluster, key)
	if before.Spec.Cluster != after.Spec.Cluster {
		s.enqueue(before.Spec.Cluster, key)
	}
}

// jobChanged is true for changes that the copy or the Dispatch must follow. Only the manager changes the status.
func jobChanged(before, after *unstructured.Unstructured) bool {
	return before.GetGeneration() != after.GetGeneration() || before.GetUID() != after.GetUID() ||
		(before.GetDeletionTimestamp() == nil) != (after.GetDeletionTimestamp() == nil)
}

func (s *Set[C]) jobSeen(ctx context.Context, job *unstructured.Unstructured) {
	var dispatch v1alpha1.Dispatch
	key := types.NamespacedName{Namespace: job.GetNamespace(), Name: job.GetName()}
	if err := s.hub.Get(ctx, key, &dispatch, client.UnsafeDisableDeepCopy); err == nil {
		s.enqueue(dispatch.Spec.Cluster, key)
	}
}

// last returns the last known state of a deleted object.
func last(object any) any {
	if tombstone, ok := object.(toolscache.DeletedFinalStateUnknown); ok {
		return tombstone.Obj
	}
	return object
}
