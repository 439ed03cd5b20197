// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package queue_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
	"github.com/trainyard/trainyard/dispatch/queue"
)

// reference does what Queue should do, without an index: each pass decides about every job, in order, over all workers.
type reference struct {
	jobs []*queue.Job
	held map[v1alpha1.ClusterName]*queue.Job
	now  time.Time
}

func newReference() *reference { return &reference{held: map[v1alpha1.ClusterName]*queue.Job{}} }

func first(a, b *queue.Job) int {
	return cmp.Or(cmp.Compare(b.Priority, a.Priority), a.Created.Compare(b.Created), cmp.Compare(a.UID, b.UID))
}

func (r *reference) Enter(job queue.Job) bool {
	var held v1alpha1.ClusterName // The worker that is held for the job stays held.
	for name, holder := range r.held {
		if holder.UID == job.UID {
			held = name
		}
	}
	r.Leave(job.Key())
	r.jobs = append(r.jobs, &job)
	if held != "" {
		r.held[held] = &job
	}
	return true
}

func (r *reference) Leave(key types.NamespacedName) {
	maps.DeleteFunc(r.held, func(_ v1alpha1.ClusterName, j *queue.Job) bool { return j.Key() == key })
	r.jobs = slices.DeleteFunc(r.jobs, func(j *queue.Job) bool { return j.Key() == key })
}

func (r *reference) HeldFor(worker v1alpha1.ClusterName, job *queue.Job) *queue.Job {
	if j := r.held[worker]; j != nil && first(j, job) < 0 {
		return j
	}
	return nil
}

func (r *reference) Pass(now time.Time, f queue.Fleet) (outcomes []queue.Outcome) {
	r.now = now
	for placed := true; placed; {
		maps.DeleteFunc(r.held, func(name v1alpha1.ClusterName, j *queue.Job) bool { return !fitsEmpty(j, f, name) })
		placed = false
		stopped, seen := map[string]bool{}, map[string]bool{}
		slices.SortFunc(r.jobs, first)
		for _, j := range slices.Clone(r.jobs) {
			policy := policyOf(j)
			if stopped[policy.Name] {
				continue
			}
			if d := dispatch.Decide(j.Job, j.Policies, r.workersFor(j, f)); d.Cluster != "" {
				f.Assign(j, d)
				r.Leave(j.Key())
				outcomes = append(outcomes, queue.Outcome{Job: *j, Decision: d})
				placed = true
				continue
			}
			class := fmt.Sprint(j.Class, j.Priority, policy.Name)
			if !seen[class] {
				seen[class] = true
				if p := r.demand(j, policy, now, f); p != nil {
					outcomes = append(outcomes, queue.Outcome{Job: *j, Preemption: p})
				}
			}
			stopped[policy.Name] = policy.Spec.Queueing == v1alpha1.StrictFIFO && slices.ContainsFunc(f.Workers(), func(w dispatch.Worker) bool {
				return fitsEmpty(j, f, w.Name)
			})
		}
	}
	return outcomes
}

func policyOf(j *queue.Job) *v1alpha1.DispatchPolicy {
	if policy, _, err := dispatch.SelectPolicy(j.Policies, j.Job); err == nil && policy != nil {
		return policy.DispatchPolicy
	}
	return &v1alpha1.DispatchPolicy{}
}

func reserveAfter(j *queue.Job) time.Duration {
	if after := policyOf(j).Spec.ReserveAfter; after != nil {
		return after.Duration
	}
	return 2 * time.Hour
}

// workersFor returns the workers without what is held for jobs before this one.
func (r *reference) workersFor(j *queue.Job, f queue.Fleet) []dispatch.Worker {
	workers := slices.Clone(f.Workers())
	for i := range workers {
		if holder := r.HeldFor(workers[i].Name, j); holder != nil {
			empty := f.Empty(workers[i].Name)
			hold, podSets := workers[i].Nodes.Hold, workers[i].DemandToHold(&holder.Job, empty)
			if !r.now.Before(holder.Since.Add(2*reserveAfter(holder))) || f.Evicting(holder.UID) == workers[i].Name {
				hold, podSets = workers[i].Nodes.Close, holder.PodSetsOn(workers[i].Name)
			}
			workers[i].Nodes = hold(podSets, empty)
		}
	}
	return workers
}

func fitsEmpty(j *queue.Job, f queue.Fleet, name v1alpha1.ClusterName) bool {
	for _, w := range f.Workers() {
		if w.Name == name {
			w.Nodes = f.Empty(name)
			if dispatch.Decide(j.Job, j.Policies, []dispatch.Worker{w}).Cluster != "" {
				return true
			}
			w.Assigned, w.Queued = 0, 0
			return dispatch.Decide(j.Job, j.Policies, []dispatch.Worker{w}).Cluster != ""
		}
	}
	return false
}

// demand holds a worker or preempts for a job that does not fit, if the policy allows it.
func (r *reference) demand(j *queue.Job, policy *v1alpha1.DispatchPolicy, now time.Time, f queue.Fleet) *dispatch.Preemption {
	mine := func(w dispatch.Worker) bool { return r.HeldFor(w.Name, j) == nil }
	if name := f.Evicting(j.UID); name != "" {
		if mine(dispatch.Worker{Name: name}) && fitsEmpty(j, f, name) {
			r.hold(j, name)
		}
	} else {
		workers := slices.DeleteFunc(slices.Clone(f.Workers()), func(w dispatch.Worker) bool { return !mine(w) })
		if p, ok := dispatch.Preempt(j.Job, j.Policies, workers, f.Occupancy); ok {
			f.Evict(p, j)
			r.hold(j, p.Cluster)
			return &p
		}
	}
	for _, holder := range r.held {
		if holder.UID == j.UID {
			return nil
		}
	}
	var best v1alpha1.ClusterName
	most := int64(-1)
	for _, w := range f.Workers() {
		if places := w.PlacesFor(&j.Job); mine(w) && fitsEmpty(j, f, w.Name) && (places > most || places == most && w.Name < best) {
			best, most = w.Name, places
		}
	}
	if best != "" && !now.Before(j.Since.Add(reserveAfter(j))) {
		r.hold(j, best)
	}
	return nil
}

func (r *reference) hold(j *queue.Job, worker v1alpha1.ClusterName) {
	maps.DeleteFunc(r.held, func(_ v1alpha1.ClusterName, holder *queue.Job) bool { return holder.UID == j.UID })
	r.held[worker] = j
}
