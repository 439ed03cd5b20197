// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"cmp"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Relation is what a TrainJob on a worker is to the Dispatch of its name.
type Relation int

const (
	// Foreign says: the TrainJob is no copy of the Dispatch's job, or there is no Dispatch.
	Foreign Relation = iota
	// Unmarked says: a copy of the job, and nobody can say of which attempt.
	Unmarked
	// Older says: the copy of an earlier attempt.
	Older
	// Current says: the copy of the current attempt.
	Current
	// Second says: another copy of the current attempt than the known one. Its creation was late.
	Second
	// Later says: the copy of an attempt that the hub does not know. The hub has forgotten it, or somebody lies.
	Later
)

// String names the relation.
func (r Relation) String() string {
	return [...]string{"Foreign", "Unmarked", "Older", "Current", "Second", "Later"}[r]
}

// Known is what the caller of RelationOf knows beyond the Dispatch.
type Known struct {
	// HubID is the ID of this hub. Empty: the caller has selected the copy by the label of this hub.
	HubID string
	// CopyUID is the UID of the copy that the current attempt is known to have. Empty: the record alone says it.
	CopyUID types.UID
}

// RelationOf says what a TrainJob of the Dispatch's name is to the Dispatch. The UID on record counts more than labels
// and annotations, which somebody may have edited. Otherwise a copy of another hub is foreign, even if both hubs were
// made from one backup, so that both know the job.
func RelationOf(d *v1alpha1.Dispatch, copy metav1.Object, known Known) Relation {
	if d == nil {
		return Foreign
	}
	uid, attempt := copy.GetUID(), AttemptOn(copy)
	switch {
	case uid != "" && (uid == known.CopyUID || uid == d.RecordedCopy()):
		return Current
	case known.HubID != "" && v1alpha1.OfAnotherHub(copy, known.HubID):
		return Foreign
	case OriginOn(copy) != d.Spec.TrainJob.UID && (uid == "" || uid != d.Status.CopyUID):
		return Foreign // Status.CopyUID may be the copy of an earlier attempt.
	case attempt == 0:
		return Unmarked
	case attempt < d.Spec.Attempt:
		return Older
	case attempt > d.Spec.Attempt:
		return Later
	case cmp.Or(known.CopyUID, d.RecordedCopy()) != "":
		return Second
	default:
		return Current
	}
}

// OriginOn is the UID of the hub TrainJob that is written on a copy.
func OriginOn(copy metav1.Object) types.UID {
	return types.UID(copy.GetLabels()[v1alpha1.LabelOriginUID])
}

// AttemptOn is the attempt that is written on a copy, 0 if there is none.
func AttemptOn(copy metav1.Object) int32 {
	attempt, err := strconv.ParseInt(copy.GetAnnotations()[v1alpha1.AnnotationAttempt], 10, 32)
	if err != nil || attempt < 1 {
		return 0
	}
	return int32(attempt)
}
