// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// rounds is how many random jobs of a few pods a test tries. A failure prints its seed.
const rounds = 2000

func forRandomJobs(t *testing.T, try func(t *testing.T, r *rand.Rand)) {
	t.Helper()
	for seed := range uint64(rounds) {
		r := rand.New(rand.NewPCG(seed, 1))
		try(t, r)
		if t.Failed() {
			t.Fatalf("this was seed %d", seed)
		}
	}
}

func TestOrderOfPodsMakesNoDifference(t *testing.T) {
	forRandomJobs(t, func(t *testing.T, r *rand.Rand) {
		in, limits, now := randomInput(r)
		want, wantRecheck := Diagnose(in, limits, now)
		cause := Cause(in.Pods)
		in.Pods = slices.Clone(in.Pods)
		r.Shuffle(len(in.Pods), func(i, j int) { in.Pods[i], in.Pods[j] = in.Pods[j], in.Pods[i] })
		got, recheck := Diagnose(in, limits, now)
		if !same(want, got) || recheck != wantRecheck {
			t.Errorf("another order makes another diagnosis, after %s and %s (-first +then):\n%s", wantRecheck, recheck, cmp.Diff(want, got))
		}
		if again := Cause(in.Pods); again != cause {
			t.Errorf("another order makes the cause %q, not %q", again, cause)
		}
	})
}

func TestDiagnoseChangesNothing(t *testing.T) {
	forRandomJobs(t, func(t *testing.T, r *rand.Rand) {
		in, limits, now := randomInput(r)
		before := copies(in.Pods)
		Diagnose(in, limits, now)
		Cause(in.Pods)
		if !equality.Semantic.DeepEqual(before, in.Pods) {
			t.Errorf("the pods have changed:\n%s", cmp.Diff(before, in.Pods))
		}
	})
}

func TestTimeAloneChangesNothingBeforeTheRecheck(t *testing.T) {
	changed := 0
	forRandomJobs(t, func(t *testing.T, r *rand.Rand) {
		in, limits, now := randomInput(r)
		want, recheck := Diagnose(in, limits, now)
		until := recheck
		if recheck == 0 {
			until = 1000 * time.Hour
		}
		got, left := Diagnose(in, limits, now.Add(until-1))
		if !same(want, got) {
			t.Errorf("the answer changes within %s, Diagnose said %s:\n%s", until, recheck, cmp.Diff(want, got))
		}
		if recheck > 0 && left != 1 {
			t.Errorf("a nanosecond before, the time to wait is %s", left)
		}
		if then, _ := Diagnose(in, limits, now.Add(until)); recheck > 0 && !same(want, then) {
			changed++
		}
	})
	if changed < rounds/50 {
		t.Errorf("the answer changed with time in %d rounds only: the test tries too little", changed)
	}
}

func TestStrippedPodsTellTheSame(t *testing.T) {
	forRandomJobs(t, func(t *testing.T, r *rand.Rand) {
		in, limits, now := randomInput(r)
		stripped := in
		stripped.Pods = copies(in.Pods)
		for i, pod := range stripped.Pods {
			Strip(pod)
			if Changed(in.Pods[i], pod) {
				t.Errorf("stripping has changed the view (-before +after):\n%s", viewDiff(in.Pods[i], pod))
			}
			once := pod.DeepCopy()
			Strip(pod)
			if !equality.Semantic.DeepEqual(once, pod) {
				t.Errorf("stripping again changes a pod:\n%s", cmp.Diff(once, pod))
			}
		}
		want, _ := Diagnose(in, limits, now)
		got, _ := Diagnose(stripped, limits, now)
		if !same(want, got) {
			t.Errorf("another diagnosis of stripped pods (-whole +stripped):\n%s", cmp.Diff(want, got))
		}
		if whole, cause := Cause(in.Pods), Cause(stripped.Pods); whole != cause {
			t.Errorf("the cause of stripped pods is %q, not %q", cause, whole)
		}
	})
}

