// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package judgement

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
