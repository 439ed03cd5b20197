// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"cmp"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/judgement"
	"github.com/trainyard/trainyard/dispatch/record"
	"github.com/trainyard/trainyard/internal/copies"
)

// observation is what has been observed of a key. Any of the three objects may be nil.
type observation struct {
	// hubID is what this hub's copies are labelled with.
	hubID    string
	job      *unstructured.Unstructured
	dispatch *v1alpha1.Dispatch
	copy     *unstructured.Unstructured
	// believed is true if the cache does not show the copy. Then there may be no event when the copy is deleted.
	believed bool
	// copied is true if this process knows that the current attempt has had a copy, and uid is the UID of that copy.
	copied bool
	uid    types.UID
	// course is what the copy's JobSet said last, nil if that is not known.
	course *course
	// reports are what the copy has said of its run.
	reports reports
	// otherJobSet has the name of the copy, and is not the copy's, nil if there is none. jobSetsSeen is true if the hub may
	// read JobSets there.
	otherJobSet *unstructured.Unstructured
	jobSetsSeen bool
	// held is what the worker's Kueue said last about the copy.
	held held
	// health is what is known of the copy's health.
	health copyHealth
}

// judged is what is judged of the observation on a worker.
func (f *observation) judged(here judgement.Worker) judgement.Seen {
	s := judgement.Seen{
		Here: here, Job: f.job, Dispatch: f.dispatch, Known: record.Known{HubID: f.hubID, CopyUID: f.uid}, Copied: f.copied,
	}
	if f.copy != nil {
		s.Copy, s.CopyEnded = f.copy, trainjobs.Terminal(f.copy) != nil
	}
	return s
}

// remainsOf says what a TrainJob of the Dispatch's name is to the current attempt.
func (f *observation) remainsOf(copy *unstructured.Unstructured) copies.Remains {
	if copy == nil {
		return copies.Nothing
	}
	return copies.RemainsOf(f.relationOf(copy))
}

// relationOf says what a TrainJob is to the Dispatch, by the record and by what this process knows of the attempt.
func (f *observation) relationOf(copy *unstructured.Unstructured) record.Relation {
	return record.RelationOf(f.dispatch, copy, record.Known{HubID: f.hubID, CopyUID: f.uid})
}

// isCurrent is true if copy is the copy of the Dispatch's current attempt.
func (f *observation) isCurrent(copy *unstructured.Unstructured) bool {
	return f.remainsOf(copy) == copies.Current
}

// isOurs is true if copy was made for the Dispatch's TrainJob in any attempt.
func (f *observation) isOurs(copy *unstructured.Unstructured) bool {
	return f.relationOf(copy) != record.Foreign
}

// knownUID is the UID of the copy that the current attempt is known to have, empty if no copy is known.
func (f *observation) knownUID() types.UID { return cmp.Or(f.uid, f.dispatch.RecordedCopy()) }

// wasCopied is true if the current attempt is known to have had a copy.
func (f *observation) wasCopied() bool { return f.copied || f.dispatch.WasCopied() }

// keepsOlder is true if there is a copy of an earlier attempt, and nobody has begun to delete it.
func (f *observation) keepsOlder() bool {
	return f.copy != nil && f.copy.GetDeletionTimestamp() == nil && f.relationOf(f.copy) == record.Older
}

// isFenced is true if the worker's agent has to stop the copy when the agent hears nothing from the hub.
func (f *observation) isFenced() bool { return f.dispatch.Spec.Failover == v1alpha1.FailoverFenced }

// isStopped is true if the worker's agent has stopped the copy.
func (f *observation) isStopped() bool {
	_, stopped := f.copy.GetAnnotations()[v1alpha1.AnnotationFenced]
	return stopped
}

// isHeld is true if the worker keeps the copy suspended although its job may run.
func (f *observation) isHeld() bool {
	return trainjobs.Suspended(f.copy) && !trainjobs.Suspended(f.job) && !f.isStopped()
}
