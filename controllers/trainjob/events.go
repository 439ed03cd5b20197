// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjob

import (
	"sync"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// Reasons of the Warning Events on a TrainJob.
const (
	// ReasonRuntimeNotFound: the runtime that the TrainJob refers to does not exist.
	ReasonRuntimeNotFound = "RuntimeNotFound"
	// ReasonBuildFailed: the runtime framework could not make objects of the TrainJob and its runtime.
	ReasonBuildFailed = "BuildFailed"
	// ReasonApplyFailed: the API server has refused one of the objects.
	ReasonApplyFailed = "ApplyFailed"
	// ReasonJobSetConflict: a JobSet of the TrainJob's name belongs to something else.
	ReasonJobSetConflict = "JobSetConflict"
)

// problem is an error that the TrainJob's owner should read.
type problem struct {
	reason string
	// action is what was tried. Events of one reason and action are merged into a series by client-go, which keeps the first
	// message only, so it names the kind of object that was applied.
	action string
	err    error
}

func (p *problem) Error() string { return p.err.Error() }
func (p *problem) Unwrap() error { return p.err }

const (
	// maxNote is the API server's limit for an Event's note.
	maxNote = 1024
	// repeatAfter is when a problem that is still the same is told again: Events live for an hour by default.
	repeatAfter = 30 * time.Minute
)

// announcer writes Events and leaves out those that would only repeat the last one of their TrainJob.
type announcer struct {
	recorder events.EventRecorder
	clock    clock.PassiveClock

	mu   sync.Mutex
	last map[types.NamespacedName]announcement // under mu
}

type announcement struct {
	uid  types.UID
	text string
	at   time.Time
}

func newAnnouncer(recorder events.EventRecorder, c clock.PassiveClock) *announcer {
	return &announcer{recorder: recorder, clock: c, last: map[types.NamespacedName]announcement{}}
}

// problem tells the TrainJob's owner about a problem.
func (a *announcer) problem(job *trainer.TrainJob, p *problem) {
	note := p.Error()
	if len(note) > maxNote {
		note = note[:maxNote-4] + " ..."
	}
	if a.isNew(job, p.reason+"\n"+note) {
		a.recorder.Eventf(job, nil, corev1.EventTypeWarning, p.reason, p.action, "%s", note)
	}
}

// jobSetTaken tells that the TrainJob waits for a JobSet of its name that belongs to something else.
func (a *announcer) jobSetTaken(job *trainer.TrainJob, jobSet *jobsetv1alpha2.JobSet) {
	note := "waiting for JobSet " + klog.KObj(jobSet).String() + " to go: it exists and is not this TrainJob's"
	if owner := metav1.GetControllerOf(jobSet); owner != nil {
		note += ", but that of " + owner.Kind + " " + owner.Name
	}
	if a.isNew(job, ReasonJobSetConflict+"\n"+note) {
		a.recorder.Eventf(job, nil, corev1.EventTypeWarning, ReasonJobSetConflict, "Wait", "%s", note)
	}
}

func (a *announcer) isNew(job *trainer.TrainJob, text string) bool {
	key, now := types.NamespacedName{Namespace: job.Namespace, Name: job.Name}, a.clock.Now()
	a.mu.Lock()
	defer a.mu.Unlock()
	if l, ok := a.last[key]; ok && l.uid == job.UID && l.text == text && now.Sub(l.at) < repeatAfter {
		return false
	}
	a.last[key] = announcement{uid: job.UID, text: text, at: now}
	return true
}

// forget is called when a TrainJob has no problem any more. If it gets the same one again, that is news.
func (a *announcer) forget(key types.NamespacedName) {
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.last, key)
}
