// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Copy is a copy of a hub TrainJob on a worker.
type Copy struct {
	Worker  string
	UID     types.UID
	Origin  types.UID
	Key     types.NamespacedName
	Attempt string
}

// String describes the copy for people.
func (c Copy) String() string {
	return fmt.Sprintf("attempt %s of %s on %s (copy %s)", c.Attempt, c.Key, c.Worker, c.UID)
}

// Interval is a time in which a copy could run.
type Interval struct {
	Copy
	From time.Time
	// To is zero while the interval is open.
	To time.Time
}

// String describes the interval for people.
func (i Interval) String() string {
	to := "now"
	if !i.To.IsZero() {
		to = i.To.Format(clockFormat)
	}
	return fmt.Sprintf("%s: %s to %s", i.Copy, i.From.Format(clockFormat), to)
}

// clockFormat is the format of times in reports.
const clockFormat = "15:04:05.000"

// moment is when something happened: between two times. They differ only if a watch was interrupted.
type moment struct {
	earliest, latest time.Time
	// gap says that the object may have had versions, before this one, that nobody knows.
	gap bool
}

// meeting is a copy that begins before another copy of the same TrainJob has ended, as far as is known.
type meeting struct {
	other, begins Copy
	at            time.Time
	// open: the other copy has not ended yet. Otherwise the times of the two copies overlap, and one of these times is
	// uncertain.
	open bool
}

// life is what is known of a copy.
type life struct {
	Copy
	// startable: it exists, and is neither suspended nor ended.
	startable bool
	// gated: the worker's agent decides whether it is started at all, as its failover is Fenced. started: it has, or has
	// had, a JobSet.
	gated, started bool
	// going: it is being deleted. setGoing: its JobSet is being deleted. If both are, nothing makes pods of the copy any
	// more.
	going, setGoing bool
	pods            map[types.UID]bool // those that are alive
	open            *Interval          // nil: none
	closed          *Interval          // the last that was
	created         time.Time
	// status is what the copy said last, as far as is known. unsure: it may have said more in a gap.
	status map[string]any
	unsure bool
}

func (l *life) canRun() bool {
	goes := l.going && l.setGoing
	return l.startable && !goes && (l.started || !l.gated) || len(l.pods) > 0
}

// ledger makes intervals of what happens on the workers. It is not safe for concurrent use, and has no clock.
type ledger struct {
	lives     map[types.UID]*life                // by copy
	byOrigin  map[types.UID][]*life              // in the order in which they were seen
	jobSets   map[types.UID]types.UID            // the copy of each JobSet
	orphans   map[types.UID]map[types.UID]moment // pods by JobSets that are not known yet
	intervals []*Interval
	// meet is called for each meeting.
	meet func(meeting)
}

func newLedger(meet func(meeting)) *ledger {
	return &ledger{
		lives: map[types.UID]*life{}, byOrigin: map[types.UID][]*life{}, jobSets: map[types.UID]types.UID{},
		orphans: map[types.UID]map[types.UID]moment{}, meet: meet,
	}
}

// trainJob takes in what a worker says of a TrainJob.
func (l *ledger) trainJob(worker string, job *unstructured.Unstructured, gone bool, when moment) {
	known, ok := l.lives[job.GetUID()]
	if !ok {
		origin := types.UID(job.GetLabels()[v1alpha1.LabelOriginUID])
		if origin == "" {
			return
		}
		known = &life{pods: map[types.UID]bool{}, created: job.GetCreationTimestamp().Time, Copy: Copy{
			Worker: worker, UID: job.GetUID(), Origin: origin, Attempt: job.GetAnnotations()[v1alpha1.AnnotationAttempt],
			Key: types.NamespacedName{Namespace: job.GetNamespace(), Name: job.GetName()},
		}}
		known.gated = job.GetAnnotations()[v1alpha1.AnnotationFailover] == string(v1alpha1.FailoverFenced)
		l.lives[known.UID] = known
		l.byOrigin[origin] = append(l.byOrigin[origin], known)
		for set, owner := range l.jobSets {
			if owner == known.UID {
				l.start(known, set)
			}
		}
	}
	known.startable = !gone && !trainjobs.Suspended(job) && trainjobs.Terminal(job) == nil
	known.going = job.GetDeletionTimestamp() != nil
	if status, ok := job.Object["status"].(map[string]any); ok && !gone {
		known.status = status
	}
	known.unsure = gone && when.gap && trainjobs.Terminal(job) == nil
	l.settle(known, when)
}

