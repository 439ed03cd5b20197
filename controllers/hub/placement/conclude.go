// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"errors"
	"fmt"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// A worker that was given up may return at that very moment, and its copy end the job: with failover Immediate nobody makes sure that it
// does not. Such a job is over.

// errEnded is of a job that the cache shows going on, and that has ended or gone. It is a conflict as any other.
var errEnded error = apierrors.NewConflict(schema.GroupResource{Group: trainjobs.GroupVersionKind.Group, Resource: "trainjobs"}, "",
	errors.New("the job has ended"))

// verify fails if a job whose attempt was given up for lost has ended by what the API server says. Nobody is asked about other jobs.
func (r *Reconciler) verify(ctx context.Context, f facts) error {
	if !record.IsGivenUp(f.dispatch) {
		return nil
	}
	job := trainjobs.New()
	err := r.HubReader.Get(ctx, client.ObjectKeyFromObject(f.job), job)
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
func (r *Reconciler) conclude(ctx context.Context, f facts) error {
	end := trainjobs.Terminal(f.job)
	if err := r.ender().Finish(ctx, f.dispatch, end, func(*v1alpha1.DispatchStatus) {}); err != nil {
		return err
	}
	r.recordConcluded(f, end)
	return nil
}
