// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"cmp"
	"iter"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch"
)

// ledger are our live jobs on workers: those that Dispatches tell of, and those that have just been decided on. The zero value is
// an empty one.
type ledger struct {
	byJob    map[types.UID]*assignment
	byWorker map[v1alpha1.ClusterName]map[types.UID]*assignment
	// grants are the decisions that have not been written.
	grants map[types.NamespacedName]*assignment
	// evicted are those that are to leave their worker.
	evicted map[types.UID]*assignment
	// departed were evicted for another job, and their attempts have ended. What the worker reports may have their pods still.
	departed map[types.UID]*assignment
	// promised is room on a worker for a job that is to leave another one. It is not in the maps above.
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
	priority  int32
	// since is when it was placed, as far as this process knows.
	since time.Time
	// grant is the decision while it has not been written. Failover and the circumstances belong to it.
	grant    *dispatch.Decision
	failover v1alpha1.Failover
	asked    string
	// eviction ends the attempt. Until it has ended the job takes all its room: its copy may still make pods. evictor is the job for which it was decided by this process and has not been seen on the Dispatch.
	eviction *v1alpha1.Eviction
	evictor  types.NamespacedName
	// evictedAt is when the eviction was decided, as far as this process knows, and overdue that the job has not
	// stopped in evictionPatience.
	evictedAt time.Time
	overdue   bool
	// promised: the job is not there yet.
	promised bool
}

// stopsSlowly: its pods may take longer to stop than another job waits for that.
func (a *assignment) stopsSlowly() bool {
	return slices.ContainsFunc(a.podSets, func(podSet v1alpha1.PodSet) bool {
		grace := podSet.TerminationGracePeriodSeconds
		return grace != nil && *grace > int64(evictionPatience/time.Second)
	})
}

// leaves: nothing would be gained by its eviction.
func (a *assignment) leaves() bool { return a.eviction != nil || a.promised }

func (l *ledger) put(a *assignment) {
	if l.byJob == nil {
		l.byJob = map[types.UID]*assignment{}
		l.byWorker = map[v1alpha1.ClusterName]map[types.UID]*assignment{}
		l.grants = map[types.NamespacedName]*assignment{}
		l.evicted = map[types.UID]*assignment{}
		l.departed = map[types.UID]*assignment{}
	}
	maps.DeleteFunc(l.departed, func(_ types.UID, left *assignment) bool {
		return left.eviction.For == a.uid || left.uid == a.uid && left.worker == a.worker
	})
	l.byJob[a.uid] = a
	if l.byWorker[a.worker] == nil {
		l.byWorker[a.worker] = map[types.UID]*assignment{}
	}
	l.byWorker[a.worker][a.uid] = a
	if a.grant != nil {
		l.grants[a.key] = a
	}
	if a.eviction != nil {
		l.evicted[a.uid] = a
	}
}

// evict notes an eviction that was decided at a time, or takes it back.
func (l *ledger) evict(a *assignment, eviction *v1alpha1.Eviction, at time.Time) {
	if a.eviction == nil || eviction == nil {
		a.evictedAt, a.overdue = at, false
	}
	if a.eviction = eviction; eviction != nil {
		l.evicted[a.uid] = a
	} else {
		delete(l.evicted, a.uid)
	}
}

// leaving are the jobs that are to leave their worker, and those that have left it and may have pods there.
func (l *ledger) leaving() iter.Seq[*assignment] {
	return func(yield func(*assignment) bool) {
		for _, jobs := range []map[types.UID]*assignment{l.evicted, l.departed} {
			for _, a := range jobs {
				if !yield(a) {
					return
				}
			}
		}
	}
}

// confirm notes that the decision about a job is on the API server.
func (l *ledger) confirm(a *assignment) {
	a.grant = nil
	delete(l.grants, a.key)
}

// drop forgets a job, and returns what was known of it, nil if nothing was.
func (l *ledger) drop(uid types.UID) *assignment {
	a := l.byJob[uid]
	if a == nil {
		return nil
	}
	delete(l.byJob, uid)
	delete(l.byWorker[a.worker], uid)
	delete(l.evicted, uid)
	if l.grants[a.key] == a {
		delete(l.grants, a.key)
	}
	if a.eviction != nil && a.eviction.For != "" {
		l.departed[uid] = a
	}
	return a
}

// on returns the jobs of a worker, and those that it has been promised for, in an order that does not depend on the maps, so that the
// same facts give the same answer.
func (l *ledger) on(worker v1alpha1.ClusterName) []*assignment {
	all := slices.Collect(maps.Values(l.byWorker[worker]))
	for _, a := range l.promised {
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

// sinceOf is when the job of a Dispatch was placed, as far as that is still known: nothing depends on it but which of two victims of
// equal priority goes.
func sinceOf(d *v1alpha1.Dispatch) time.Time {
	if d.Status.StartTime != nil {
		return d.Status.StartTime.Time
	}
	return d.CreationTimestamp.Time
}
