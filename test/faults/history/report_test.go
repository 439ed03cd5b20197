// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package history

import (
	"fmt"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

func started(object map[string]any) { object["status"] = map[string]any{"jobsStatus": []any{}} }

func TestStatusDiffers(t *testing.T) {
	cases := map[string]struct {
		reason string
		last   func(map[string]any)
		gap    bool
		want   bool
	}{
		"the copy said the end":   {reason: "The hub says what the copy said last.", last: complete},
		"the copy did not say it": {reason: "The hub says what no copy has said.", last: started, want: true},
		"the copy was suspended before": {
			reason: "Clients take the condition Suspended for a state, so the hub leaves it out.", last: func(copied map[string]any) {
				complete(copied)
				status := copied["status"].(map[string]any)
				resumed := map[string]any{"type": "Suspended", "status": "False"}
				status["conditions"] = append([]any{resumed}, status["conditions"].([]any)...)
			},
		},
		"the copy went in a gap":             {reason: "The copy may have said the end in the gap.", last: started, gap: true},
		"the copy ended and went in the gap": {reason: "The recorder knows the end.", last: complete, gap: true},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			r := &Recorder{ledger: newLedger(nil), hub: newHub(func(_, _ *v1alpha1.Dispatch) error { return nil })}
			when := moment{earliest: dawn, latest: dawn}
			d := &v1alpha1.Dispatch{}
			d.UID, d.Spec.TrainJob.UID, d.Spec.Cluster, d.Spec.Attempt = "dispatch", "origin", "west", 1
			r.hub.dispatch(d, false, when)
			r.hub.trainJob(&unstructured.Unstructured{Object: ended("origin")}, false, when)
			job := copied("west", "1", 0, tc.last)
			r.ledger.trainJob("west", job, false, when)
			when.gap = tc.gap
			r.ledger.trainJob("west", job, true, when)
			if diff := r.StatusDiffers("origin"); (diff != "") != tc.want {
				t.Errorf("%s\nthe status differs: %q, want a difference: %v", tc.reason, diff, tc.want)
			}
		})
	}
}

// ended is a hub TrainJob that has ended.
func ended(uid string) map[string]any {
	job := trainjobs.New()
	job.Object["metadata"] = map[string]any{"uid": uid, "name": "job"}
	complete(job.Object)
	return job.Object
}

// step is something that happens at a second. Unless it says since when, it is known at once.
type step struct {
	at, since int
	do        func(*ledger, moment)
}

var dawn = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

func second(n int) time.Time { return dawn.Add(time.Duration(n) * time.Second) }

func copied(worker, uid string, created int, change func(map[string]any)) *unstructured.Unstructured {
	job := trainjobs.New()
	job.SetUID(types.UID(uid))
	job.SetName("job")
	job.SetCreationTimestamp(metav1.NewTime(second(created)))
	job.SetLabels(map[string]string{v1alpha1.LabelOriginUID: "origin"})
	job.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: uid})
	if change != nil {
		change(job.Object)
	}
	return job
}

func suspended(object map[string]any) { object["spec"] = map[string]any{"suspend": true} }

func fenced(object map[string]any) {
	annotations := object["metadata"].(map[string]any)["annotations"].(map[string]any)
	annotations[v1alpha1.AnnotationFailover] = string(v1alpha1.FailoverFenced)
}

func complete(object map[string]any) {
	object["status"] = map[string]any{"conditions": []any{map[string]any{"type": "Complete", "status": "True"}}}
}

func trainJob(at int, worker, uid string, change func(map[string]any)) step {
	return step{at: at, do: func(l *ledger, when moment) { l.trainJob(worker, copied(worker, uid, at, change), false, when) }}
}

func trainJobGone(at int, worker, uid string) step {
	return step{at: at, do: func(l *ledger, when moment) { l.trainJob(worker, copied(worker, uid, at, nil), true, when) }}
}

func jobSet(at int, uid, owner string) step {
	return step{at: at, do: func(l *ledger, when moment) {
		set := &jobsetv1alpha2.JobSet{}
		set.UID = types.UID(uid)
		set.OwnerReferences = []metav1.OwnerReference{{Kind: "TrainJob", UID: types.UID(owner), Controller: ptr.To(true)}}
		l.jobSet(set, when)
	}}
}

