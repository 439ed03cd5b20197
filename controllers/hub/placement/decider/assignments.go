// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package decider

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// assignments are our live jobs on workers: the jobs whose Dispatches name a worker, and the jobs with a Grant. Only
// methods of assignments use its maps.
type assignments struct {
	byUID    map[types.UID]*assignment
	byWorker map[v1alpha1.ClusterName]map[types.UID]*assignment
	// grants are the assignments whose Grant has not been written.
	grants map[types.NamespacedName]*assignment
	// evicted are the jobs that are to leave their worker.
	evicted map[types.UID]*assignment
	// departed are the jobs that were evicted for another job, and whose attempts have ended. What the worker reports
	// may still have their pods.
	departed map[types.UID]*assignment
	// promised is the room on a worker for a job that is to leave another worker. It is not in the maps above.
	promised map[types.UID]*assignment
}

// assignment is a live job on a worker.
type assignment struct {
	key       types.NamespacedName
	uid       types.UID
	worker    v1alpha1.ClusterName
	clusterID types.UID
	attempt   int32
	podSets   []v1alpha1.PodSet
	// domain is where on the worker the pods run that belong together, nil if they may run anywhere. podSets select it.
	domain *v1alpha1.Domain
	// queue is the LocalQueue into which the copy comes. The name is empty if there is none, or if a Dispatch does not
	// say.
	queue    types.NamespacedName
	priority int32
	// since is when it was placed, as far as this process knows.
	since time.Time
	// unsaved is record.UnsavedSince.
	unsaved time.Time
	// grant is nil when it has been written.
	grant *Grant
	// eviction ends the attempt. Until the attempt has ended the job takes all its room, as its copy may still make
	// pods.
	eviction *v1alpha1.Eviction
	// evictor is the job for which this process has decided the eviction, while the eviction has not been seen on the
	// Dispatch.
	evictor types.NamespacedName
	// evictedAt is when the eviction was decided, as far as this process knows. overdue: the job has not stopped in
	// EvictionPatience.
	evictedAt time.Time
	overdue   bool
	// promised: the job is not there yet.
	promised bool
}

func newAssignments() *assignments {
	return &assignments{
		byUID:    map[types.UID]*assignment{},
		byWorker: map[v1alpha1.ClusterName]map[types.UID]*assignment{},
		grants:   map[types.NamespacedName]*assignment{},
		evicted:  map[types.UID]*assignment{},
		departed: map[types.UID]*assignment{},
		promised: map[types.UID]*assignment{},
	}
}

// assignmentOf is what a Dispatch that names a worker says.
func assignmentOf(d *v1alpha1.Dispatch, now time.Time) *assignment {
	var local types.NamespacedName
	if name := ptr.Deref(d.Spec.LocalQueue, ""); name != "" {
		local = types.NamespacedName{Namespace: d.Namespace, Name: name}
	}
	return &assignment{
		key: types.NamespacedName{Namespace: d.Namespace, Name: d.Name}, uid: d.Spec.TrainJob.UID, worker: d.Spec.Cluster,
		clusterID: d.Spec.ClusterID, attempt: d.Spec.Attempt, podSets: d.Spec.PodSets, domain: d.Spec.Domain, queue: local, priority: d.Spec.Priority,
		since: sinceOf(d), unsaved: record.UnsavedSince(d), eviction: d.Spec.Eviction, evictedAt: evictedAtOf(d, now),
	}
}

// stopsSlowly: the job's pods may take longer to stop than another job waits for them.
func (a *assignment) stopsSlowly() bool {
	return slices.ContainsFunc(a.podSets, func(podSet v1alpha1.PodSet) bool {
		grace := podSet.TerminationGracePeriodSeconds
		return grace != nil && *grace > int64(EvictionPatience/time.Second)
	})
}

// leaves: an eviction of the job would gain nothing.
func (a *assignment) leaves() bool { return a.eviction != nil || a.promised }

func (s *assignments) put(a *assignment) {
	maps.DeleteFunc(s.departed, func(_ types.UID, left *assignment) bool {
		return left.eviction.For == a.uid || left.uid == a.uid && left.worker == a.worker
	})
	s.byUID[a.uid] = a
	if s.byWorker[a.worker] == nil {
		s.byWorker[a.worker] = map[types.UID]*assignment{}
	}
	s.byWorker[a.worker][a.uid] = a
	if a.grant != nil {
		s.grants[a.key] = a
	}
	if a.eviction != nil {
		s.evicted[a.uid] = a
	}
}

// of returns the assignment of a job, nil if it has none.
func (s *assignments) of(job types.UID) *assignment { return s.byUID[job] }

// placed returns the assignment of a job by this attempt or by a later one, nil if it has none.
func (s *assignments) placed(job types.UID, attempt int32) *assignment {
	if a := s.byUID[job]; a != nil && a.attempt >= attempt {
		return a
	}
	return nil
}

