// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/test/check"
)

var key = types.NamespacedName{Namespace: "team", Name: "job"}

// story plays a job's life to one process, and checks the diagnoses.
type story struct {
	t        *testing.T
	jobs     *Jobs
	since    time.Time
	progress *trainer.TrainerStatus
	recorded string
	writes   int // writes of a condition that has the diagnosis
	message  string
}

func newStory(t *testing.T) *story {
	return &story{t: t, jobs: &Jobs{}, since: t0}
}

// at diagnoses the job at a time after t0, and wants this reason.
func (s *story) at(after time.Duration, want string, pods ...*corev1.Pod) time.Duration {
	s.t.Helper()
	now := t0.Add(after)
	in := Input{Pods: pods, Since: s.since, Progress: s.progress}
	s.jobs.Observe(key, &in, s.recorded, now)
	trouble, recheck := Diagnose(in, DefaultLimits(), now)
	reason, message := "", ""
	if trouble != nil {
		reason, message = trouble.Reason, trouble.Message
	}
	if reason != want {
		s.t.Errorf("after %s: reason %q, want %q (%s)", after, reason, want, message)
	}
	if reason != s.recorded || message != s.message {
		s.writes++
	}
	s.recorded, s.message = reason, message
	return recheck
}

// restart restarts the process: it forgets what it has seen, and the job keeps its status.
func (s *story) restart() { s.jobs = &Jobs{} }

func gpuWanted() *corev1.Pod {
	return with(trainerPod(1, unbound("Unschedulable", noGPU)), without(""))
}

func TestCrashLoopDoesNotFlap(t *testing.T) {
	s := newStory(t)
	crash := over(1, "Error", "CUDA error")
	after := time.Minute
	for i, backOff := range []time.Duration{0, 10, 20, 40, 80, 160, 300, 300, 300} {
		n := int32(i)
		want := ""
		if n >= DefaultLimits().CrashLoops {
			want = CrashLoop
		}
		last := crash
		if n == 0 {
			last = corev1.ContainerState{}
		}
		s.at(after, want, trainerPod(0, containers(ready(), restarted(n, runs(), last))))
		after += 5 * time.Second
		s.at(after, want, trainerPod(0, unready(corev1.PodRunning, restarted(n, crash, last))))
		after += time.Second
		s.at(after, want, trainerPod(0, unready(corev1.PodRunning, restarted(n, waiting("CrashLoopBackOff", backOff.String()), crash))))
		after += backOff * time.Second
	}
	if s.writes != 1 {
		t.Errorf("the condition was written %d times in nine crashes, want once", s.writes)
	}
	recovered := trainerPod(0, containers(ready(), restarted(9, runs(), crash)))
	check.Equal(t, settle, s.at(after, CrashLoop, recovered), "asked to look again after")
	s.at(after+settle-time.Second, CrashLoop, recovered)
	s.at(after+settle, "", recovered)
	s.restart()
	s.at(after+settle+time.Hour, "", recovered)
}

func TestRestartOfTheProcessKeepsATrouble(t *testing.T) {
	crashed := over(1, "Error", "")
	tests := map[string]struct {
		reason string
		raise  func(s *story) time.Duration // returns when the trouble is reported
		pods   []*corev1.Pod
		want   string
	}{
		"Unschedulable": {
			reason: "a gang that has no nodes since long has none after the start of a process",
			raise: func(s *story) time.Duration {
				s.at(time.Hour, "", trainerPod(0, ready()), gpuWanted())
				s.at(time.Hour+5*time.Minute, Unschedulable, trainerPod(0, ready()), gpuWanted())
				return time.Hour + 6*time.Minute
			},
			pods: []*corev1.Pod{trainerPod(0, ready()), gpuWanted()},
			want: Unschedulable,
		},
		"NoPodReady": {
			reason: "nor is a pod ready",
			raise: func(s *story) time.Duration {
				s.at(0, "")
				s.at(15*time.Minute, NoPodReady)
				return 16 * time.Minute
			},
			want: NoPodReady,
		},
		"NoProgress": {
			reason: "nor has progress been reported",
			raise: func(s *story) time.Duration {
				s.progress = &trainer.TrainerStatus{ProgressPercentage: new(int32(1))}
				s.at(0, "", trainerPod(0, ready()))
				s.at(30*time.Minute, NoProgress, trainerPod(0, ready()))
				return 31 * time.Minute
			},
			pods: []*corev1.Pod{trainerPod(0, ready())},
			want: NoProgress,
		},
		"CrashLoop": {
			reason: "what crashed and just runs is not well yet",
			raise: func(s *story) time.Duration {
				s.at(0, CrashLoop, trainerPod(0, unready(corev1.PodRunning, restarted(3, waiting("CrashLoopBackOff", ""), crashed))))
				return time.Minute
			},
			pods: []*corev1.Pod{trainerPod(0, containers(ready(), restarted(4, runs(), crashed)))},
			want: CrashLoop,
		},
		"Well": {
			reason: "and a job that is well, but has crashed some time ago, is not in trouble",
			raise:  func(*story) time.Duration { return time.Hour },
			pods:   []*corev1.Pod{trainerPod(0, containers(ready(), restarted(4, runs(), crashed)))},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			s := newStory(t)
			after := test.raise(s)
			s.restart()
			s.at(after, test.want, test.pods...)
			if t.Failed() {
				t.Log(test.reason)
			}
		})
	}
}

