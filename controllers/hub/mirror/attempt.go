// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/internal/copies"
)

// attempt is what this process knows of an attempt of a live TrainJob beyond the caches. Only one reconcile at a time
// uses it. All times are of this process's clock.
type attempt struct {
	origin types.UID
	number int32

	// noticed is when the attempt was first seen here.
	noticed time.Time
	// verified is true once a Dispatch that this process found at its start was compared with the API server's.
	verified bool
	// ended is true once this attempt has been reported as ended without a copy. The cache may not show that yet.
	ended bool
	// started is true once the start of the copy has been measured.
	started bool
	// warned is true once an Event has said why nothing is done.
	warned bool
	// course is what the copy's JobSet said last, nil if it was never seen. The JobSet may be gone before its copy ends.
	course *course
	// reports are what the copy has said of its run. The copy may be gone before the attempt ends.
	reports reports
	// stopped is when the copy ended or its deletion began, by the worker's clock, nil if that was never seen.
	stopped *metav1.Time
	// finishing measures since when the copy has been Complete or Failed.
	finishing stopwatch
	// absence is for how long looks at the worker have found nothing of the copy.
	absence absence
	ending  ending

	creation   creation
	copy       knownCopy
	written    written
	suspension suspension
	restored   restored
	pods       podReading
	stuck      stuck
	reported   reported
}

// attemptOf returns the Dispatch's attempt, and drops any other attempt of the key. It assumes that the creation of an
// inherited attempt was sent when this mirror started.
func (r *reconciler) attemptOf(key types.NamespacedName, dispatch *v1alpha1.Dispatch) *attempt {
	origin, number := dispatch.Spec.TrainJob.UID, dispatch.Spec.Attempt
	if kept, ok := r.attempts.Load(key); ok {
		if a := kept.(*attempt); a.origin == origin && a.number == number {
			return a
		}
	}
	a := &attempt{origin: origin, number: number, noticed: r.options.Clock.Now(), written: written{before: dispatch.WasCopied()}}
	if inherited, ok := r.options.Inherited[origin]; ok && inherited == number {
		a.creation.unanswered = unanswered{count: inheritedCreations, last: r.started}
	}
	r.attempts.Store(key, a)
	return a
}

// showStop says when a copy that is gone began and stopped to run, and how far it came, as far as this process has seen
// it.
func (a *attempt) showStop(status *v1alpha1.DispatchStatus) {
	if a.course != nil {
		status.StartTime = a.course.startTime // Nil if the JobSet was suspended first: nobody knows when.
	}
	status.CompletionTime = a.stopped
	a.reports.show(status)
}

// stopwatch measures since when something has been so.
type stopwatch struct{ since time.Time }

// elapsed returns for how long it has measured. The first call starts it.
func (s *stopwatch) elapsed(now time.Time) time.Duration {
	if s.since.IsZero() {
		s.since = now
	}
	return now.Sub(s.since)
}

func (s *stopwatch) reset() { s.since = time.Time{} }

// createLag is for how long at most the mirror assumes that a copy exists which the cache does not show.
const createLag = time.Minute

// knownCopy is the copy that this process knows the attempt to have.
type knownCopy struct {
	// uid of the copy, and since when it has been known; zero before.
	uid   types.UID
	since time.Time
	// unseen is the copy as the worker's API server has answered, until the cache shows it.
	unseen *unstructured.Unstructured
}

// believe notes a copy that the cache does not show.
func (k *knownCopy) believe(copy *unstructured.Unstructured, now time.Time) {
	k.unseen, k.uid, k.since = copy, copy.GetUID(), now
}

// complete adds to the observation what the caches do not show yet.
func (k *knownCopy) complete(f *observation, now time.Time) {
	f.uid = k.uid
	switch f.remainsOf(f.copy) {
	case copies.Current:
		k.unseen, k.uid = nil, f.copy.GetUID()
		if k.since.IsZero() {
			k.since = now
		}
	case copies.Second:
		k.unseen = nil // It has gone, or the second copy could not be there.
	case copies.Nothing:
		if k.unseen != nil && now.Sub(k.since) < createLag {
			f.copy, f.believed = k.unseen, true
		}
	default:
	}
	f.copied, f.uid = !k.since.IsZero(), k.uid
}
