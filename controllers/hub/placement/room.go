// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/demand"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// Elsewhere says whether a placed job would get room on another worker if it came to the waiting list now: that worker
// with reason Fits, or else the worker that is nearest to taking it, with what it lacks. An answer without a reason
// means that it is not known yet; Subscribe tells when to ask again.
//
// Room that is said to be there is promised: nobody else gets it until the job is on the waiting list, ends, or Release
// is called. So the caller should evict the job then. Asked again, the answer is the same while the promised worker
// takes jobs.
//
// full has what was said about jobs on the same worker that fit nowhere, by what makes jobs alike: a job like one of them
// is not tried. Elsewhere adds to it. Nil: each job is tried.
func (r *Reconciler) Elsewhere(
	ctx context.Context, d *v1alpha1.Dispatch, full map[string]v1alpha1.ClusterExplanation,
) (v1alpha1.ClusterExplanation, error) {
	var unknown v1alpha1.ClusterExplanation
	seen, err := r.observer.glance(ctx, client.ObjectKeyFromObject(d))
	if err != nil || seen.job == nil || seen.job.GetUID() != d.Spec.TrainJob.UID || seen.kueue.Standing == kueue.Unknown {
		return unknown, err
	}
	seen.dispatch, seen.past = d, past{attempt: d.Spec.Attempt, worker: previousOf(d)}
	if err := r.needs.observe(ctx, &seen); err != nil {
		return unknown, err
	}
	if obstacle := seen.obstacle(); obstacle != nil {
		return v1alpha1.ClusterExplanation{Reason: obstacle.Reason, Message: obstacle.Message}, nil
	}
	excludeDomain(seen.needs.job, d)
	class := r.needs.workerQueues.classOf(seen.needs.job)
	if answer, known := full[class]; known {
		return answer, nil
	}
	answer, err := r.decider.Elsewhere(ctx, seen.needs.job, d.Spec.Cluster)
	if err == nil && full != nil && answer.Reason != "" && answer.Reason != v1alpha1.ReasonFits {
		full[class] = answer
	}
	return answer, err
}

// excludeDomain makes a job that leaves its domain look for room in other domains of its worker too.
func excludeDomain(job *queue.Job, d *v1alpha1.Dispatch) {
	why, excluded := job.Excluded[d.Spec.Cluster]
	if d.Spec.Domain == nil || excluded && why.Domain == (v1alpha1.Domain{}) {
		return
	}
	job.Exclude(d.Spec.Cluster, dispatch.Exclusion{Domain: *d.Spec.Domain})
}

// Release gives back the room that has been promised to a job, if there is any.
func (r *Reconciler) Release(origin types.UID) { r.decider.ReleasePromise(origin) }

// Subscribe calls changed whenever there may be room where there was none, and when Elsewhere begins to have answers.
// changed is called under no lock, and has to return at once.
func (r *Reconciler) Subscribe(changed func()) (cancel func()) { return r.decider.Subscribe(changed) }

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
	job.Class = r.needs.workerQueues.classOf(&job)
	return r.decider.Elsewhere(ctx, &job, except)
}

// Occupy takes the room of a job until Release. Somebody else has brought the job to the worker. If a JobSet has the
// job's name, the decider counts its pods as the job's.
func (r *Reconciler) Occupy(job queue.Job, worker v1alpha1.ClusterName) {
	r.decider.Occupy(&job, worker)
}
