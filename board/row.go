// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package board

import (
	"encoding/json"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/views/explanation"
	"github.com/trainyard/trainyard/views/jobs"
)

// row is a job of the index. It has a TrainJob, a Dispatch or both, and never changes.
type row struct {
	key      types.NamespacedName
	job      *unstructured.Unstructured
	dispatch *v1alpha1.Dispatch

	created time.Time
	// word is the state of the job in one word.
	word string

	encode sync.Once
	coded  item
}

// complete computes what lists and filters need.
func (r *row) complete() {
	r.created = createdOf(r)
	r.word = r.observation().Word()
}

// observation is what the index knows of the job.
func (r *row) observation() explanation.Observation {
	job := r.job
	if job == nil { // It is being deleted, or is yet to be seen.
		job = trainjobs.New()
		job.SetNamespace(r.key.Namespace)
		job.SetName(r.key.Name)
		job.SetUID(r.dispatch.Spec.TrainJob.UID)
	}
	return explanation.Observation{Job: job, Dispatch: r.dispatch}
}

func (r *row) worker() string {
	if r.dispatch == nil {
		return ""
	}
	return string(r.dispatch.Spec.Cluster)
}

// jobRow is what the page of jobs shows of one.
type jobRow struct {
	Key       string `json:"key"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"`
	// Version changes with the job.
	Version  string       `json:"version"`
	State    string       `json:"state"`
	Tone     tone         `json:"tone"`
	Why      string       `json:"why,omitempty"`
	Worker   string       `json:"worker,omitempty"`
	Attempt  int32        `json:"attempt,omitempty"`
	Priority int32        `json:"priority"`
	Needs    string       `json:"needs,omitempty"`
	Restarts int32        `json:"restarts,omitempty"`
	Percent  *int32       `json:"percent,omitempty"`
	Step     string       `json:"step,omitempty"`
	Created  time.Time    `json:"created"`
	Running  *metav1.Time `json:"running,omitempty"`
	Ended    *metav1.Time `json:"ended,omitempty"`
}

// item returns the encoded row.
func (r *row) item() item {
	r.encode.Do(func() { r.coded = encoded(r.key.String(), r.shown()) })
	return r.coded
}

func (r *row) shown() jobRow {
	f := r.observation()
	shown := jobRow{
		Key: r.key.String(), Namespace: r.key.Namespace, Name: r.key.Name, State: r.word, Tone: toneOf(f), Why: f.Why(), Created: r.created,
		Version: f.Job.GetResourceVersion(),
	}
	shown.Ended = trainjobs.CompletionTime(f.Job)
	d := r.dispatch
	if d == nil {
		return shown
	}
	shown.Version += "/" + d.ResourceVersion
	shown.Worker, shown.Attempt, shown.Priority, shown.Restarts = string(d.Spec.Cluster), d.Spec.Attempt, d.Spec.Priority, d.Status.Restarts
	shown.Running = d.Status.FirstRunningTime
	if len(d.Spec.PodSets) > 0 { // The caches drop those of finished jobs.
		shown.Needs = jobs.Needs(d.Spec.PodSets)
	}
	if d.Status.Progress != nil {
		shown.Percent = d.Status.Progress.ProgressPercentage
	}
	for _, step := range d.Status.Steps {
		if step.State == v1alpha1.StepRunning {
			shown.Step = step.Name
		}
	}
	return shown
}

// tone is the colour of a state. Its word says the same.
type tone string

const (
	good   tone = "good"
	active tone = "active"
	waits  tone = "waits"
	bad    tone = "bad"
	quiet  tone = "quiet"
)

func toneOf(f explanation.Observation) tone {
	switch f.State() {
	case explanation.Ended:
		if trainjobs.HasCondition(f.Job, "Failed") {
			return bad
		}
		return good
	case explanation.Running:
		if f.Why() != "" {
			return bad
		}
		return active
	case explanation.Lost:
		return bad
	case explanation.Waiting:
		if v1alpha1.ReasonKindOf(f.Why()).NeedsRepair() {
			return bad
		}
		return waits
	case explanation.Placed, explanation.Queued, explanation.Returned, explanation.Evicting, explanation.Succeeding, explanation.Unseen:
		return waits
	case explanation.Unmanaged, explanation.Deleting, explanation.Suspended:
	}
	return quiet
}

// item is a part of a page that is sent as a whole.
type item struct {
	key   string
	bytes []byte
}

// encoded encodes a value that always can be.
func encoded(key string, value any) item {
	bytes, err := json.Marshal(value)
	if err != nil {
		panic(err) // Types of the board have no values that JSON lacks.
	}
	return item{key, bytes}
}