func TestStretchesAreCountedFromWhenTheyWereSeen(t *testing.T) {
	s := newStory(t)
	gated := with(trainerPod(1, unbound("SchedulingGated", "")), without(""))
	s.at(0, "", gated)
	check.Equal(t, 5*time.Minute, s.at(10*time.Hour, "", gpuWanted()),
		"after the gate was opened: asked to look again after")
	s.at(10*time.Hour+4*time.Minute, "", gpuWanted())
	s.at(10*time.Hour+5*time.Minute, Unschedulable, gpuWanted())
	s.at(10*time.Hour+6*time.Minute, "", trainerPod(1, ready()))
	s.at(20*time.Hour, "", gpuWanted())
	s.at(20*time.Hour+5*time.Minute, Unschedulable, gpuWanted())
}

func TestPodsThatGoAreNoCrash(t *testing.T) {
	s := newStory(t)
	crashed := over(1, "Error", "")
	well := trainerPod(0, containers(ready(), restarted(4, runs(), crashed)))
	s.at(time.Hour, "", well, trainerPod(1, containers(ready(), restarted(1, runs(), crashed))))
	s.at(2*time.Hour, "", well, trainerPod(1, ready()))
}

func TestOneCrashOfASinglePodIsNoTrouble(t *testing.T) {
	s := newStory(t)
	s.at(time.Minute, "", trainerPod(0, ready()))
	s.at(5*time.Hour, "", trainerPod(0, unready(corev1.PodRunning, restarted(0, over(1, "Error", ""), corev1.ContainerState{}))))
	s.at(5*time.Hour+10*time.Second, "", trainerPod(0, containers(ready(), restarted(1, runs(), over(1, "Error", "")))))
}

func TestProgress(t *testing.T) {
	s := newStory(t)
	report := func(percent int32, at time.Time) {
		s.progress = &trainer.TrainerStatus{ProgressPercentage: &percent, LastUpdatedTime: metav1.NewTime(at)}
	}
	pod := trainerPod(0, ready())
	s.at(0, "", pod)
	report(1, t0.Add(-99*time.Hour)) // by a clock that is four days behind
	s.at(time.Hour, "", pod)
	s.at(time.Hour+29*time.Minute, "", pod)
	s.at(time.Hour+30*time.Minute, NoProgress, pod)
	report(1, t0) // the same report again
	s.at(time.Hour+31*time.Minute, "", pod)
	s.at(time.Hour+61*time.Minute, NoProgress, pod)
	s.since = t0.Add(2 * time.Hour) // a new attempt, whose pods start again
	s.at(2*time.Hour, "", trainerPod(0, unready(corev1.PodPending, container(waiting("ContainerCreating", "")))))
	s.at(2*time.Hour+10*time.Minute, "", pod)
	s.at(2*time.Hour+39*time.Minute, "", pod)
	s.at(2*time.Hour+40*time.Minute, NoProgress, pod)
}

func TestForget(t *testing.T) {
	var m Jobs
	for i := range 3 {
		in := Input{Since: t0}
		m.Observe(types.NamespacedName{Name: string(rune('a' + i))}, &in, "", t0)
	}
	m.Forget(types.NamespacedName{Name: "b"})
	m.Forget(types.NamespacedName{Name: "unknown"})
	check.Equal(t, 2, len(m.jobs), "jobs that are remembered")
}
