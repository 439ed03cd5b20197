// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"runtime"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/trainyard/trainyard/test/check"
)

func TestStripKeepsWhatACacheNeeds(t *testing.T) {
	pod := largePod(3)
	pod.Spec.TerminationGracePeriodSeconds, pod.DeletionGracePeriodSeconds = new(int64(77)), new(int64(7))
	Strip(pod)
	if g, d := pod.Spec.TerminationGracePeriodSeconds, pod.DeletionGracePeriodSeconds; g == nil || *g != 77 || d == nil || *d != 7 {
		t.Error("how long the pod has to end is gone, which whoever stops it has to know")
	}
	if pod.Namespace != "team" || pod.Name != "job-node-0-3-x" || pod.UID == "" || pod.ResourceVersion != "7" {
		t.Errorf("the pod's identity is gone: %+v", pod.ObjectMeta)
	}
	if key, ok := JobSetOf(pod); !ok || key.String() != "team/job" {
		t.Errorf("the pod's JobSet is %s, want team/job", key)
	}
	if got := IndexByJobSet(pod); !cmp.Equal(got, []string{"job"}) {
		t.Errorf("the pod is indexed under %q, want job", got)
	}
	if !Selector().Matches(labels.Set(pod.Labels)) {
		t.Error("the selector does not match the pod any more")
	}
	if len(pod.Spec.Containers) > 0 || pod.ManagedFields != nil || pod.Annotations != nil {
		t.Errorf("there is more left than is read: %+v", pod)
	}
}

func TestSelectorLeavesOtherPodsOut(t *testing.T) {
	pod := with(trainerPod(0, ready()), func(pod *corev1.Pod) { delete(pod.Labels, "jobset.sigs.k8s.io/jobset-name") })
	if _, ok := JobSetOf(pod); ok || Selector().Matches(labels.Set(pod.Labels)) || IndexByJobSet(pod) != nil {
		t.Error("a pod that is of no JobSet is taken for one that is")
	}
}

func TestChanged(t *testing.T) {
	crashing := func(wait string, restarts int32) corev1.PodStatus {
		return unready(corev1.PodRunning, restarted(restarts, waiting("CrashLoopBackOff", wait), over(1, "Error", "x")))
	}
	tests := map[string]struct {
		reason       string
		old, updated *corev1.Pod
		want         bool
	}{
		"BackOff": {
			reason:  "a kubelet that waits longer says nothing new",
			old:     trainerPod(0, crashing("back-off 20s restarting failed container", 3)),
			updated: trainerPod(0, crashing("back-off 40s restarting failed container", 3)),
		},
		"Restart": {
			reason:  "a restart is news: Jobs has to see it",
			old:     trainerPod(0, crashing("back-off 20s restarting failed container", 3)),
			updated: trainerPod(0, crashing("back-off 20s restarting failed container", 4)),
			want:    true,
		},
		"Counts": {
			reason:  "a node more that does not fit is none",
			old:     with(trainerPod(0, unbound("Unschedulable", noGPU)), without("")),
			updated: with(trainerPod(0, unbound("Unschedulable", strings.ReplaceAll(noGPU, "0/5", "0/6"))), without("")),
		},
		"OtherCause": {
			reason:  "another cause is",
			old:     with(trainerPod(0, unbound("Unschedulable", noGPU)), without("")),
			updated: with(trainerPod(0, unbound("Unschedulable", strings.ReplaceAll(noGPU, "nvidia.com/gpu", "cpu"))), without("")),
			want:    true,
		},
		"Pull": {
			reason:  "between two tries to pull an image nothing changes",
			old:     trainerPod(0, unready(corev1.PodPending, container(waiting("ErrImagePull", "no such host")))),
			updated: trainerPod(0, unready(corev1.PodPending, container(waiting("ImagePullBackOff", `Back-off pulling image "a": ErrImagePull: no such host`)))),
		},
		"Ready": {
			reason:  "a pod became ready",
			old:     trainerPod(0, unready(corev1.PodPending, container(waiting("ContainerCreating", "")))),
			updated: trainerPod(0, ready()),
			want:    true,
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Changed(test.old, test.updated); got != test.want {
				t.Errorf("%s\nChanged() is %v; the views differ in:\n%s", test.reason, got, viewDiff(test.old, test.updated))
			}
		})
	}
}

// largePod is a trainer's pod with all that admission, runtime framework and kubelet add.
func largePod(index int) *corev1.Pod {
	pod := trainerPod(index, containers(ready(), restarted(1, runs(), over(1, "Error", strings.Repeat("Traceback\n", 200)))))
	pod.Annotations = map[string]string{}
	for k, v := range pod.Labels {
		pod.Annotations[k] = strings.Clone(v)
	}
	fields := metav1.NewFieldsV1(strings.Repeat(`{"f:metadata":{"f:labels":{}}}`, 150))
	pod.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kube-controller-manager", FieldsV1: fields}}
	var env []corev1.EnvVar
	for i := range 20 {
		env = append(env, corev1.EnvVar{Name: fmt.Sprintf("PET_VARIABLE_%d", i), Value: strings.Repeat("v", 20)})
	}
	pod.Spec.Containers[0].Env = env
	pod.Spec.Containers[0].Resources.Limits = corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}
	pod.Spec.Volumes = make([]corev1.Volume, 3)
	pod.Spec.Tolerations = make([]corev1.Toleration, 3)
	return pod
}

// BenchmarkMemoryOfPods reports the memory that a pod needs in a cache, whole and stripped.
func BenchmarkMemoryOfPods(b *testing.B) {
	for name, strip := range map[string]func(*corev1.Pod){"whole": func(*corev1.Pod) {}, "stripped": Strip} {
		b.Run(name, func(b *testing.B) {
			const pods = 2000
			for b.Loop() {
				before := heap()
				kept := make([]*corev1.Pod, pods)
				for i := range kept {
					kept[i] = decoded(b, largePod(i))
					strip(kept[i])
				}
				b.ReportMetric(float64(heap()-before)/pods, "B/pod")
				runtime.KeepAlive(kept)
			}
		})
	}
}

// decoded returns the pod as the API server sends it: no string is shared with another pod.
func decoded(b *testing.B, pod *corev1.Pod) *corev1.Pod {
	b.Helper()
	data, err := pod.Marshal()
	check.Must(b, err)
	var fresh corev1.Pod
	check.Must(b, fresh.Unmarshal(data))
	return &fresh
}

func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

func BenchmarkDiagnose(b *testing.B) {
	in := Input{Since: t0}
	for i := range 64 {
		pod := largePod(i)
		Strip(pod)
		in.Pods = append(in.Pods, pod)
	}
	for b.Loop() {
		Diagnose(in, DefaultLimits(), t0)
	}
}
