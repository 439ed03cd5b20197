// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Intervals returns the intervals of a hub TrainJob, in the order in which they were seen.
func (r *Recorder) Intervals(origin types.UID) []Interval {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.intervals(origin)
}

// CanRun is true if a copy of a TrainJob can run now.
func (r *Recorder) CanRun(origin types.UID) bool {
	return slices.ContainsFunc(r.Intervals(origin), func(i Interval) bool { return i.To.IsZero() })
}

func (r *Recorder) intervals(origin types.UID) []Interval {
	var found []Interval
	for _, i := range r.ledger.intervals {
		if i.Origin == origin {
			found = append(found, *i)
		}
	}
	return found
}

// Overlaps returns the proven overlaps of a TrainJob's copies.
func (r *Recorder) Overlaps(origin types.UID) []Overlap {
	r.proofs.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(r.overlaps), func(o Overlap) bool { return o.First.Origin != origin })
}

// Wrong says what is wrong with the hub's record of a TrainJob: wrong transitions, and writes after the end.
func (r *Recorder) Wrong(origin types.UID) []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.hub.wrong[origin])
}

// StatusDiffers says how the status of an ended TrainJob differs from the last status of its last copy. A condition
// Suspended of the copy that is False does not count, because the hub leaves it out. The result is empty if they do not
// differ, or if the recorder does not know the last status because the copy went in a gap of the watch.
func (r *Recorder) StatusDiffers(origin types.UID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	job := r.hub.trainJobs[origin]
	if job == nil || job.last == nil || trainjobs.Terminal(job.last) == nil {
		return ""
	}
	// The last Dispatch counts: after a deleted Dispatch a new one may have come, and its count of attempts may begin
	// again.
	var last *v1alpha1.Dispatch
	var since time.Time
	for _, d := range r.hub.dispatches {
		if d.last != nil && d.last.Spec.TrainJob.UID == origin && d.versions[0].at.After(since) {
			last, since = d.last, d.versions[0].at
		}
	}
	if last == nil {
		return "no Dispatch was ever seen"
	}
	attempt := fmt.Sprint(last.Spec.Attempt)
	// The last copy counts: if somebody deletes a copy before its Dispatch says that it exists, it is created again.
	for _, copied := range slices.Backward(r.ledger.byOrigin[origin]) {
		if copied.Attempt == attempt && copied.Worker == string(last.Spec.Cluster) {
			if copied.unsure {
				return ""
			}
			shown := trainjobs.WithoutCondition(copied.status, trainer.TrainJobSuspended, metav1.ConditionFalse)
			return cmp.Diff(shown, job.last.Object["status"])
		}
	}
	return fmt.Sprintf("no copy of attempt %s on %s was ever seen", attempt, last.Spec.Cluster)
}

// Describe returns all that is known of a TrainJob.
func (r *Recorder) Describe(origin types.UID) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	var b strings.Builder
	if job := r.hub.trainJobs[origin]; job != nil {
		fmt.Fprintf(&b, "TrainJob on the hub:\n%s", describeVersions(job.versions))
	}
	for _, uid := range slices.Sorted(maps.Keys(r.hub.dispatches)) {
		d := r.hub.dispatches[uid]
		if d.last != nil && d.last.Spec.TrainJob.UID == origin {
			fmt.Fprintf(&b, "Dispatch %s:\n%s", uid, describeVersions(d.versions))
		}
	}
	fmt.Fprintf(&b, "copies could run:\n%s", describe(r.intervals(origin)))
	return b.String()
}

func describeVersions(versions []version) string {
	var b strings.Builder
	for _, v := range versions {
		fmt.Fprintf(&b, "  %s version %s: %s\n", v.at.Format(clockFormat), v.resourceVersion, v.text)
	}
	return b.String()
}

// JobVersions returns how many versions of a hub TrainJob the recorder has seen.
func (r *Recorder) JobVersions(uid types.UID) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	if job := r.hub.trainJobs[uid]; job != nil {
		return len(job.versions)
	}
	return 0
}
