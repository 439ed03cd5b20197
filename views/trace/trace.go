// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/google/uuid"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/views/timeline"
)

// ID is the ID of a trace.
type ID [16]byte

// SpanID is the ID of a span of a trace.
type SpanID [8]byte

// String is the ID in hexadecimal digits, as viewers of traces want it.
func (i ID) String() string { return hex.EncodeToString(i[:]) }

// IDOf returns the ID of the trace of a TrainJob: the digits of its UID.
func IDOf(uid types.UID) ID {
	id, err := uuid.Parse(string(uid))
	if err != nil { // API servers make UIDs of this form only.
		hash := sha256.Sum256([]byte(uid))
		return ID(hash[:len(id)])
	}
	return ID(id)
}

// SpanIDOf returns the ID of a span of a TrainJob. The attempt of the root is 0.
func SpanIDOf(uid types.UID, attempt int32, name string) SpanID {
	hash := sha256.Sum256(fmt.Appendf(nil, "%s/%d/%s", uid, attempt, name))
	return SpanID(hash[:len(SpanID{})])
}

// Names of spans. The steps of an attempt are called as the kinds of package timeline, in small letters.
const (
	Root     = "trainjob"
	Attempt  = "attempt"
	Evicting = "evicting"
)

// Span is a time in the life of a TrainJob.
type Span struct {
	ID SpanID
	// Parent is the ID of the span around it, zero for the root.
	Parent SpanID
	Name   string
	// Attempt is the number of the attempt, 0 for the root. Worker is empty if the attempt has none yet.
	Attempt int32
	Worker  v1alpha1.ClusterName
	// To is zero for a span that goes on.
	From, To time.Time
	// Outcome says how the job or the attempt has ended that ends with the span, and Message has the worker's words.
	Outcome v1alpha1.Outcome
	Message string
	// Pods: the agent or the plugin has made the span from pods on the worker, by the worker's clock.
	Pods bool
}

// Open is true for a span that goes on.
func (s Span) Open() bool { return s.To.IsZero() }

// Tree is a trace. Each span stands after its parent, and the spans of one parent are in the order of time.
type Tree struct {
	ID  ID
	Job types.NamespacedName
	// UID is that of the TrainJob.
	UID   types.UID
	Spans []Span
}

// Of returns the trace of a job as far as the records say. The Dispatch may be nil.
func Of(job *unstructured.Unstructured, d *v1alpha1.Dispatch) *Tree {
	t := &Tree{
		ID: IDOf(job.GetUID()), UID: job.GetUID(), Job: types.NamespacedName{Namespace: job.GetNamespace(), Name: job.GetName()},
	}
	root := t.span(Root, 0)
	root.From = job.GetCreationTimestamp().Time
	if d == nil && trainjobs.ManagedBy(job) == v1alpha1.ManagedByBuiltIn { // This cluster runs it, and nobody records its steps.
		if end, at := trainjobs.Terminal(job), trainjobs.CompletionTime(job); end != nil && at != nil {
			root.To, root.Outcome, root.Message = at.Time, v1alpha1.Outcome(end.Type), end.Message
		}
		t.Spans = append(t.Spans, root)
		return t
	}
	steps := timeline.Of(job, d)
	last := &steps[len(steps)-1] // There is one at least: the job waits, or has ended.
	if ended(d, last) {
		root.To, root.Outcome, root.Message = last.To.Time, last.Outcome, last.Message
	}
	t.Spans = append(t.Spans, root)
	for first := 0; first < len(steps); {
		next := first + 1
		for next < len(steps) && steps[next].Attempt == steps[first].Attempt {
			next++
		}
		t.addAttempt(steps[first:next], d)
		first = next
	}
	return t
}

// ended is true if the job has ended with its last step, and not only an attempt. A job without Dispatch has no attempts.
func ended(d *v1alpha1.Dispatch, last *timeline.Span) bool {
	switch last.Outcome {
	case "":
		return d == nil && last.To != nil
	case v1alpha1.OutcomeComplete, v1alpha1.OutcomeFailed:
		return true
	default:
		return false
	}
}

func (t *Tree) span(name string, attempt int32) Span {
	return Span{ID: SpanIDOf(t.UID, attempt, name), Name: name, Attempt: attempt}
}

// addAttempt adds an attempt and its steps. The steps of a job without attempts are below the root.
func (t *Tree) addAttempt(steps []timeline.Span, d *v1alpha1.Dispatch) {
	parent := &t.Spans[0]
	first, last := &steps[0], &steps[len(steps)-1]
	if first.Attempt > 0 {
		attempt := t.span(Attempt, first.Attempt)
		attempt.Parent, attempt.Worker, attempt.From = parent.ID, last.Worker, first.From.Time
		attempt.Outcome, attempt.Message = last.Outcome, last.Message
		if last.To != nil {
			attempt.To = last.To.Time
		}
		t.Spans = append(t.Spans, attempt)
		parent = &attempt
	}
	for i := range steps {
		step := &steps[i]
		span := t.span(strings.ToLower(string(step.Kind)), step.Attempt)
		span.Parent, span.Worker, span.From = parent.ID, step.Worker, step.From.Time
		if step.To != nil {
			span.To = step.To.Time
		}
		t.Spans = append(t.Spans, span)
	}
	if since := evictedSince(d); since != nil && last.To == nil {
		span := t.span(Evicting, first.Attempt)
		span.Parent, span.Worker, span.From = parent.ID, last.Worker, since.Time
		t.Spans = append(t.Spans, span)
	}
}

func evictedSince(d *v1alpha1.Dispatch) *metav1.Time {
	if d == nil || d.Spec.Eviction == nil {
		return nil
	}
	c := meta.FindStatusCondition(d.Status.Conditions, v1alpha1.DispatchEvicting)
	if c == nil || c.Status != metav1.ConditionTrue {
		return nil
	}
	return &c.LastTransitionTime
}

// Closed returns the spans that have ended since an earlier tree of the same job, nil for none. An eviction has ended with
// its attempt: the record forgets it then.
func (t *Tree) Closed(before *Tree) (closed []Span) {
	done, evictions := map[SpanID]bool{}, map[int32]Span{}
	if before != nil {
		for _, span := range before.Spans {
			done[span.ID] = !span.Open()
			if span.Name == Evicting {
				evictions[span.Attempt] = span
			}
		}
	}
	for _, span := range t.Spans {
		if span.Open() || done[span.ID] {
			continue
		}
		closed = append(closed, span)
		if eviction, is := evictions[span.Attempt]; is && span.Name == Attempt {
			eviction.To = span.To
			closed = append(closed, eviction)
		}
	}
	return closed
}
