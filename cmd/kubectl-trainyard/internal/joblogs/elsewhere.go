// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"context"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

var dispatches = v1alpha1.GroupVersion.WithResource("dispatches")

// checkHere returns an error if the job's pods are on another cluster. The error says where, if that is known.
func (r reader) checkHere(ctx context.Context, job *unstructured.Unstructured) error {
	manager := trainjobs.ManagedBy(job)
	if manager == v1alpha1.ManagedByBuiltIn {
		return nil
	}
	dispatch, err := r.readDispatch(ctx)
	if err != nil {
		return err
	}
	return fmt.Errorf("TrainJob %q is managed by %q, so its pods are not on this cluster%s", job.GetName(), manager, whereabouts(dispatch, r.job.Namespace))
}

// readDispatch returns the Dispatch of the job, or nil.
func (r reader) readDispatch(ctx context.Context) (*v1alpha1.Dispatch, error) {
	object, err := r.get(ctx, dispatches)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get Dispatch %q: %w", r.job.Name, err)
	}
	dispatch := &v1alpha1.Dispatch{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, dispatch); err != nil {
		return nil, fmt.Errorf("convert Dispatch %q: %w", r.job.Name, err)
	}
	return dispatch, nil
}

// whereabouts completes the sentence that says that a job's pods are not here.
func whereabouts(dispatch *v1alpha1.Dispatch, namespace string) string {
	switch {
	case dispatch == nil:
		return "; no Dispatch says where they are, so ask for the log where its manager runs it"
	case dispatch.Spec.Cluster == "":
		return waitsForWorker(dispatch)
	}
	state := "they are"
	if record.AttemptOf(dispatch) == record.Finished {
		state = "the job has ended, and they were"
	}
	return fmt.Sprintf(": %s on worker %q. Ask there, with the context of that cluster in your kubeconfig:\n"+
		"  kubectl trainyard logs %s --namespace %s --context CONTEXT", state, dispatch.Spec.Cluster, dispatch.Name, namespace)
}

func waitsForWorker(dispatch *v1alpha1.Dispatch) string {
	text := "; it waits for a worker, so it has none yet"
	if placed := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchPlaced); placed != nil {
		text += fmt.Sprintf(" (%s: %s)", placed.Reason, placed.Message)
	}
	return text
}
