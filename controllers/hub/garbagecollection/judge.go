// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package garbagecollection

import (
	"slices"

	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// copyState is what the hub's records say about a copy.
type copyState int

const (
	// needed: the copy's job is live on this worker, or the copy is already being deleted.
	needed copyState = iota
	// ended: the copy belongs to the last attempt, and has finished.
	ended
	// outdated: by a record of the hub the copy has to be deleted: its attempt or its job is over, or a later attempt
	// exists.
	outdated
	// adoptable: the attempt of the copy is later than the hub knows, and the hub can put it on record.
	adoptable
	// postponed: the copy would be adoptable, but its Dispatch is being deleted.
	postponed
	// unknown: the hub has no record that says what the copy is.
	unknown
)

// String names the state, for logs and tests.
func (s copyState) String() string {
	return [...]string{"needed", "ended", "outdated", "adoptable", "postponed", "unknown"}[s]
}

// judge says what the Dispatch and the Tombstones of a job say about a copy that has the label of this hub. consider
// looks closer at unknown copies.
func judge(here place, copy client.Object, hub hubRecords) copyState {
	d := hub.dispatch
	relation := record.RelationOf(d, copy, record.Known{}) // Mirror corrects marks that somebody has changed.
	isCovered := func(t v1alpha1.Tombstone) bool { return isCoveredBy(here, copy, &t) }
	switch {
	case slices.ContainsFunc(hub.tombstones, isCovered):
		return outdatedUnlessGoing(copy)
	case relation == record.Foreign:
		return unknown
	case relation == record.Unmarked:
		return unknown // Somebody removed the annotation.
	case relation == record.Later:
		return unknown // The hub was restored from a backup that is older than this attempt.
	case relation == record.Older, d.Spec.Cluster == "":
		return outdatedUnlessGoing(copy)
	case d.Spec.ClusterID != "" && d.Spec.ClusterID != here.ClusterID, d.Spec.ClusterID == "" && d.Spec.Cluster != here.Cluster:
		return unknown // The copy belongs to this very attempt, but the attempt is on another cluster.
	case d.Spec.Cluster != here.Cluster:
		return needed // The WorkerCluster of this cluster has another name now. The job was placed on this cluster.
	default:
		return judgeCurrent(copy, d, relation)
	}
}

// judgeCurrent is judge for a copy of the attempt that is on record for this worker.
func judgeCurrent(copy client.Object, d *v1alpha1.Dispatch, relation record.Relation) copyState {
	switch record.AttemptOf(d) {
	case record.Finished:
		switch {
		case relation == record.Second:
			return outdatedUnlessGoing(copy)
		case copy.GetDeletionTimestamp() == nil:
			return ended
		}
	case record.Ended:
		return outdatedUnlessGoing(copy) // The copy was created late, or was on a worker that was given up.
	case record.None, record.Waiting, record.Placed, record.Copied, record.Evicting, record.Lost, record.Leaving:
	}
	return needed
}

// outdatedUnlessGoing returns outdated, or needed if the copy is already being deleted: then there is nothing to do.
func outdatedUnlessGoing(copy client.Object) copyState {
	if copy.GetDeletionTimestamp() != nil {
		return needed
	}
	return outdated
}

// isCoveredBy is true if the Tombstone says that the copy has to be deleted.
func isCoveredBy(here place, copy client.Object, tombstone *v1alpha1.Tombstone) bool {
	spec := &tombstone.Spec
	return spec.ClusterID == here.ClusterID && spec.TrainJob.UID == record.OriginOn(copy) &&
		// Users of the worker can write any UID.
		spec.Namespace == copy.GetNamespace() && spec.TrainJob.Name == copy.GetName() &&
		record.AttemptOn(copy) > 0 && record.AttemptOn(copy) <= spec.Attempt
}

// consider says what to do about a copy that judge takes for unknown. rival is the highest attempt of the same job
// among the unknown copies on other workers. managedBy is the value of spec.managedBy of this manager's jobs.
func consider(copy client.Object, hub hubRecords, rival int32, managedBy string) copyState {
	attempt, d := record.AttemptOn(copy), hub.dispatch
	job := hub.job
	if job != nil && job.GetUID() != record.OriginOn(copy) {
		job = nil // The hub TrainJob of that name is another job.
	}
	switch {
	case attempt == 0:
		return unknown
	case job != nil && (trainjobs.Terminal(job) != nil || d == nil && job.GetDeletionTimestamp() != nil):
		return outdatedUnlessGoing(copy)
	case copy.GetDeletionTimestamp() != nil, rival >= attempt:
		return unknown
	case job == nil, trainjobs.ManagedBy(job) != managedBy:
		return unknown // A missing job does not prove that the job was deleted.
	case record.RelationOf(d, copy, record.Known{}) == record.Later:
		return considerLater(d)
	case d == nil:
		return adoptable // The Dispatch was lost.
	default:
		return unknown
	}
}

// considerLater is consider for a copy whose attempt is later than the attempt of its Dispatch.
func considerLater(d *v1alpha1.Dispatch) copyState {
	switch {
	case record.AttemptOf(d) == record.Finished:
		return unknown // No attempt follows a finished attempt.
	case d.DeletionTimestamp != nil && !record.IsGuarded(d):
		return postponed // The Dispatch would not wait for the copy.
	default:
		return adoptable
	}
}

// isOurs is true for a TrainJob that is labelled as a copy of this hub.
func isOurs(copy client.Object, hubID string) bool {
	return copy.GetLabels()[v1alpha1.LabelHub] == hubID
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
