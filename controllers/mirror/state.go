// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"strconv"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
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
		"idle", "absent", "blocked", "conflicting", "misplaced", "mirrored", "evicting", "finished", "copyDeleted", "withdrawing", "released",
	}[s]
}

// facts are what has been observed of a key. Any of the three objects may be nil.
type facts struct {
	job      *unstructured.Unstructured
	dispatch *v1alpha1.Dispatch
	copy     *unstructured.Unstructured
	// course is what the copy's JobSet was last seen to say, nil if that is not known.
	course *course
	// copied is true if this process knows that the current attempt has had a copy, before the Dispatch says so.
	copied bool
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
		if f.copy != nil && isCopyOf(f.copy, f.dispatch) {
			return withdrawing
		}
		return released
	case f.dispatch.IsFinished(), f.dispatch.AttemptEnded():
		return idle
	case trainjobs.Terminal(f.job) != nil:
		return finished
	case f.copy == nil && f.dispatch.Spec.Eviction != nil:
		return evicting
	case f.copy == nil && (f.copied || f.dispatch.WasCopied()):
		return copyDeleted
	case f.copy == nil:
		return absent
	case !isCopyOf(f.copy, f.dispatch):
		return conflicting
	case !isCurrent(f.copy, f.dispatch):
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

// isCopyOf is true if copy was made for the Dispatch's TrainJob, in whichever attempt.
func isCopyOf(copy *unstructured.Unstructured, dispatch *v1alpha1.Dispatch) bool {
	return copy.GetLabels()[v1alpha1.LabelOriginUID] == string(dispatch.Spec.TrainJob.UID)
}

// isCurrent is true if copy was made for the Dispatch's current attempt.
func isCurrent(copy *unstructured.Unstructured, dispatch *v1alpha1.Dispatch) bool {
	return isCopyOf(copy, dispatch) &&
		copy.GetAnnotations()[v1alpha1.AnnotationAttempt] == strconv.Itoa(int(dispatch.Spec.Attempt))
}
