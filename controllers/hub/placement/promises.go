// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"context"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/controllers/hub/placement/kueue"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// Elsewhere says whether a placed job would get room on another worker if it came into line now: the line of that worker with reason
// Fits, or else of the one that is nearest to taking it, with what it lacks. An answer without a reason means that it is not known yet;
// Subscribe tells when to ask again.
//
// Room that is said to be there is promised: nobody else gets it until the job stands in line again, ends, or Release is called. So
// a job that is asked about should be evicted then. Asked again, the answer is the same while the promised worker takes jobs.
func (r *Reconciler) Elsewhere(ctx context.Context, d *v1alpha1.Dispatch) (v1alpha1.ClusterExplanation, error) {
	var unknown v1alpha1.ClusterExplanation
	f, err := r.observe(ctx, client.ObjectKeyFromObject(d))
	if err != nil || f.job == nil || f.job.GetUID() != d.Spec.TrainJob.UID {
		return unknown, err
	}
	f.dispatch = d
	job, verdict, err := r.candidate(ctx, f)
	if err != nil {
		return unknown, err
	}
	if f.kueue.Standing == kueue.Unknown {
		return unknown, nil
	}
	if held := kueueVerdict(f); held != nil {
		verdict = held
	}
	if verdict != nil {
		return v1alpha1.ClusterExplanation{Reason: verdict.Reason, Message: verdict.Message}, nil
	}
	if job.Excluded, _, err = r.excluded(ctx, f, job); err != nil {
		return unknown, err
	}
	answer, round, err := r.line.elsewhere(job, d.Spec.Cluster, r.workers(ctx))
	if err == nil {
		r.follow(round, types.NamespacedName{})
	}
	return answer, err
}

// Release gives back the room that has been promised to a job, if there is any.
func (r *Reconciler) Release(origin types.UID) {
	if r.line.release(origin) {
		r.signal()
	}
}

// Subscribe calls changed whenever there may be room where there was none, and when Elsewhere begins to have answers. changed is called
// under no lock, and has to return at once.
func (r *Reconciler) Subscribe(changed func()) (cancel func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.subscriptions++
	key := r.subscriptions
	r.subscribers[key] = changed
	return func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.subscribers, key)
	}
}

// tellSubscribers says that there may be more room.
func (r *Reconciler) tellSubscribers() {
	r.mu.Lock()
	tell := slices.Collect(maps.Values(r.subscribers))
	r.mu.Unlock()
	for _, changed := range tell {
		changed()
	}
}

// elsewhere makes a pass, because those in line come first, and tries the job then.
func (l *line) elsewhere(job *queue.Job, from v1alpha1.ClusterName, workers lister) (v1alpha1.ClusterExplanation, round, error) {
	var answer v1alpha1.ClusterExplanation
	l.mu.Lock()
	defer l.mu.Unlock()
	passed, err := l.advance(workers)
	if err != nil || !l.isOpen() {
		return answer, passed, err
	}
	if p := l.fleet.ledger.promised[job.UID]; p != nil {
		if at := l.fleet.find(p.worker); at >= 0 && p.worker != from {
			if face := l.fleet.face(&l.fleet.objects[at]); face.NotReady == "" && !face.Cordoned {
				return fits(p), passed, nil
			}
		}
		l.fleet.unpromise(job.UID)
	}
	if answer = l.queue.Try(job, l.fleet, from); answer.Reason != v1alpha1.ReasonFits {
		return answer, passed, nil
	}
	p := &assignment{
		key: job.Key(), uid: job.UID, worker: answer.Cluster, attempt: job.Attempt, podSets: job.PodSets, priority: job.Priority, promised: true,
	}
	l.fleet.promise(p)
	return fits(p), passed, nil
}

// fits is the answer while the promise is good.
func fits(p *assignment) v1alpha1.ClusterExplanation {
	return v1alpha1.ClusterExplanation{
		Cluster: p.worker, Reason: v1alpha1.ReasonFits, Message: fmt.Sprintf("worker %s has room for the job", p.worker),
	}
}

// release gives back what has been promised to a job, and returns true if that was something.
func (l *line) release(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fleet.unpromise(uid)
}

// promise takes the room for a job that is to come off its worker.
func (f *fleet) promise(p *assignment) {
	if f.ledger.promised == nil {
		f.ledger.promised = map[types.UID]*assignment{}
	}
	f.ledger.promised[p.uid] = p
	f.take(p)
}

// unpromise gives it back, and returns true if there was any.
func (f *fleet) unpromise(uid types.UID) bool {
	p := f.ledger.promised[uid]
	if p == nil {
		return false
	}
	delete(f.ledger.promised, uid)
	f.outdate(p.worker)
	return true
}

// unpromiseEnded is for a job that is looked at and will not stand in line. While its attempt lasts it may yet.
func (f *fleet) unpromiseEnded(key types.NamespacedName) (helps bool) {
	for uid, p := range f.ledger.promised {
		if p.key == key && f.ledger.byJob[uid] == nil {
			helps = f.unpromise(uid)
		}
	}
	return helps
}
