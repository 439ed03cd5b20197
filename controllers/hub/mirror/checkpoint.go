// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package mirror

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// reports are what a copy has said of its run, by its status. Only what the Dispatch shows already is on record.
type reports struct {
	// firstRunning is when the hub first saw a step run that is no initializer, nil if none has run.
	firstRunning *metav1.Time
	// progress is what the process reported last, nil if it has reported nothing.
	progress *v1alpha1.Progress
	// saved is the last checkpoint that the process has reported, nil if it has reported none or nobody asks for that.
	saved *v1alpha1.SavedCheckpoint
}

// note reads the status of the copy. If the copy is gone, the hub's job still shows its last status.
func (r *reports) note(seen *observation, now time.Time) {
	said := seen.job
	if seen.isCurrent(seen.copy) {
		said = seen.copy
	}
	if said == nil {
		return
	}
	var shown v1alpha1.DispatchStatus
	if seen.dispatch.Status.Attempt == seen.dispatch.Spec.Attempt {
		shown = seen.dispatch.Status
	}
	at := metav1.NewTime(now.Truncate(time.Second)) // As the API server stores it.
	switch {
	case shown.FirstRunningTime != nil:
		r.firstRunning = shown.FirstRunningTime
	case r.firstRunning == nil && trainjobs.HasTrained(said):
		r.firstRunning = &at
	}
	if progress := trainjobs.ProgressOf(said); progress != nil {
		r.progress = progress
	}
	if seen.dispatch.Spec.Checkpoint == nil {
		return
	}
	if shown.LastCheckpoint != nil && r.saved == nil {
		r.saved = shown.LastCheckpoint
	}
	if name := trainjobs.LastCheckpoint(r.progress); name != "" && (r.saved == nil || r.saved.Name != name) {
		r.saved = &v1alpha1.SavedCheckpoint{Name: name, Time: at}
	}
}

// show brings the reports to the status of the Dispatch.
func (r *reports) show(status *v1alpha1.DispatchStatus) {
	if r.firstRunning != nil {
		status.FirstRunningTime = r.firstRunning
	}
	if r.progress != nil {
		status.Progress = r.progress
	}
	if r.saved != nil {
		status.LastCheckpoint = r.saved
	}
}
