// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"context"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
)

// Elsewhere says whether a placed job would get room on another worker if it came to the waiting list now: that worker
// with reason Fits, or else the worker that is nearest to taking it, with what it lacks. An answer without a reason
// means that it is not known yet; Subscribe tells when to ask again.
//
// Room that is said to be there is promised: nobody else gets it until the job is on the waiting list, ends, or Release
// is called. So the caller should evict the job then. Asked again, the answer is the same while the promised worker
// takes jobs.
func (r *Reconciler) Elsewhere(ctx context.Context, d *v1alpha1.Dispatch) (v1alpha1.ClusterExplanation, error) {
	var unknown v1alpha1.ClusterExplanation
	f, err := r.observe(ctx, client.ObjectKeyFromObject(d))
	if err != nil || f.job == nil || f.job.GetUID() != d.Spec.TrainJob.UID {
		return unknown, err
	}
	f.dispatch, f.past = d, past{attempt: d.Spec.Attempt, worker: previousOf(d)}
	job, obstacle, err := r.needs.of(ctx, f)
	if err != nil || f.kueue.Standing == kueue.Unknown {
		return unknown, err
	}
	if obstacle = cmp.Or(kueueObstacle(f), obstacle); obstacle != nil {
		return v1alpha1.ClusterExplanation{Reason: obstacle.Reason, Message: obstacle.Message}, nil
	}
	if _, err := r.needs.exclude(ctx, f, job); err != nil {
		return unknown, err
	}
	return r.decider.Elsewhere(ctx, job, d.Spec.Cluster)
}

// Release gives back the room that has been promised to a job, if there is any.
func (r *Reconciler) Release(origin types.UID) { r.decider.ReleasePromise(origin) }

// Subscribe calls changed whenever there may be room where there was none, and when Elsewhere begins to have answers.
// changed is called under no lock, and has to return at once.
func (r *Reconciler) Subscribe(changed func()) (cancel func()) { return r.decider.Subscribe(changed) }