// jobSet takes in to which copy a JobSet belongs.
func (l *ledger) jobSet(set *jobsetv1alpha2.JobSet, when moment) {
	owner := metav1.GetControllerOf(set)
	if owner == nil || owner.Kind != trainjobs.GroupVersionKind.Kind {
		return
	}
	l.jobSets[set.UID] = owner.UID
	if known := l.lives[owner.UID]; known != nil {
		l.start(known, set.UID)
		known.setGoing = set.DeletionTimestamp != nil
		l.settle(known, when)
	}
}

// start notes that a copy has a JobSet, with the pods that were seen before.
func (l *ledger) start(known *life, set types.UID) {
	known.started = true
	for pod, since := range l.orphans[set] {
		known.pods[pod] = true
		l.settle(known, since)
	}
	delete(l.orphans, set)
}

// pod takes in what a worker says of a pod.
func (l *ledger) pod(pod *corev1.Pod, gone bool, when moment) {
	set := types.UID(pod.Labels[jobsetv1alpha2.JobSetUIDKey])
	if set == "" {
		return
	}
	alive := !gone && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
	known := l.lives[l.jobSets[set]]
	switch {
	case known == nil && alive:
		if l.orphans[set] == nil {
			l.orphans[set] = map[types.UID]moment{}
		}
		if _, ok := l.orphans[set][pod.UID]; !ok {
			l.orphans[set][pod.UID] = when
		}
		return
	case known == nil:
		delete(l.orphans[set], pod.UID)
		return
	case alive:
		known.pods[pod.UID] = true
	default:
		delete(known.pods, pod.UID)
	}
	l.settle(known, when)
}

// settle begins or ends the interval of a copy.
func (l *ledger) settle(known *life, when moment) {
	switch {
	case known.canRun() && known.open == nil:
		known.open = &Interval{Copy: known.Copy, From: known.notBefore(when)}
		l.intervals = append(l.intervals, known.open)
		for _, other := range l.byOrigin[known.Origin] {
			if other != known {
				l.compare(other, known, when)
			}
		}
	case !known.canRun() && known.open != nil:
		known.open.To = when.latest
		known.closed, known.open = known.open, nil
	}
}

// notBefore is the earliest time at which the copy can have become able to run. Its creation time makes that more
// exact. That time has whole seconds, and notBefore uses the end of the second. All clusters of a test have one clock.
func (l *life) notBefore(when moment) time.Time {
	if limit := l.created.Add(time.Second); when.earliest.Before(limit) {
		if limit.After(when.latest) {
			return when.latest
		}
		return limit
	}
	return when.earliest
}

// compare reports a copy that begins before another copy has ended.
func (l *ledger) compare(other, begins *life, when moment) {
	switch {
	case other.open != nil:
		l.meet(meeting{other: other.Copy, begins: begins.Copy, at: when.latest, open: true})
	case other.closed != nil && begins.open.From.Before(other.closed.To):
		l.meet(meeting{other: other.Copy, begins: begins.Copy, at: begins.open.From})
	}
}

// describe prints the intervals of some TrainJobs in the order of their beginning.
func describe(intervals []Interval) string {
	slices.SortStableFunc(intervals, func(a, b Interval) int { return a.From.Compare(b.From) })
	var b strings.Builder
	for _, i := range intervals {
		fmt.Fprintln(&b, " ", i)
	}
	return b.String()
}