// granted returns the assignment of the job of this name whose Grant has not been written, nil if it has none.
func (s *assignments) granted(job types.NamespacedName) *assignment { return s.grants[job] }

// promisedTo returns the promise to a job, nil if it has none.
func (s *assignments) promisedTo(job types.UID) *assignment { return s.promised[job] }

// promisesTo returns the promises to the jobs of this name that have no assignment.
func (s *assignments) promisesTo(job types.NamespacedName) (all []*assignment) {
	for uid, p := range s.promised {
		if p.key == job && s.byUID[uid] == nil && !p.isNomination() {
			all = append(all, p)
		}
	}
	return all
}

func (s *assignments) promise(p *assignment)   { s.promised[p.uid] = p }
func (s *assignments) unpromise(job types.UID) { delete(s.promised, job) }

// count returns how many jobs are on a worker.
func (s *assignments) count(worker v1alpha1.ClusterName) int { return len(s.byWorker[worker]) }

// evict notes an eviction that was decided at a time. A nil eviction takes it back.
func (s *assignments) evict(a *assignment, eviction *v1alpha1.Eviction, at time.Time) {
	if a.eviction == nil || eviction == nil {
		a.evictedAt, a.overdue = at, false
	}
	if a.eviction = eviction; eviction != nil {
		s.evicted[a.uid] = a
	} else {
		delete(s.evicted, a.uid)
	}
}

// evictions returns the jobs that are to leave their worker.
func (s *assignments) evictions() (keys []types.NamespacedName) {
	for _, a := range s.evicted {
		keys = append(keys, a.key)
	}
	return keys
}

// evictedFor returns the jobs that are being stopped for a job, and the jobs that have left for it and may have pods on
// their worker. Jobs that take too long are not among them.
func (s *assignments) evictedFor(job types.UID) (stopping, departed []*assignment) {
	waitedFor := func(jobs map[types.UID]*assignment) (all []*assignment) {
		for _, a := range jobs {
			if a.eviction.For == job && !a.overdue {
				all = append(all, a)
			}
		}
		return all
	}
	return waitedFor(s.evicted), waitedFor(s.departed)
}

// overdueFor is true if a job that is being stopped for a job, or has left for it, takes too long.
func (s *assignments) overdueFor(job types.UID) bool {
	for a := range s.leaving() {
		if a.eviction.For == job && a.overdue {
			return true
		}
	}
	return false
}

// gone notes that a job which has left its worker has no pods there.
func (s *assignments) gone(a *assignment) { delete(s.departed, a.uid) }

// leaving returns the jobs that are to leave their worker, and the jobs that have left it and may have pods there.
func (s *assignments) leaving() iter.Seq[*assignment] {
	return func(yield func(*assignment) bool) {
		for _, jobs := range []map[types.UID]*assignment{s.evicted, s.departed} {
			for _, a := range jobs {
				if !yield(a) {
					return
				}
			}
		}
	}
}

// confirm notes that the Grant of a job is on the API server.
func (s *assignments) confirm(a *assignment) {
	a.grant = nil
	delete(s.grants, a.key)
}

// drop forgets a job, and returns what was known of it, nil if nothing was.
func (s *assignments) drop(uid types.UID) *assignment {
	a := s.byUID[uid]
	if a == nil {
		return nil
	}
	delete(s.byUID, uid)
	delete(s.byWorker[a.worker], uid)
	delete(s.evicted, uid)
	if s.grants[a.key] == a {
		delete(s.grants, a.key)
	}
	if a.eviction != nil && a.eviction.For != "" {
		s.departed[uid] = a
	}
	return a
}

// on returns the jobs of a worker, and the jobs to which it has been promised, in an order that does not depend on the
// maps, so that the same fleet gives the same answer.
func (s *assignments) on(worker v1alpha1.ClusterName) []*assignment {
	all := slices.Collect(maps.Values(s.byWorker[worker]))
	for _, a := range s.promised {
		if a.worker == worker {
			all = append(all, a)
		}
	}
	slices.SortFunc(all, func(a, b *assignment) int {
		return cmp.Or(cmp.Compare(a.key.Namespace, b.key.Namespace), cmp.Compare(a.key.Name, b.key.Name), cmp.Compare(a.uid, b.uid))
	})
	return all
}

// evictedAtOf is since when a Dispatch says that its job is being stopped, or else now.
func evictedAtOf(d *v1alpha1.Dispatch, now time.Time) time.Time {
	condition := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchEvicting)
	if condition != nil && condition.Status == metav1.ConditionTrue {
		return condition.LastTransitionTime.Time
	}
	return now
}

// sinceOf is when the job of a Dispatch was placed, as far as that is still known. It decides only whose Workload says how
// Kueue charges.
func sinceOf(d *v1alpha1.Dispatch) time.Time {
	if d.Status.StartTime != nil {
		return d.Status.StartTime.Time
	}
	return d.CreationTimestamp.Time
}
