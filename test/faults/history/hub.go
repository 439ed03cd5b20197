// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// version is one version of an object, in short.
type version struct {
	at              time.Time
	resourceVersion string
	text            string
}

// record is what was seen of one Dispatch or TrainJob of the hub.
type record[T any] struct {
	versions []version
	last     T
	ended    bool // the last version is of a job that has ended
	gone     bool
}

// hub keeps the versions of the hub's objects and finds what is wrong with them. It is not safe for concurrent use.
type hub struct {
	dispatches map[types.UID]*record[*v1alpha1.Dispatch]
	trainJobs  map[types.UID]*record[*unstructured.Unstructured]
	// transition says what is wrong with a version of a Dispatch after another, nil if nothing is.
	transition func(before, after *v1alpha1.Dispatch) error
	wrong      map[types.UID][]string // by TrainJob
}

func newHub(transition func(before, after *v1alpha1.Dispatch) error) *hub {
	return &hub{
		dispatches: map[types.UID]*record[*v1alpha1.Dispatch]{}, trainJobs: map[types.UID]*record[*unstructured.Unstructured]{},
		transition: transition, wrong: map[types.UID][]string{},
	}
}

func (h *hub) fault(job types.UID, format string, args ...any) {
	h.wrong[job] = append(h.wrong[job], fmt.Sprintf(format, args...))
}

// dispatch takes in a version of a Dispatch.
func (h *hub) dispatch(d *v1alpha1.Dispatch, gone bool, when moment) {
	known := h.dispatches[d.UID]
	if known == nil {
		known = &record[*v1alpha1.Dispatch]{}
		h.dispatches[d.UID] = known
	}
	if gone {
		known.gone = true
		known.add(when, d.ResourceVersion, "gone")
		return
	}
	if before := known.last; before != nil {
		if before.ResourceVersion == d.ResourceVersion {
			return
		}
		job := d.Spec.TrainJob.UID
		if known.ended && d.DeletionTimestamp == nil {
			h.fault(job, "the Dispatch %s/%s was written after its end: %s", d.Namespace, d.Name, cmp.Diff(before, d))
		}
		if err := h.transition(before, d); err != nil && !when.gap {
			h.fault(job, "the Dispatch %s/%s went from version %s to %s: %v", d.Namespace, d.Name, before.ResourceVersion, d.ResourceVersion, err)
		}
	}
	known.last, known.ended = d, d.IsFinished()
	known.add(when, d.ResourceVersion, describeDispatch(d))
}

// trainJob takes in a version of a hub TrainJob.
func (h *hub) trainJob(job *unstructured.Unstructured, gone bool, when moment) {
	known := h.trainJobs[job.GetUID()]
	if known == nil {
		known = &record[*unstructured.Unstructured]{}
		h.trainJobs[job.GetUID()] = known
	}
	if gone {
		known.gone = true
		known.add(when, job.GetResourceVersion(), "gone")
		return
	}
	if before := known.last; before != nil {
		if before.GetResourceVersion() == job.GetResourceVersion() {
			return
		}
		if known.ended && job.GetDeletionTimestamp() == nil {
			h.fault(job.GetUID(), "the TrainJob %s/%s was written after its end: %s", job.GetNamespace(), job.GetName(), cmp.Diff(before, job))
		}
	}
	known.last, known.ended = job, trainjobs.Terminal(job) != nil
	known.add(when, job.GetResourceVersion(), describeTrainJob(job))
}

func (r *record[T]) add(when moment, resourceVersion, text string) {
	if when.gap {
		text += " (versions before this one may be missing: the watch had a gap)"
	}
	r.versions = append(r.versions, version{at: when.latest, resourceVersion: resourceVersion, text: text})
}

func describeDispatch(d *v1alpha1.Dispatch) string {
	var b strings.Builder
	fmt.Fprintf(&b, "attempt %d on %q, status of attempt %d on %q: %s %s", d.Spec.Attempt, d.Spec.Cluster, d.Status.Attempt, d.Status.Cluster,
		d.Status.Phase, d.Status.Reason)
	for _, c := range d.Status.Conditions {
		fmt.Fprintf(&b, ", %s=%s/%s", c.Type, c.Status, c.Reason)
		if c.Type == v1alpha1.DispatchWorkerLost { // The reason Hold has several causes.
			fmt.Fprintf(&b, " (%s)", c.Message)
		}
	}
	if d.Spec.Failover != "" {
		fmt.Fprintf(&b, ", failover %s", d.Spec.Failover)
	}
	if d.Spec.Eviction != nil {
		fmt.Fprintf(&b, ", eviction %s", d.Spec.Eviction.Reason)
	}
	if d.DeletionTimestamp != nil {
		fmt.Fprintf(&b, ", deleted, finalizers %v", d.Finalizers)
	}
	return b.String()
}

func describeTrainJob(job *unstructured.Unstructured) string {
	var b strings.Builder
	conditions, _, _ := unstructured.NestedSlice(job.Object, "status", "conditions")
	fmt.Fprintf(&b, "suspended: %v", trainjobs.Suspended(job))
	for _, c := range conditions {
		if c, ok := c.(map[string]any); ok {
			fmt.Fprintf(&b, ", %v=%v/%v", c["type"], c["status"], c["reason"])
		}
	}
	if job.GetDeletionTimestamp() != nil {
		fmt.Fprintf(&b, ", deleted, finalizers %v", job.GetFinalizers())
	}
	return b.String()
}

// restored forgets the last versions: the next versions do not follow from them.
func (h *hub) restored() {
	for _, known := range h.dispatches {
		known.last, known.ended = nil, false
		known.versions = append(known.versions, version{at: time.Now(), text: "the hub is restored from a backup"})
	}
	for _, known := range h.trainJobs {
		known.last, known.ended = nil, false
	}
}
