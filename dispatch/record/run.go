// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Run is how far an attempt has come, for the history.
type Run struct {
	// First is when the hub first saw a step run that is no initializer, nil if none ran.
	First *metav1.Time
	// Progress is what the process reported last, nil if it reported nothing.
	Progress *v1alpha1.Progress
}

// RunOf reads a Run from a status that still says how the copy gets on. An attempt that began under an older release has
// no firstRunningTime. Then its steps and restarts say whether it ran, and the time is the start of its JobSet, or now.
func RunOf(status *v1alpha1.DispatchStatus, now time.Time) Run {
	run := Run{First: status.FirstRunningTime, Progress: status.Progress}
	if run.First == nil && hasTrained(status) {
		run.First = status.StartTime
		if run.First == nil {
			run.First = &metav1.Time{Time: now}
		}
	}
	return run
}

// hasTrained says whether a step that is no initializer runs or has run, as far as a status says it.
func hasTrained(status *v1alpha1.DispatchStatus) bool {
	return status.FirstRunningTime != nil || slices.ContainsFunc(status.Steps, func(step v1alpha1.Step) bool {
		return step.Name != v1alpha1.StepDatasetInitializer && step.Name != v1alpha1.StepModelInitializer && step.State != v1alpha1.StepWaiting
	})
}

// AddTo adds the Run to the newest entry of the history, which belongs to the attempt that ends. If the attempt ran, the
// reports of the attempts before it lose their metrics.
func (r Run) AddTo(status *v1alpha1.DispatchStatus) {
	last := len(status.History) - 1
	status.History[last].FirstRunningTime, status.History[last].Progress = r.First.DeepCopy(), r.Progress.DeepCopy()
	if r.First == nil {
		return
	}
	for i := range status.History[:last] {
		if progress := status.History[i].Progress; progress != nil {
			progress.Metrics = nil
		}
	}
}

// trimHistory drops the oldest attempts if there are too many, but not the last attempt that ran.
func trimHistory(history []v1alpha1.Attempt) []v1alpha1.Attempt {
	for len(history) > historyLimit {
		oldest := 0
		if lastRun(history) == oldest {
			oldest = 1
		}
		history = slices.Delete(history, oldest, oldest+1)
	}
	return history
}

// lastRun is the place of the last attempt that ran, -1 if none did.
func lastRun(history []v1alpha1.Attempt) int {
	for i := len(history) - 1; i >= 0; i-- {
		if history[i].FirstRunningTime != nil {
			return i
		}
	}
	return -1
}

// LastRun is the last past attempt of which a step ran that is no initializer, nil if there is none. d may be nil.
func LastRun(d *v1alpha1.Dispatch) *v1alpha1.Attempt {
	if d == nil {
		return nil
	}
	if at := lastRun(d.Status.History); at >= 0 {
		return &d.Status.History[at]
	}
	return nil
}

// RanOn is the worker on which a step of the job that is no initializer ran last, in the present attempt or in a past
// one. Empty: none ran. d may be nil.
func RanOn(d *v1alpha1.Dispatch) v1alpha1.ClusterName {
	if AttemptOf(d).Live() && d.Status.Attempt == d.Spec.Attempt && hasTrained(&d.Status) {
		return d.Spec.Cluster
	}
	if last := LastRun(d); last != nil {
		return last.Cluster
	}
	return ""
}

// UnsavedSince is since when a placed job has done work that it would lose if it were stopped now: since its last
// reported checkpoint, or since it ran first, both by the hub's clock. Otherwise it is when its JobSet started, by the
// worker's clock, or when the Dispatch was made. It decides only which of two jobs of equal priority is stopped.
func UnsavedSince(d *v1alpha1.Dispatch) time.Time {
	status := &d.Status
	if status.Attempt == d.Spec.Attempt {
		for _, at := range []*metav1.Time{savedAt(status), status.FirstRunningTime, status.StartTime} {
			if at != nil {
				return at.Time
			}
		}
	}
	return d.CreationTimestamp.Time
}

func savedAt(status *v1alpha1.DispatchStatus) *metav1.Time {
	if status.LastCheckpoint == nil {
		return nil
	}
	return &status.LastCheckpoint.Time
}
