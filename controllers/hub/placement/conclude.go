// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// A worker that was given up may return at that very moment, and its copy end the job: with failover Immediate nobody makes sure that it
// does not. Such a job is over.

// errEnded is of a job that the cache shows going on, and that has ended or gone. It is a conflict as any other.
var errEnded error = apierrors.NewConflict(schema.GroupResource{Group: trainjobs.GroupVersionKind.Group, Resource: "trainjobs"}, "",
	errors.New("the job has ended"))

// verify fails if a job whose attempt was given up for lost has ended by what the API server says. Nobody is asked about other jobs.
func (w *writer) verify(ctx context.Context, f facts) error {
	if f.dispatch == nil || !f.dispatch.AttemptEnded() ||
		meta.FindStatusCondition(f.dispatch.Status.Conditions, v1alpha1.DispatchMirrored).Reason != v1alpha1.ReasonWorkerLost {
		return nil
	}
	job := trainjobs.New()
	err := w.HubReader.Get(ctx, client.ObjectKeyFromObject(f.job), job)
	switch {
	case apierrors.IsNotFound(err):
		return errEnded
	case err != nil:
		return fmt.Errorf("get TrainJob %s/%s: %w", f.job.GetNamespace(), f.job.GetName(), err)
	case job.GetUID() != f.job.GetUID(), trainjobs.Terminal(job) != nil:
		return errEnded
	}
	return nil
}

// conclude says on the Dispatch of a given up attempt that the job has ended by it.
func (w *writer) conclude(ctx context.Context, f facts) error {
	end := trainjobs.Terminal(f.job)
	if err := w.ender().Finish(ctx, f.dispatch, end, func(*v1alpha1.DispatchStatus) {}); err != nil {
		return err
	}
	w.recordConcluded(f, end)
	return nil
}
