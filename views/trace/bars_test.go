// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trace_test

import (
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/views/trace"
)

// pod is created, scheduled, started and ready some seconds after the job was created; 0: not yet.
func pod(scheduled, started, ready int) *corev1.Pod {
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{CreationTimestamp: *at(26)}, Spec: corev1.PodSpec{Containers: make([]corev1.Container, 1)}}
	for name, seconds := range map[corev1.PodConditionType]int{corev1.PodScheduled: scheduled, corev1.PodReady: ready} {
		if seconds > 0 {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: name, Status: corev1.ConditionTrue, LastTransitionTime: *at(seconds)})
		}
	}
	if started > 0 {
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: *at(started)}}}}
	}
	return p
}

// TestPodSpans checks that the slowest pod of a gang counts, and that what has not happened is not told.
func TestPodSpans(t *testing.T) {
	course := courses["Moved"]
	tree := trace.Of(newJob(), course[len(course)-1].record)
	restarted := pod(27, 29, 0)
	restarted.Status.ContainerStatuses[0].RestartCount = 1
	for name, tc := range map[string]struct {
		pods []*corev1.Pod
		want string
	}{
		"None":         {want: ""},
		"NotYet":       {pods: []*corev1.Pod{pod(27, 0, 0), pod(0, 0, 0)}, want: "scheduling 26-..., pulling 27-..."},
		"Starting":     {pods: []*corev1.Pod{pod(27, 29, 0), pod(28, 31, 32)}, want: "scheduling 26-28, pulling 27-31, readying 29-..."},
		"Ready":        {pods: []*corev1.Pod{pod(27, 29, 33), pod(28, 31, 32)}, want: "scheduling 26-28, pulling 27-31, readying 29-33"},
		"StartedAgain": {pods: []*corev1.Pod{restarted}, want: "scheduling 26-27, pulling 27-..."},
	} {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, span := range trace.PodSpans(tree.Present(), tree, tc.pods) {
				end := "..."
				if !span.Open() {
					end = fmt.Sprintf("%.0f", span.To.Sub(created).Seconds())
				}
				got = append(got, fmt.Sprintf("%s %.0f-%s", span.Name, span.From.Sub(created).Seconds(), end))
				if span.Parent != tree.Present().ID || span.Worker != "west" || !span.Pods {
					t.Errorf("%v is not of the present attempt", span)
				}
			}
			check.Equal(t, tc.want, strings.Join(got, ", "), "spans")
		})
	}
}

// TestOfCopy checks that the spans of the agent are in the attempt that the manager exports.
func TestOfCopy(t *testing.T) {
	copied, jobSet := newJob(), newJob()
	copied.SetUID("of-the-copy")
	copied.SetCreationTimestamp(*at(24))
	jobSet.SetCreationTimestamp(*at(25))
	if tree, spans := trace.OfCopy(copied, jobSet, nil); tree != nil || spans != nil {
		t.Errorf("a job of the worker itself has %v", spans)
	}
	copied.SetLabels(map[string]string{v1alpha1.LabelOriginUID: uid})
	copied.SetAnnotations(map[string]string{v1alpha1.AnnotationAttempt: "2"})
	tree, spans := trace.OfCopy(copied, jobSet, []*corev1.Pod{pod(27, 29, 33), pod(28, 31, 0)})
	check.Equal(t, trace.IDOf(uid), tree.ID, "ID of the trace")
	check.Equal(t, "building 2 24-25, scheduling 2 26-28, pulling 2 27-31", short(spans), "spans")
	course := courses["Moved"]
	present := trace.Of(newJob(), course[len(course)-1].record).Present()
	for _, span := range spans {
		check.Equal(t, present.ID, span.Parent, "parent of %s", span.Name)
	}
}

// TestBars checks the whole picture.
func TestBars(t *testing.T) {
	course := courses["Moved"]
	tree := trace.Of(newJob(), course[len(course)-1].record)
	tree.Spans = append(tree.Spans, trace.PodSpans(tree.Present(), tree, []*corev1.Pod{pod(28, 0, 0)})...)
	want := `TrainJob default/llm, trace 0af7651916cd43dd8448eb211c80319c, from 2026-05-04T03:00:00Z

                        FROM     TIME  0                                    40s
trainjob                  0s      40s  ███████████████████████████████████████▶
├ attempt 1 on east       0s      20s  ████████████████████                      Drained: east is drained
│ ├ waiting               0s       6s  ██████
│ ├ starting              6s       3s        ███
│ └ running               9s      11s           ███████████
└ attempt 2 on west      20s      20s                      ███████████████████▶
  ├ waiting              20s       5s                      █████
  ├ placed               25s      15s                           ██████████████▶
  ├ scheduling           26s       2s                            ██
  └ pulling              28s      12s                              ███████████▶`
	check.Diff(t, want, strings.Join(tree.Bars(at(40).Time), "\n"), "bars")

	short := trace.Of(newJob(), on("", 0, func(*v1alpha1.Dispatch) {}))
	if lines := short.Bars(at(0).Time); len(lines) != 6 || !strings.Contains(lines[5], "▶") {
		t.Errorf("a job that was made now: %q", lines)
	}
}
