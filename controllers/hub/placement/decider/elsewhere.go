// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"context"
	"fmt"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// Elsewhere waits for the next pass, because the jobs on the waiting list come first, and says then whether a placed
// job would get room on another worker: that worker with reason Fits, or else the worker that is nearest to taking it,
// with what it lacks. There is no reason if that is not known yet. A job that excludes only a domain of the worker on
// which it is may find its room in another domain there.
//
// Room that is there is promised to the job: nobody else gets it until the job is on the waiting list, ends, or
// ReleasePromise is called.
func (d *Decider) Elsewhere(ctx context.Context, job *queue.Job, from v1alpha1.ClusterName) (v1alpha1.ClusterExplanation, error) {
	var answer v1alpha1.ClusterExplanation
	d.mu.Lock()
	if !d.startup.over {
		defer d.mu.Unlock()
		return answer, nil
	}
	d.Changed()
	q := d.questions.ask(ctx, types.NamespacedName{}, func() { answer = d.fleet.elsewhere(d.list, job, from) })
	d.mu.Unlock()
	if err := q.wait(ctx); err != nil {
		return v1alpha1.ClusterExplanation{}, err
	}
	return answer, nil
}

// FitsEmpty is true if a waiting job would fit on a worker that takes jobs if no other job ran there. It is false for a
// job that is not on the waiting list.
func (d *Decider) FitsEmpty(key types.NamespacedName) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	var fit bool
	d.without(func() { fit = d.list.FitsEmpty(key, d.fleet) })
	return fit
}

// fits is the answer while the promise is good.
func fits(worker v1alpha1.ClusterName, domain *v1alpha1.Domain) v1alpha1.ClusterExplanation {
	where := ""
	if domain != nil {
		where = fmt.Sprintf(" in domain %s", domain)
	}
	return v1alpha1.ClusterExplanation{
		Cluster: worker, Reason: v1alpha1.ReasonFits, Message: fmt.Sprintf("worker %s has room for the job%s", worker, where), Domain: domain,
	}
}

// ReleasePromise gives back the room that has been promised to a job, if there is any.
func (d *Decider) ReleasePromise(uid types.UID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.changedIf(d.fleet.unpromise(uid))
}

// elsewhere tries a job on the other workers. Asked again it answers the same while the promised worker takes jobs.
func (f *fleet) elsewhere(list *queue.Queue, job *queue.Job, from v1alpha1.ClusterName) v1alpha1.ClusterExplanation {
	if job.Attempt > 0 && (list.Has(job.Key()) || f.jobs.placed(job.UID, job.Attempt) != nil) {
		return v1alpha1.ClusterExplanation{} // It has left already.
	}
	if p := f.jobs.promisedTo(job.UID); p != nil {
		if (p.worker != from || job.OnlyDomainExcluded(from)) && f.snapshots[p.worker].takesJobs() {
			return fits(p.worker, p.domain)
		}
		f.unpromise(job.UID)
	}
	except := from
	if job.OnlyDomainExcluded(from) && f.snapshots[from].takesJobs() {
		except = ""
	}
	answer := list.Try(job, f, except)
	if answer.Reason != v1alpha1.ReasonFits {
		return answer
	}
	local := dispatch.QueueOf(&job.Job, f.object(answer.Cluster).Spec.Kueue.WorkerQueue)
	f.promise(&assignment{
		key: job.Key(), uid: job.UID, worker: answer.Cluster, attempt: job.Attempt, queue: local,
		podSets: job.PodSetsIn(answer.Cluster, answer.Domain), domain: answer.Domain, priority: job.Priority, promised: true,
	})
	return fits(answer.Cluster, answer.Domain)
}

// promise takes the room for a job that is to leave its worker.
func (f *fleet) promise(p *assignment) {
	f.jobs.promise(p)
	f.take(p)
}

// unpromise gives the room back. It returns false if there was none.
func (f *fleet) unpromise(uid types.UID) bool {
	p := f.jobs.promisedTo(uid)
	if p == nil {
		return false
	}
	f.jobs.unpromise(uid)
	f.outdate(p.worker)
	return true
}

// unpromiseEnded gives back the room of a job that does not come to the waiting list. While its attempt lasts, it may
// still come.
func (f *fleet) unpromiseEnded(key types.NamespacedName) (helps bool) {
	for _, p := range f.jobs.promisesTo(key) {
		helps = f.unpromise(p.uid)
	}
	return helps
}
