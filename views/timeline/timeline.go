// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package timeline

import (
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

// Kind says what a job does in a span.
type Kind string

// Kinds of spans, in the order of an attempt.
const (
	// Waiting jobs have no worker, or the hub has not recorded when they got it.
	Waiting Kind = "Waiting"
	// Placed jobs have a worker, and their pods do not start yet.
	Placed Kind = "Placed"
	// Starting jobs have pods that are not all ready.
	Starting Kind = "Starting"
	// Running jobs train.
	Running Kind = "Running"
)

// Span is a time in which a job does one thing.
type Span struct {
	Kind Kind `json:"kind"`
	// Attempt and Worker are those of the attempt of the span. A job that waits has those of its next attempt.
	Attempt int32                `json:"attempt"`
	Worker  v1alpha1.ClusterName `json:"worker,omitempty"`
	From    metav1.Time          `json:"from"`
	// To is nil for a span that goes on.
	To *metav1.Time `json:"to,omitempty"`
	// Outcome says how the attempt ended that ends with the span, and Message has the worker's words.
	Outcome v1alpha1.Outcome `json:"outcome,omitempty"`
	Message string           `json:"message,omitempty"`
}

// Of returns the spans of a job, the oldest first. The Dispatch may be nil.
func Of(job *unstructured.Unstructured, d *v1alpha1.Dispatch) []Span {
	l := &line{at: job.GetCreationTimestamp()}
	if d == nil || d.Spec.TrainJob.UID != job.GetUID() {
		if end := trainjobs.CompletionTime(job); end != nil {
			l.until(Span{Kind: Running}, end)
			return l.spans
		}
		return append(l.spans, Span{Kind: Waiting, From: l.at})
	}
	for i := range d.Status.History {
		a := &d.Status.History[i]
		of := Span{Attempt: a.Attempt, Worker: a.Cluster}
		l.attempt(of, placedAt(d, a.Attempt), a.StartTime, a.FirstRunningTime, &a.To)
		l.close(a.Outcome, a.Message)
	}
	l.present(job, d)
	return l.spans
}

// present adds what the job does now.
func (l *line) present(job *unstructured.Unstructured, d *v1alpha1.Dispatch) {
	last := int32(0)
	if n := len(d.Status.History); n > 0 {
		last = d.Status.History[n-1].Attempt
	}
	end := endOf(job, d)
	switch {
	case d.Spec.Cluster != "" && d.Spec.Attempt > last:
		l.attempt(Span{Attempt: d.Spec.Attempt, Worker: d.Spec.Cluster}, placedAt(d, d.Spec.Attempt), d.Status.StartTime, d.Status.FirstRunningTime, end)
		if terminal := trainjobs.Terminal(job); terminal != nil {
			l.close(v1alpha1.Outcome(terminal.Type), terminal.Message)
		}
	case end == nil:
		l.spans = append(l.spans, Span{Kind: Waiting, Attempt: last + 1, From: l.at})
	case record.WasGivenUp(d): // The words are those of the Dispatch: a cache may not have the end of the TrainJob yet.
		l.end(Span{Kind: Waiting, Attempt: last + 1}, end)
		finished := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchFinished)
		if finished != nil {
			l.close(v1alpha1.OutcomeFailed, finished.Message)
		}
	}
}

// placedAt is when the present attempt got its worker, as far as the Dispatch says so. It does not say so of others.
func placedAt(d *v1alpha1.Dispatch, attempt int32) *metav1.Time {
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchPlaced)
	if attempt != d.Spec.Attempt || c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	return &c.LastTransitionTime
}

// endOf is when the hub has seen the end of a job, nil if it has not ended.
func endOf(job *unstructured.Unstructured, d *v1alpha1.Dispatch) *metav1.Time {
	if c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchFinished); c != nil && c.Status == metav1.ConditionTrue {
		return &c.LastTransitionTime
	}
	return trainjobs.CompletionTime(job)
}

// line is a timeline that grows.
type line struct {
	spans []Span
	// at is until when it goes.
	at metav1.Time
}

// attempt adds the spans of an attempt. A time is nil if it is not known, or has not come. end is nil for an attempt that
// goes on.
func (l *line) attempt(of Span, placed, start, running, end *metav1.Time) {
	of.Kind = Waiting
	for _, step := range []struct {
		next Kind
		at   *metav1.Time
	}{{Placed, placed}, {Starting, start}, {Running, running}} {
		if step.at == nil {
			continue
		}
		at := l.within(*step.at, running, end)
		l.until(of, &at)
		of.Kind = step.next
	}
	if of.Kind == Waiting && end == nil {
		of.Kind = Placed // The worker was recorded, and when was not.
	}
	if end == nil {
		of.From = l.at
		l.spans = append(l.spans, of)
		return
	}
	l.end(of, end)
}

// within moves a time by another clock between the times around it.
func (l *line) within(at metav1.Time, upper ...*metav1.Time) metav1.Time {
	for _, most := range slices.Backward(upper) {
		if most != nil && most.Before(&at) {
			at = *most
		}
	}
	if at.Before(&l.at) {
		return l.at
	}
	return at
}

// until adds a span that ends, unless it takes no time.
func (l *line) until(span Span, to *metav1.Time) {
	if !l.at.Before(to) {
		return
	}
	span.From, span.To = l.at, to.DeepCopy()
	l.spans, l.at = append(l.spans, span), *to
}

// end adds the last span of an attempt. It stays if it takes no time: it says how the attempt has ended.
func (l *line) end(span Span, to *metav1.Time) {
	if to.Before(&l.at) {
		to = &l.at
	}
	span.From, span.To = l.at, to.DeepCopy()
	l.spans, l.at = append(l.spans, span), *span.To
}

// close says how the attempt of the last span has ended.
func (l *line) close(outcome v1alpha1.Outcome, message string) {
	if n := len(l.spans); n > 0 {
		l.spans[n-1].Outcome, l.spans[n-1].Message = outcome, message
	}
}

// String is for tests.
func (s Span) String() string {
	end := "..."
	if s.To != nil {
		end = s.To.Sub(s.From.Time).String()
	}
	text := fmt.Sprintf("%d %s %s %s", s.Attempt, s.Worker, s.Kind, end)
	if s.Outcome != "" {
		text += fmt.Sprintf(" %s: %s", s.Outcome, s.Message)
	}
	return text
}
