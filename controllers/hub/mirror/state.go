// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/lifecycle"
)

// state is what is to be done about a key, in the order of a job's life.
type state int

const (
	// idle: nothing here is this worker's to do.
	idle state = iota
	absent
	blocked
	conflicting
	misplaced
	returned
	mirrored
	evicting
	finished
	copyDeleted
	withdrawing
	released
)

// String names the state, for logs and tests.
func (s state) String() string {
	return [...]string{
		"idle", "absent", "blocked", "conflicting", "misplaced", "returned", "mirrored", "evicting", "finished", "copyDeleted",
		"withdrawing", "released",
	}[s]
}

// facts are what has been observed of a key. Any of the three objects may be nil.
type facts struct {
	// hubID is what this hub's copies are labelled with.
	hubID    string
	job      *unstructured.Unstructured
	dispatch *v1alpha1.Dispatch
	copy     *unstructured.Unstructured
	// course is what the copy's JobSet was last seen to say, nil if that is not known.
	course *course
	// copied is true if this process knows that the current attempt has had a copy, before the Dispatch says so, and uid is the UID of it.
	copied bool
	uid    types.UID
	// believed is true if copy is what the worker answered to its creation, and the cache does not show it: nothing may wake us when it goes.
	believed bool
	// otherCluster is true if the Dispatch was made for another cluster than the one that the worker's name leads to now.
	otherCluster bool
}

// decide says what is to be done on worker for the observed facts.
func decide(worker v1alpha1.ClusterName, f facts) state {
	switch {
	case f.dispatch == nil || f.dispatch.Spec.Cluster != worker:
		return idle
	case f.otherCluster:
		if f.dispatch.IsFinished() && !leaving(f) {
			return idle
		}
		return misplaced
	case leaving(f):
		if f.copy != nil && f.isOurs(f.copy) {
			return withdrawing
		}
		return released
	}
	switch lifecycle.StateOf(f.dispatch) {
	case lifecycle.Finished, lifecycle.Ended:
		return idle
	case lifecycle.Lost:
		return returned
	default:
		return decideLive(f)
	}
}

// decideLive is decide for an attempt that is live on this worker.
func decideLive(f facts) state {
	has := f.presenceOf(f.copy)
	missing := has == nothing || has == second || has == foreign && f.wasCopied()
	switch {
	case trainjobs.Terminal(f.job) != nil:
		return finished
	case missing && f.dispatch.Spec.Eviction != nil:
		return evicting
	case missing && f.wasCopied():
		return copyDeleted
	case has == nothing && trainjobs.Suspended(f.job):
		return blocked // Placement ends the attempt, which wakes us.
	case has == nothing:
		return absent
	case has == foreign:
		return conflicting
	case has != current:
		return blocked
	case trainjobs.Terminal(f.copy) != nil:
		return finished
	case f.dispatch.Spec.Eviction != nil:
		return evicting
	case f.copy.GetDeletionTimestamp() != nil:
		return blocked
	default:
		return mirrored
	}
}

// leaving is true if the copy has to go: the hub TrainJob is gone, going, or another one of the same name, or somebody deleted
// the Dispatch.
func leaving(f facts) bool {
	return f.dispatch.DeletionTimestamp != nil || !jobStays(f)
}

// jobStays is true if the hub TrainJob is there and is not going.
func jobStays(f facts) bool {
	return f.job != nil && f.job.GetDeletionTimestamp() == nil && f.job.GetUID() == f.dispatch.Spec.TrainJob.UID
}

// wasCopied is true if the current attempt is known to have had a copy.
func (f *facts) wasCopied() bool { return f.copied || f.dispatch.WasCopied() }

// isOurs is true if copy was made for the Dispatch's TrainJob, in whichever attempt. The UID that is on record says so too: labels and
// annotations can be edited.
func (f *facts) isOurs(copy *unstructured.Unstructured) bool {
	uid := f.dispatch.Status.CopyUID
	return copy.GetLabels()[v1alpha1.LabelOriginUID] == string(f.dispatch.Spec.TrainJob.UID) || f.isKnown(copy) ||
		uid != "" && uid == copy.GetUID()
}

// isCurrent is true if copy is that of the Dispatch's current attempt.
func (f *facts) isCurrent(copy *unstructured.Unstructured) bool { return f.presenceOf(copy) == current }

// isOfAttempt is true if copy says that it was made for the current attempt of the Dispatch's TrainJob.
func (f *facts) isOfAttempt(copy *unstructured.Unstructured) bool {
	return f.isOurs(copy) && copy.GetAnnotations()[v1alpha1.AnnotationAttempt] == strconv.Itoa(int(f.dispatch.Spec.Attempt))
}

// isOlder is true if there is a copy of an earlier attempt, which nobody has begun to delete.
func (f *facts) isOlder() bool {
	if f.copy == nil || f.copy.GetDeletionTimestamp() != nil {
		return false
	}
	attempt, err := strconv.ParseInt(f.copy.GetAnnotations()[v1alpha1.AnnotationAttempt], 10, 32)
	return err == nil && int32(attempt) < f.dispatch.Spec.Attempt
}

// isKnown is true if copy is the one that the current attempt is known to have.
func (f *facts) isKnown(copy *unstructured.Unstructured) bool {
	uid := copy.GetUID()
	return uid != "" && (uid == f.uid || uid == f.dispatch.RecordedCopy())
}

// knownUID is that of the copy that the current attempt is known to have, empty if none is known.
func (f *facts) knownUID() types.UID { return cmp.Or(f.uid, f.dispatch.RecordedCopy()) }
