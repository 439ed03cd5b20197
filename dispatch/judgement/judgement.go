// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package judgement

import (
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// Worker is a worker: its name, and the ID of the cluster that it leads to.
type Worker struct {
	Name      v1alpha1.ClusterName
	ClusterID types.UID
}

// IsNamedBy is true if the Dispatch names this worker: by the ID of its cluster, if it says one.
func (w Worker) IsNamedBy(d *v1alpha1.Dispatch) bool {
	if d.Spec.ClusterID != "" {
		return d.Spec.ClusterID == w.ClusterID
	}
	return d.Spec.Cluster == w.Name
}

// Seen is what has been seen of a key on one worker: the hub's job, what is on record of it, and the TrainJob of its
// name on the worker. Each of the objects may be nil.
type Seen struct {
	Here       Worker
	Job        *unstructured.Unstructured
	Dispatch   *v1alpha1.Dispatch
	Tombstones []v1alpha1.Tombstone
	// Copy is the TrainJob on the worker, and CopyEnded says that it is Complete or Failed.
	Copy      metav1.Object
	CopyEnded bool
	// Known is what the caller knows beside the record. Copied: it knows that the current attempt has had a copy.
	Known  record.Known
	Copied bool
	// Hold is why no first copy may be created. HeldBy is the worker whose copy holds it back, empty if none does.
	Hold   Hold
	HeldBy v1alpha1.ClusterName
	// Asked: the objects are those of the API servers, and not of caches. Only then is more said about a copy that no
	// record explains. OtherAttempt is the highest attempt among such copies of the job on other workers. ManagedBy is
	// the value of spec.managedBy of this manager's jobs.
	Asked        bool
	OtherAttempt int32
	ManagedBy    string
}

// Judgement is what is to be done about a key on one worker: about the attempt that is on record, and about the
// TrainJob that has the name. They are one for the copy of the current attempt. Another TrainJob may have its name.
type Judgement struct {
	Attempt Attempt
	Copy    Copy
}

// Of judges what has been seen.
func Of(s Seen) Judgement {
	relation := record.Foreign
	if s.Copy != nil {
		relation = record.RelationOf(s.Dispatch, s.Copy, s.Known)
	}
	return Judgement{Attempt: s.attempt(relation), Copy: s.copy(relation)}
}

// attempt judges the attempt that is on record.
func (s *Seen) attempt(relation record.Relation) Attempt {
	d := s.Dispatch
	served := record.StateOf(d) == record.Leaving || relation == record.Current || relation == record.Second
	switch {
	case s.Hold == Unswept && !served:
		return Waiting
	case s.Hold == Held && !served:
		return HeldBack
	case d == nil, d.Spec.Cluster != s.Here.Name:
		return Idle
	case !s.Here.IsNamedBy(d):
		if d.IsFinished() && !s.leaving() {
			return Idle
		}
		return Misplaced
	case s.leaving():
		if relation != record.Foreign {
			return Withdrawing
		}
		return Released
	}
	switch record.StateOf(d) {
	case record.Finished, record.Ended:
		return Idle
	case record.Lost:
		return Returned
	default:
		return s.live(relation)
	}
}

// leaving is true if the copy has to go: somebody has deleted the Dispatch, or the job does not stay.
func (s *Seen) leaving() bool {
	return s.Dispatch.DeletionTimestamp != nil || !record.JobStays(s.Dispatch, s.Job)
}

// live judges an attempt that is live on this worker.
func (s *Seen) live(relation record.Relation) Attempt {
	evicted, copied := s.Dispatch.Spec.Eviction != nil, s.Copied || s.Dispatch.WasCopied()
	missing := s.Copy == nil || relation == record.Second || relation == record.Foreign && copied
	switch {
	case trainjobs.Terminal(s.Job) != nil:
		return Finished
	case missing && evicted:
		return Evicting
	case missing && copied:
		return CopyDeleted
	case s.Copy == nil && trainjobs.Suspended(s.Job):
		return Blocked // Placement asks for an eviction, which wakes us.
	case s.Copy == nil:
		return Absent
	case relation == record.Foreign:
		return Conflicting
	case relation != record.Current:
		return Blocked
	case s.CopyEnded:
		return Finished
	case evicted:
		return Evicting
	case s.Copy.GetDeletionTimestamp() != nil:
		return Blocked
	default:
		return Mirrored
	}
}

// copy judges the TrainJob that has the name, which has the label of this hub.
func (s *Seen) copy(relation record.Relation) Copy {
	d := s.Dispatch
	switch {
	case s.Copy == nil:
		return Gone
	case slices.ContainsFunc(s.Tombstones, func(t v1alpha1.Tombstone) bool { return IsCovered(s.Here, s.Copy, &t) }):
		return s.unlessGoing(Outdated)
	case relation == record.Foreign, relation == record.Unmarked, relation == record.Later:
		return s.unexplained(relation)
	case relation == record.Older, d.Spec.Cluster == "":
		return s.unlessGoing(Outdated)
	case !s.Here.IsNamedBy(d):
		return s.unexplained(relation) // The copy belongs to this very attempt, but the attempt is on another cluster.
	case d.Spec.Cluster != s.Here.Name:
		return Needed // The WorkerCluster of this cluster has another name now. The job was placed on this cluster.
	}
	switch attempt := record.AttemptOf(d); {
	case attempt == record.Finished && relation == record.Second:
		return s.unlessGoing(Outdated)
	case attempt == record.Finished:
		return s.unlessGoing(Retained)
	case attempt == record.Ended:
		return s.unlessGoing(Outdated) // The copy was created late, or was on a worker that was given up.
	}
	return Needed
}

// unlessGoing is Needed for a copy that is being deleted: then there is nothing to do.
func (s *Seen) unlessGoing(c Copy) Copy {
	if s.Copy.GetDeletionTimestamp() != nil {
		return Needed
	}
	return c
}

// IsCovered is true if the Tombstone says that a copy on this worker has to be deleted.
func IsCovered(here Worker, copy metav1.Object, tombstone *v1alpha1.Tombstone) bool {
	spec, attempt := &tombstone.Spec, record.AttemptOn(copy)
	return spec.ClusterID == here.ClusterID && spec.TrainJob.UID == record.OriginOn(copy) &&
		// Users of the worker can write any UID.
		spec.Namespace == copy.GetNamespace() && spec.TrainJob.Name == copy.GetName() &&
		attempt > 0 && attempt <= spec.Attempt
}

// unexplained judges a copy that no record explains. The last copy of the attempt on record may be on another worker.
func (s *Seen) unexplained(relation record.Relation) Copy {
	d, job, attempt := s.Dispatch, s.Job, record.AttemptOn(s.Copy)
	if job != nil && job.GetUID() != record.OriginOn(s.Copy) {
		job = nil // The hub TrainJob of that name is another job.
	}
	switch {
	case !s.Asked, attempt == 0, s.Copy.GetDeletionTimestamp() != nil:
		return Unknown
	case job == nil:
		return Unknown // A missing job does not prove that the job was deleted.
	case trainjobs.Terminal(job) != nil, d == nil && job.GetDeletionTimestamp() != nil:
		return Orphaned
	case s.OtherAttempt >= attempt, trainjobs.ManagedBy(job) != s.ManagedBy:
		return Unknown
	case d == nil:
		return Adoptable // The Dispatch was lost.
	case relation != record.Later, record.AttemptOf(d) == record.Finished, record.AttemptOf(d) == record.GivenUp:
		return Unknown // No attempt follows a finished attempt, or is made for a job that was given up.
	case d.DeletionTimestamp != nil && !record.IsGuarded(d):
		return Postponed // The Dispatch would not wait for the copy.
	default:
		return Adoptable
	}
}

// Attempt is what is to be done about the attempt on record, in the order of a job's life.
type Attempt int

const (
	// Idle says: nothing here is this worker's to do. The Dispatch waits, or its attempt or job has ended, or it is
	// another worker's.
	Idle Attempt = iota
	// Absent says: the copy is to be created.
	Absent
	// Blocked says: the copy of another attempt has the name, or the copy is being deleted: its end is awaited. Or the job
	// is suspended and has no copy: placement asks for an eviction.
	Blocked
	// Conflicting says: a foreign TrainJob has the name. The attempt is over.
	Conflicting
	// Misplaced says: the worker's name led to another cluster when the job was placed. Nothing is done.
	Misplaced
	// Returned says: the worker was lost. First of all it is put on record that it is back.
	Returned
	// Mirrored says: the copy is kept what it should be, and the hub shows its status.
	Mirrored
	// Evicting says: the attempt has to end. The copy is deleted, and the attempt ends when nothing of it is left.
	Evicting
	// Finished says: the job has ended. The TrainJob says so at once, and then the Dispatch.
	Finished
	// CopyDeleted says: the copy is gone. The attempt is over when nothing of it is left.
	CopyDeleted
	// Withdrawing says: the job or the Dispatch leaves. The copy is deleted, and its end is awaited.
	Withdrawing
	// Released says: the job or the Dispatch leaves, and the copy is gone. The Dispatch may go.
	Released
	// Waiting says: the worker has not been swept. The sweep brings the key again.
	Waiting
	// HeldBack says: the first copy must not be created now, and no event says when it may.
	HeldBack
)

// String names the duty, for logs and tests.
func (a Attempt) String() string {
	return [...]string{
		"idle", "absent", "blocked", "conflicting", "misplaced", "returned", "mirrored", "evicting", "finished", "copyDeleted",
		"withdrawing", "released", "waiting", "heldBack",
	}[a]
}

// Hold is why the first copy of an attempt must not be created now. A copy of the attempt that is there is served
// nevertheless, and a Dispatch that is being deleted is let go.
type Hold int

const (
	// Open says: it may be created.
	Open Hold = iota
	// Unswept says: the worker has not been swept since it was connected. After the sweep the key comes again.
	Unswept
	// Held says: another worker has a copy of the job that the hub has no record of, or not all workers have been looked
	// at.
	Held
)

// Copy is what is to be done about the TrainJob that has the name, beside what its attempt needs.
type Copy int

const (
	// Gone says: there is none.
	Gone Copy = iota
	// Needed says: the copy's job is live on this worker, or the copy is being deleted.
	Needed
	// Retained says: the copy has finished, and is deleted after its retention.
	Retained
	// Outdated says: the copy is deleted. Its attempt or its job is over, or a later attempt exists.
	Outdated
	// Unknown says: no record says what the copy is. It is left alone until somebody decides.
	Unknown
	// Orphaned says: no record says what the copy is, and its job has ended. The copy is deleted.
	Orphaned
	// Adoptable says: the attempt of the copy is later than the hub knows, and the hub can put it on record.
	Adoptable
	// Postponed says: the copy would be adoptable, but its Dispatch is being deleted.
	Postponed
)

// String names the duty, for logs and tests.
func (c Copy) String() string {
	return [...]string{"gone", "needed", "retained", "outdated", "unknown", "orphaned", "adoptable", "postponed"}[c]
}