// The pair is one pod at two times. What never changes of a pod does not change here.
func TestChangedIsTrueWheneverTheAnswerIsAnother(t *testing.T) {
	different, silent := 0, 0
	forRandomJobs(t, func(t *testing.T, r *rand.Rand) {
		in, limits, now := randomInput(r)
		if len(in.Pods) == 0 {
			return
		}
		i := r.IntN(len(in.Pods))
		old, updated := in.Pods[i], mutate(r, in.Pods[i].DeepCopy())
		then := in
		then.Pods = slices.Clone(in.Pods)
		then.Pods[i] = updated
		before, waitBefore := Diagnose(in, limits, now)
		after, waitAfter := Diagnose(then, limits, now)
		other := !same(before, after) || waitBefore != waitAfter || Cause(in.Pods) != Cause(then.Pods) || seenOtherwise(in, then)
		switch passes := Changed(old, updated); {
		case other && !passes:
			t.Errorf("the answer is %v and then %v, and Changed does not say so", before, after)
		case other:
			different++
		case !passes:
			silent++
		}
	})
	if different < rounds/20 || silent < rounds/20 {
		t.Errorf("%d rounds had another answer, and %d were rightly left out: the test tries too little", different, silent)
	}
}

// seenOtherwise says whether Jobs sees a difference.
func seenOtherwise(a, b Input) bool {
	see := func(in Input) Input {
		var m Jobs
		m.Observe(types.NamespacedName{Name: "job"}, &in, "", t0.Add(time.Hour))
		return in
	}
	return see(a).Seen != see(b).Seen || crashes(survey(a.Pods)) != crashes(survey(b.Pods))
}

func TestMessages(t *testing.T) {
	longest := 0
	forRandomJobs(t, func(t *testing.T, r *rand.Rand) {
		in, limits, now := randomInput(r)
		trouble, _ := Diagnose(in, limits, now)
		texts := []string{Cause(in.Pods)}
		if trouble != nil {
			texts = append(texts, trouble.Message)
		}
		for _, text := range texts {
			longest = max(longest, len(text))
			if strings.ContainsAny(text, "\n\r") || strings.HasSuffix(text, ": ") || strings.Contains(text, "Signature=") {
				t.Errorf("message %q", text)
			}
		}
	})
	if longest > 1024 {
		t.Errorf("a message has %d bytes: it does not fit into an Event", longest)
	}
}

func same(a, b *Trouble) bool {
	return a == b || a != nil && b != nil && *a == *b
}

func viewDiff(a, b *corev1.Pod) string {
	return cmp.Diff(viewOf(a), viewOf(b), cmp.AllowUnexported(view{}, position{}, failure{}))
}

func copies(pods []*corev1.Pod) []*corev1.Pod {
	all := make([]*corev1.Pod, 0, len(pods))
	for _, pod := range pods {
		all = append(all, pod.DeepCopy())
	}
	return all
}

func randomInput(r *rand.Rand) (Input, Limits, time.Time) {
	in := Input{Since: t0}
	for i := range r.IntN(5) {
		in.Pods = append(in.Pods, mutate(r, randomPod(r, i)))
	}
	if r.IntN(2) == 0 {
		in.Progress = &trainer.TrainerStatus{}
	}
	sometimes := func() time.Time {
		if r.IntN(3) == 0 {
			return time.Time{}
		}
		return t0.Add(time.Duration(r.IntN(3600)) * time.Second)
	}
	in.ProgressSeen = sometimes()
	in.Seen = Seen{Idle: sometimes(), Unscheduled: sometimes(), Running: sometimes(), Crash: sometimes()}
	return in, pick(r, DefaultLimits(), DefaultLimits(), Limits{CrashLoops: 1}, Limits{NoPodReady: time.Hour, NoProgress: time.Minute}),
		t0.Add(time.Duration(r.IntN(7200)) * time.Second)
}

// randomPod returns a pod with random values in what never changes of a pod.
func randomPod(r *rand.Rand, i int) *corev1.Pod {
	pod := stepPod(pick(r, "node", "node", "node", "launcher", ""), r.IntN(3), corev1.PodStatus{})
	pod.Name = string(rune('a' + i))
	pod.CreationTimestamp = metav1.NewTime(t0.Add(time.Duration(r.IntN(3)) * time.Minute))
	attempt(pick(r, 0, 0, 0, 9, 10))(pod)
	jobAttempt(pick(r, 0, 0, 0, 1))(pod)
	if r.IntN(8) == 0 {
		delete(pod.Labels, "batch.kubernetes.io/job-completion-index")
	}
	if r.IntN(4) == 0 {
		pod.Spec.Containers[0].TerminationMessagePolicy = corev1.TerminationMessageFallbackToLogsOnError
	}
	return pod
}

