// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"slices"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// verdict on a copy.
type verdict int

const (
	// needed: its job is live here, or it is going already.
	needed verdict = iota
	// ended: its attempt is the last one and has finished.
	ended
	// outdated: a record of the hub says that it has to go: its attempt has ended, the hub has moved on, or its job is gone or over.
	outdated
	// adoptable: it is of a later attempt than the hub knows, which can be put on record.
	adoptable
	// postponed: it would be adoptable, and its Dispatch is just going.
	postponed
	// unknown: the hub has no record that says what the copy is.
	unknown
)

// String names the verdict, for logs and tests.
func (v verdict) String() string {
	return [...]string{"needed", "ended", "outdated", "adoptable", "postponed", "unknown"}[v]
}

// place is a worker: its name, and the cluster that it leads to.
type place struct {
	Cluster   v1alpha1.ClusterName
	ClusterID types.UID
}

// hubRecords are what the hub has under the name of a copy. Each may be nil.
type hubRecords struct {
	dispatch   *v1alpha1.Dispatch
	tombstones []v1alpha1.Tombstone
	job        *unstructured.Unstructured
}

// judge says what a copy on a worker is by the Dispatch and the Tombstone. Those that it takes for unknown, or that are of a later
// attempt, are looked at closer by consider.
func judge(here place, copy client.Object, hub hubRecords) verdict {
	origin, attempt, d := originOf(copy), attemptOf(copy), hub.dispatch
	if d != nil && copy.GetUID() != "" && d.RecordedCopy() == copy.GetUID() {
		origin, attempt = d.Spec.TrainJob.UID, d.Spec.Attempt // Whatever somebody has written on it: mirror puts that right.
	}
	switch {
	case attempt == 0:
		return unknown // Somebody took the annotation off.
	case slices.ContainsFunc(hub.tombstones, func(t v1alpha1.Tombstone) bool { return isCoveredBy(here, copy, &t) }):
		return outdatedUnlessGoing(copy)
	case d == nil, origin != d.Spec.TrainJob.UID:
		return unknown
	case attempt > d.Spec.Attempt:
		return unknown // The hub was restored from a time before this attempt.
	case attempt < d.Spec.Attempt, d.Spec.Cluster == "":
		return outdatedUnlessGoing(copy)
	case d.Spec.ClusterID != "" && d.Spec.ClusterID != here.ClusterID, d.Spec.ClusterID == "" && d.Spec.Cluster != here.Cluster:
		return unknown // Of this very attempt, which is on another cluster.
	case d.Spec.Cluster != here.Cluster:
		return needed // The cluster has got another name. The job was placed on this one.
	default:
		return judgeCurrent(copy, d)
	}
}

// judgeCurrent is judge for a copy of the attempt that is on record for this worker.
func judgeCurrent(copy client.Object, d *v1alpha1.Dispatch) verdict {
	switch record.AttemptOf(d) {
	case record.Finished:
		switch {
		case d.RecordedCopy() != "" && d.RecordedCopy() != copy.GetUID():
			return outdatedUnlessGoing(copy) // A second copy of the attempt, of a creation that was late.
		case copy.GetDeletionTimestamp() == nil:
			return ended
		}
	case record.Ended:
		return outdatedUnlessGoing(copy) // What was created late, or was on a worker that was given up.
	case record.None, record.Waiting, record.Placed, record.Copied, record.Evicting, record.Lost, record.Leaving:
	}
	return needed
}

// outdatedUnlessGoing: nothing is to be done about what is being deleted.
func outdatedUnlessGoing(copy client.Object) verdict {
	if copy.GetDeletionTimestamp() != nil {
		return needed
	}
	return outdated
}

// isCoveredBy is true if the Tombstone says that the copy has to go.
func isCoveredBy(here place, copy client.Object, tombstone *v1alpha1.Tombstone) bool {
	spec := &tombstone.Spec
	return spec.ClusterID == here.ClusterID && spec.TrainJob.UID == originOf(copy) &&
		spec.Namespace == copy.GetNamespace() && spec.TrainJob.Name == copy.GetName() && // Users there can write any UID.
		attemptOf(copy) > 0 && attemptOf(copy) <= spec.Attempt
}

// consider says what is done about a copy that judge takes for unknown. rival is the highest attempt of the same job that another
// worker has an unknown copy of, managedBy the value of the jobs that are this manager's.
func consider(copy client.Object, hub hubRecords, rival int32, managedBy string) verdict {
	attempt, d := attemptOf(copy), hub.dispatch
	job := hub.job
	if job != nil && job.GetUID() != originOf(copy) {
		job = nil // Another one of the name.
	}
	of := d != nil && d.Spec.TrainJob.UID == originOf(copy)
	switch {
	case attempt == 0:
		return unknown
	case job != nil && (trainjobs.Terminal(job) != nil || d == nil && job.GetDeletionTimestamp() != nil):
		return outdatedUnlessGoing(copy)
	case copy.GetDeletionTimestamp() != nil, rival >= attempt:
		return unknown
	case job == nil, trainjobs.ManagedBy(job) != managedBy:
		return unknown // That a job is not there is no record of its deletion.
	case of && attempt > d.Spec.Attempt:
		return considerLater(d)
	case d == nil:
		return adoptable // The Dispatch was lost.
	default:
		return unknown
	}
}

// considerLater is about a copy of a later attempt than that of its Dispatch.
func considerLater(d *v1alpha1.Dispatch) verdict {
	switch {
	case record.AttemptOf(d) == record.Finished:
		return unknown // No attempt follows one that has finished.
	case d.DeletionTimestamp != nil && !record.IsGuarded(d):
		return postponed // It would go without waiting for the copy.
	default:
		return adoptable
	}
}

func originOf(copy client.Object) types.UID {
	return types.UID(copy.GetLabels()[v1alpha1.LabelOriginUID])
}

// attemptOf is the attempt of a copy, 0 if it has none.
func attemptOf(copy client.Object) int32 {
	attempt, err := strconv.ParseInt(copy.GetAnnotations()[v1alpha1.AnnotationAttempt], 10, 32)
	if err != nil || attempt < 1 {
		return 0
	}
	return int32(attempt)
}

// failoverOf is the failover that a copy was created with.
func failoverOf(copy client.Object) v1alpha1.Failover {
	switch failover := v1alpha1.Failover(copy.GetAnnotations()[v1alpha1.AnnotationFailover]); failover {
	case v1alpha1.FailoverHold, v1alpha1.FailoverFenced, v1alpha1.FailoverImmediate:
		return failover
	default:
		return ""
	}
}
