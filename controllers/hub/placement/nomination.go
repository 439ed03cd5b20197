// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// Nominate says which worker has room for a job. Somebody else brings the job to the worker. The caller gives the job's
// demand, labels, priority and exclusions, and Nominate adds the policies. It answers as Elsewhere does. The jobs on
// the waiting list come first.
//
// Room that is said to be there is promised until Release, or until Nominate or Occupy names another worker.
func (r *Reconciler) Nominate(
	ctx context.Context, job queue.Job, except v1alpha1.ClusterName,
) (v1alpha1.ClusterExplanation, error) {
	if err := demand.Limit(job.PodSets); err != nil {
		return v1alpha1.ClusterExplanation{Reason: v1alpha1.ReasonTooLarge, Message: err.Error()}, nil //nolint:nilerr // It is the answer.
	}
	namespaced := &unstructured.Unstructured{}
	namespaced.SetNamespace(job.Namespace)
	policies, labels, err := r.needs.policies.inputs(ctx, namespaced)
	if err != nil {
		return v1alpha1.ClusterExplanation{}, err
	}
	job.NamespaceLabels, job.Policies, job.Nominated = labels, r.needs.compiled.of(policies), true
	job.Class = r.needs.workerQueues.apart(classOf(&job), &job)
	return r.decider.Elsewhere(ctx, &job, except)
}

// Occupy takes the room of a job until Release. Somebody else has brought the job to the worker. If a JobSet has the
// job's name, the decider counts its pods as the job's.
func (r *Reconciler) Occupy(job queue.Job, worker v1alpha1.ClusterName) {
	r.decider.Occupy(&job, worker)
}