// mutate gives a pod a new status, or changes a part of its status.
func mutate(r *rand.Rand, pod *corev1.Pod) *corev1.Pod {
	pod.ResourceVersion += "1"
	switch what := r.IntN(12); {
	case pod.Status.Phase == "" || what < 4:
		pod.Status = randomStatus(r)
	case what == 4:
		deleted(pod)
	case what == 5:
		pod.Spec.NodeName = pick(r, "", "gpu-1", "gpu-2")
	case what < 8 && len(pod.Status.ContainerStatuses) > 0:
		s := &pod.Status.ContainerStatuses[0]
		s.State, s.LastTerminationState, s.RestartCount = randomState(r), randomState(r), s.RestartCount+int32(r.IntN(3))
		s.Image = pick(r, s.Image, "example.com/other")
	case what < 10:
		i := slices.IndexFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == pick(r, conditionTypes...) })
		if i >= 0 {
			c := &pod.Status.Conditions[i]
			c.Status, c.Reason = pick(r, corev1.ConditionTrue, corev1.ConditionFalse), pick(r, "", c.Reason)
			c.Message = pick(r, c.Message, randomText(r))
		}
	default: // a part that nobody reads
		pod.Status.PodIP, pod.Status.StartTime = "10.0.0.1", new(metav1.NewTime(t0))
		pod.Annotations = map[string]string{"a": "b"}
	}
	return pod
}

var conditionTypes = []corev1.PodConditionType{
	corev1.PodReady, corev1.ContainersReady, corev1.PodScheduled, corev1.PodInitialized, corev1.PodReadyToStartContainers,
	corev1.DisruptionTarget,
}

func randomStatus(r *rand.Rand) corev1.PodStatus {
	one := restarted(int32(r.IntN(5)), randomState(r), randomState(r))
	two := restarted(int32(r.IntN(5)), randomState(r), randomState(r))
	two.Name = "sidecar"
	status := pick(r, ready(), unready(corev1.PodRunning, one), unready(corev1.PodPending, one), failed(one), notReadyByNode(),
		unbound("Unschedulable", noGPU), unbound("SchedulingGated", ""), unbound("SchedulerError", ""),
		corev1.PodStatus{Phase: corev1.PodSucceeded}, reasoned(failed(), pick(r, "Evicted", "OutOfcpu", "Terminated"), randomText(r)))
	if r.IntN(3) == 0 {
		status.InitContainerStatuses = []corev1.ContainerStatus{two}
	}
	if r.IntN(6) == 0 {
		status = disrupted(status, pick(r, "DeletionByTaintManager", "TerminationByKubelet", "PreemptionByScheduler", "New"), randomText(r))
	}
	return status
}

func randomState(r *rand.Rand) corev1.ContainerState {
	state := pick(r, runs(), runs(), corev1.ContainerState{},
		waiting(pick(r, "ErrImagePull", "ImagePullBackOff", "CrashLoopBackOff", "RunContainerError", "ContainerCreating", "New"), randomText(r)),
		over(pick(r, int32(0), 1, 137, 143), pick(r, "Error", "OOMKilled", "StartError", ""), randomText(r)))
	if state.Terminated != nil {
		state.Terminated.FinishedAt = pick(r, metav1.Time{}, metav1.NewTime(t0.Add(time.Duration(r.IntN(9))*time.Second)))
	}
	return state
}

func randomText(r *rand.Rand) string {
	parts := []string{
		"", "x", "\n", "  ", pullError, noGPU, startMessage, pressure, "ErrImagePull: ", `Back-off pulling image "x": `,
		"rpc error: code = Unknown desc = ", "GET https://s3.example.com/v2/blob?X-Amz-Signature=0123: 403", "pull QPS exceeded",
		"read tcp 10.0.0.7:43210->10.0.0.1:443: reset", strings.Repeat("ü", 90), strings.Repeat("y", maxWords), "\xff",
		"0/3 nodes are available: ", "3 Insufficient cpu, ", ". preemption: 0/3", "line\nanother\nlast",
	}
	var b strings.Builder
	for range r.IntN(4) {
		b.WriteString(pick(r, parts...))
	}
	return b.String()
}

func pick[T any](r *rand.Rand, from ...T) T {
	return from[r.IntN(len(from))]
}
