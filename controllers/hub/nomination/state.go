// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package nomination

import (
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/kueues"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

const (
	// admissionTime is how long a worker may leave a clone without quota, if the job's policy has no admissionTimeout.
	admissionTime = 10 * time.Second
	// preemptionTime is the same for a clone for which the worker's Kueue has stopped other Workloads: while their pods
	// end, Kueue may say again that the clone only waits for quota.
	preemptionTime = 5 * time.Minute
	// creationTime is how long MultiKueue may take to create the clone. Before Kueue 0.20 its clients make five requests
	// per second for each worker, so a burst takes that long.
	creationTime = 5 * time.Minute
	// podsTime is how long the pods of an admitted job may take to be counted on the worker's nodes, if nobody can say
	// which pods are the job's. Until then its room is taken by the nomination.
	podsTime = time.Minute
)

// state is what to do about a Workload.
type state int

const (
	// ended: it is gone, has finished, is being deleted, or MultiKueue has nothing to do with it. It needs no room.
	ended state = iota
	// unready: it has no quota, is being evicted, or waits for other admission checks. It needs no room yet.
	unready
	// misconfigured: MultiKueue has no cluster for it.
	misconfigured
	// settled: MultiKueue has given it to a worker.
	settled
	// foreign: somebody else nominates workers for it.
	foreign
	// crossed: a worker that is not nominated, or not any more, has admitted it.
	crossed
	// granted: the nominated worker has admitted it. MultiKueue acts now.
	granted
	// away: nobody can tell what the nominated worker does with it.
	away
	// following: the nominated worker has time to admit it.
	following
	// refused: the nominated worker does not admit it. Another worker is to be nominated instead.
	refused
	// unplaced: no worker is nominated.
	unplaced
)

// String names the state, for logs and tests.
func (s state) String() string {
	return [...]string{
		"ended", "unready", "misconfigured", "settled", "foreign", "crossed", "granted", "away", "following", "refused", "unplaced",
	}[s]
}

// observation is what one reconcile has read about a Workload.
type observation struct {
	key types.NamespacedName
	// workload is nil if it does not exist.
	workload *workload
	targets  targets
	// clones are the clones on the workers to which MultiKueue may give the job. A worker without an entry is unknown.
	clones map[v1alpha1.ClusterName]clone
	// timeout is the admissionTimeout of the job's policy, 0 if it has none.
	timeout time.Duration
	// nominated and cloned are since when this process has seen the present nomination and its clone, zero for not yet.
	// preempting is when it has last seen that Workloads are stopped for the clone.
	nominated, cloned, preempting time.Time
}

// nominee returns the nominated worker, empty if there is none or more than one.
func (o *observation) nominee() v1alpha1.ClusterName {
	if names := o.workload.Status.NominatedClusterNames; len(names) == 1 {
		return names[0]
	}
	return ""
}

// admitting returns a worker that has admitted the job: the nominated one, or else the first of the configuration.
func (o *observation) admitting() v1alpha1.ClusterName {
	if name := o.nominee(); name != "" && o.clones[name].state == admitted {
		return name
	}
	for _, name := range o.targets.clusters {
		if o.clones[name].state == admitted {
			return name
		}
	}
	return ""
}

// decide says what to do about a Workload.
func decide(o *observation, now time.Time) state {
	w := o.workload
	switch {
	case w == nil, w.DeletionTimestamp != nil, w.Is(kueues.Finished), o.targets.check == "":
		return ended
	case w.Status.ClusterName != "" && w.Is(kueues.QuotaReserved), w.check(o.targets.check) == kueues.CheckReady:
		return settled
	case !w.awaitsNomination(), w.check(o.targets.check) != kueues.CheckPending, !w.othersReady(o.targets.check):
		return unready
	case o.targets.fault != "":
		return misconfigured
	case len(w.Status.NominatedClusterNames) > 1:
		return foreign
	}
	return o.follow(now)
}

// follow decides about a Workload with one nominated worker or none.
func (o *observation) follow(now time.Time) state {
	nominee := o.nominee()
	switch {
	case o.admitting() != nominee:
		if o.admitting() != "" {
			return crossed
		}
	case nominee != "":
		return granted
	}
	switch {
	case nominee == "":
		return unplaced
	case !slices.Contains(o.targets.clusters, nominee):
		return refused // MultiKueue does not look at that worker any more.
	case o.clones[nominee].state == unknown:
		return away
	case o.clones[nominee].state == inadmissible:
		return refused
	}
	if due := o.due(); !due.IsZero() && !now.Before(due) {
		return refused
	}
	return following
}

// due is when the nominated worker has had its time, zero if it may take any time. A clone with quota waits for what
// the worker's admin has asked for, such as new nodes. A clone for which other Workloads are stopped waits for the end
// of their pods: if it were withdrawn, the next worker would stop Workloads too.
func (o *observation) due() time.Time {
	switch o.clones[o.nominee()].state {
	case missing:
		return o.nominated.Add(creationTime)
	case pending:
		if o.timeout > 0 {
			return o.cloned.Add(o.timeout)
		}
		return latest(o.cloned.Add(admissionTime), o.preempting.Add(preemptionTime))
	case preempting, reserved:
		if o.timeout > 0 {
			return o.cloned.Add(o.timeout)
		}
	case unknown, inadmissible, admitted:
	}
	return time.Time{}
}

func latest(a, b time.Time) time.Time {
	if a.Before(b) {
		return b
	}
	return a
}