// going is an object that is being deleted.
func going(object map[string]any) {
	object["metadata"].(map[string]any)["deletionTimestamp"] = dawn.Format(time.RFC3339)
}

func jobSetGoing(at int, uid, owner string) step {
	return step{at: at, do: func(l *ledger, when moment) {
		set := &jobsetv1alpha2.JobSet{}
		set.UID, set.DeletionTimestamp = types.UID(uid), &metav1.Time{Time: second(at)}
		set.OwnerReferences = []metav1.OwnerReference{{Kind: "TrainJob", UID: types.UID(owner), Controller: ptr.To(true)}}
		l.jobSet(set, when)
	}}
}

func pod(at int, uid, set string, phase corev1.PodPhase, gone bool) step {
	return step{at: at, do: func(l *ledger, when moment) {
		p := &corev1.Pod{}
		p.UID, p.Status.Phase = types.UID(uid), phase
		p.Labels = map[string]string{jobsetv1alpha2.JobSetUIDKey: set}
		l.pod(p, gone, when)
	}}
}

// learnedSince says that a step was learned late: nothing was known since then.
func (s step) learnedSince(second int) step {
	s.since = second
	return s
}

func TestIntervals(t *testing.T) {
	cases := map[string]struct {
		reason    string
		steps     []step
		intervals []string
		meetings  []string
	}{
		"a life": {
			reason:    "A copy can run from its creation to its end.",
			steps:     []step{trainJob(1, "west", "1", nil), trainJob(5, "west", "1", complete)},
			intervals: []string{"1 on west: 1 to 5"},
		},
		"suspended": {
			reason: "A suspended copy cannot run, unless it has pods.",
			steps: []step{
				trainJob(1, "west", "1", suspended), trainJob(2, "west", "1", nil), jobSet(3, "set", "1"),
				pod(3, "pod", "set", corev1.PodRunning, false), trainJob(4, "west", "1", suspended), pod(6, "pod", "set", corev1.PodFailed, false),
			},
			intervals: []string{"1 on west: 2 to 6"},
		},
		"a deletion that does not end": {
			reason: "A copy whose JobSet is being deleted too cannot run without pods, though something keeps both.",
			steps: []step{
				trainJob(1, "west", "1", nil), jobSet(2, "set", "1"), pod(2, "pod", "set", corev1.PodRunning, false), trainJob(3, "west", "1", going),
				jobSetGoing(4, "set", "1"), pod(6, "pod", "set", corev1.PodFailed, false),
			},
			intervals: []string{"1 on west: 1 to 6"},
		},
		"a deletion that leaves the JobSet": {
			reason: "A JobSet that nobody deletes makes pods, though its copy is being deleted.",
			steps: []step{
				trainJob(1, "west", "1", nil), jobSet(2, "set", "1"), pod(2, "pod", "set", corev1.PodRunning, false), trainJob(3, "west", "1", going),
				pod(6, "pod", "set", corev1.PodFailed, false),
			},
			intervals: []string{"1 on west: 1 to now"},
		},
		"pods outlive the copy": {
			reason: "A pod that runs is a copy that runs, whether its TrainJob is there or not.",
			steps: []step{
				trainJob(1, "west", "1", nil), jobSet(1, "set", "1"), pod(2, "pod", "set", corev1.PodRunning, false),
				trainJobGone(3, "west", "1"), pod(7, "pod", "set", corev1.PodRunning, true),
			},
			intervals: []string{"1 on west: 1 to 7"},
		},
		"a pod before its JobSet": {
			reason: "Watches of different kinds are not equally fast.",
			steps: []step{
				trainJob(1, "west", "1", suspended), pod(2, "pod", "set", corev1.PodPending, false), jobSet(3, "set", "1"),
				pod(4, "pod", "set", corev1.PodSucceeded, false),
			},
			intervals: []string{"1 on west: 2 to 4"},
		},
		"refused by the agent": {
			reason:    "A copy whose failover is Fenced does not run before its agent has let it, which makes its JobSet.",
			steps:     []step{trainJob(1, "west", "1", fenced), trainJob(5, "west", "1", suspended)},
			intervals: nil,
		},
		"let by the agent": {
			reason: "Then it can run, whether it has pods or not.",
			steps: []step{
				trainJob(1, "west", "1", fenced), jobSet(3, "set", "1"), trainJob(5, "west", "1", suspended),
			},
			intervals: []string{"1 on west: 3 to 5"},
		},
		"pod and JobSet before the TrainJob": {
			reason: "Nor are those of its TrainJob.",
			steps: []step{
				jobSet(1, "set", "1"), pod(2, "pod", "set", corev1.PodPending, false), trainJob(3, "west", "1", fenced),
				pod(4, "pod", "set", corev1.PodSucceeded, false), trainJobGone(6, "west", "1"),
			},
			intervals: []string{"1 on west: 2 to 6"},
		},
		"one after the other": {
			reason: "An attempt may begin when the one before has ended.",
			steps: []step{
				trainJob(1, "west", "1", nil), trainJobGone(3, "west", "1"), trainJob(3, "east", "2", nil),
			},
			intervals: []string{"1 on west: 1 to 3", "2 on east: 3 to now"},
		},
		"two at a time": {
			reason: "An attempt that begins before the other has ended meets it.",
			steps: []step{
				trainJob(1, "west", "1", nil), trainJob(3, "east", "2", nil), trainJobGone(4, "west", "1"),
			},
			intervals: []string{"1 on west: 1 to 4", "2 on east: 3 to now"},
			meetings:  []string{"2 meets 1, open"},
		},
		"two attempts on one worker": {
			reason: "Pods of an attempt before are no less dangerous on the same worker.",
			steps: []step{
				trainJob(1, "west", "1", nil), jobSet(1, "set", "1"), pod(2, "pod", "set", corev1.PodRunning, false),
				trainJobGone(3, "west", "1"), trainJob(4, "west", "2", nil),
			},
			intervals: []string{"1 on west: 1 to now", "2 on west: 4 to now"},
			meetings:  []string{"2 meets 1, open"},
		},
		"an uncertain end": {
			reason: "What has gone while nobody looked may have run until it was seen to be gone.",
			steps: []step{
				trainJob(1, "west", "1", nil), trainJobGone(9, "west", "1").learnedSince(3),
			},
			intervals: []string{"1 on west: 1 to 9"},
		},
		"an uncertain beginning": {
			reason: "What has come while nobody looked may have run since then; it was resumed long after its creation.",
			steps: []step{
				trainJob(1, "east", "2", suspended), trainJob(2, "west", "1", nil), trainJobGone(6, "west", "1"),
				{at: 9, since: 4, do: func(l *ledger, when moment) { l.trainJob("east", copied("east", "2", 1, nil), false, when) }},
			},
			intervals: []string{"1 on west: 2 to 6", "2 on east: 4 to now"},
			meetings:  []string{"2 meets 1, closed"},
		},
		"created while nobody looked": {
			reason: "The time of creation says that it was after the end of the other.",
			steps: []step{
				trainJob(2, "west", "1", nil), trainJobGone(6, "west", "1"),
				{at: 9, since: 4, do: func(l *ledger, when moment) { l.trainJob("east", copied("east", "2", 6, nil), false, when) }},
			},
			intervals: []string{"1 on west: 2 to 6", "2 on east: 7 to now"},
		},
	}
	for name, tc := range cases {
		t.Run(name, func(t *testing.T) {
			var meetings []string
			l := newLedger(func(m meeting) {
				state := "closed"
				if m.open {
					state = "open"
				}
				meetings = append(meetings, fmt.Sprintf("%s meets %s, %s", m.begins.UID, m.other.UID, state))
			})
			for _, s := range tc.steps {
				when := moment{earliest: second(s.at), latest: second(s.at)}
				if s.since > 0 {
					when.earliest = second(s.since)
				}
				s.do(l, when)
			}
			var intervals []string
			for _, i := range l.intervals {
				to := "now"
				if !i.To.IsZero() {
					to = fmt.Sprint(int(i.To.Sub(dawn).Seconds()))
				}
				intervals = append(intervals, fmt.Sprintf("%s on %s: %d to %s", i.UID, i.Worker, int(i.From.Sub(dawn).Seconds()), to))
			}
			check.Diff(t, tc.intervals, intervals, tc.reason)
			check.Diff(t, tc.meetings, meetings, fmt.Sprintf("%s\nmeetings", tc.reason))
		})
	}
}
