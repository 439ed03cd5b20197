// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/trainyard/trainyard/test/check"
)

const (
	pullError = `rpc error: code = NotFound desc = failed to pull and unpack image "example.com/train:1": ` +
		`failed to resolve reference "example.com/train:1": example.com/train:1: not found`
	noClaims = "0/2 nodes are available: 2 Insufficient nvidia.com/gpu. no new claims to deallocate, preemption: 0/2 nodes are available: " +
		"2 Preemption is not helpful for scheduling."
	noGPU = "0/5 nodes are available: 2 node(s) had untolerated taint {gpu: }, 3 Insufficient nvidia.com/gpu. " +
		"preemption: 0/5 nodes are available: 2 Preemption is not helpful for scheduling, 3 No preemption victims found for incoming pod."
)

// trouble is of a pod of the trainer.
func trouble(reason string, index int, words string) *Trouble {
	return &Trouble{reason, fmt.Sprintf("pod job-node-0-%[1]d-x (trainer %[1]d) on node gpu-%[1]d: %[2]s", index, words)}
}

func TestDiagnose(t *testing.T) {
	tests := map[string]struct {
		reason      string
		pods        []*corev1.Pod
		progress    *trainer.TrainerStatus
		after       time.Duration // since the attempt began
		seen        Seen
		want        *Trouble
		wantRecheck time.Duration
	}{
		"Healthy": {
			reason: "pods that run are no trouble, and no time makes them one",
			pods:   []*corev1.Pod{trainerPod(0, ready()), trainerPod(1, ready())},
			after:  99 * time.Hour,
		},
		"Completed": {
			reason: "a pod that has succeeded counts as ready",
			pods:   []*corev1.Pod{trainerPod(0, corev1.PodStatus{Phase: corev1.PodSucceeded})},
			after:  99 * time.Hour,
		},
		"ImagePullFailed/ErrImagePull": {
			reason: "image_manager.go: the first try, with the error of the container runtime",
			pods:   []*corev1.Pod{trainerPod(3, unready(corev1.PodPending, container(waiting("ErrImagePull", pullError))))},
			want: trouble(ImagePullFailed, 3,
				`container "node" does not get its image "example.com/train:1": example.com/train:1: not found`),
		},
		"ImagePullFailed/ImagePullBackOff": {
			reason: "the same trouble between two tries has the same words",
			pods: []*corev1.Pod{trainerPod(3, unready(corev1.PodPending, container(
				waiting("ImagePullBackOff", `Back-off pulling image "example.com/train:1": ErrImagePull: `+pullError),
			)))},
			want: trouble(ImagePullFailed, 3,
				`container "node" does not get its image "example.com/train:1": example.com/train:1: not found`),
		},
		"ImagePullFailed/InvalidName": {
			reason: "a name that cannot be parsed is not tried at all",
			pods: []*corev1.Pod{trainerPod(0, unready(corev1.PodPending, container(waiting("InvalidImageName",
				`Failed to apply default image tag "Example/Train": couldn't parse image name "Example/Train": `+
					`invalid reference format: repository name (Example/Train) must be lowercase`))))},
			want: trouble(ImagePullFailed, 0,
				`container "node" does not get its image "example.com/train:1": Failed to apply default image tag `+
					`"Example/Train": couldn't parse image name "Example/Train": invalid reference format: repository name (Example/Train) must be lowercase`),
		},
		"ImagePullFailed/Never": {
			reason: "an image that is not there and may not be pulled",
			pods: []*corev1.Pod{trainerPod(0, unready(corev1.PodPending, container(waiting("ErrImageNeverPull",
				`Container image "example.com/train:1" is not present with pull policy of Never`))))},
			want: trouble(ImagePullFailed, 0,
				`container "node" does not get its image "example.com/train:1": Container image "example.com/train:1" is `+
					`not present with pull policy of Never`),
		},
		"ImagePullFailed/TooManyPulls": {
			reason: "images/helpers.go: the kubelet's own limit is over in seconds and no trouble",
			pods: []*corev1.Pod{trainerPod(0, unready(corev1.PodPending,
				container(waiting("ImagePullBackOff", `Back-off pulling image "example.com/train:1": ErrImagePull: pull QPS exceeded`))))},
			wantRecheck: 15 * time.Minute,
		},
		"ImagePullFailed/Several": {
			reason: "the first in the job is named, and that it is not the only one",
			pods: []*corev1.Pod{
				trainerPod(10, unready(corev1.PodPending, container(waiting("ErrImagePull", "no such host")))),
				trainerPod(2, unready(corev1.PodPending, container(waiting("ErrImagePull", "no such host")))),
				trainerPod(0, ready()),
			},
			want: &Trouble{
				ImagePullFailed,
				`pod job-node-0-2-x (trainer 2) on node gpu-2 and others: ` +
					`container "node" does not get its image "example.com/train:1": no such host`,
			},
		},
		"ImagePullFailed/InitContainer": {
			reason: "init containers, sidecars among them, are containers",
			pods: []*corev1.Pod{stepPod("dataset-initializer", 0, corev1.PodStatus{
				Phase: corev1.PodPending,
				InitContainerStatuses: []corev1.ContainerStatus{
					{Name: "proxy", Image: "example.com/proxy", State: waiting("ErrImagePull", "unauthorized")},
				},
				ContainerStatuses: []corev1.ContainerStatus{container(waiting("PodInitializing", ""))},
			})},
			want: &Trouble{
				ImagePullFailed,
				`pod job-dataset-initializer-0-0-x (dataset-initializer 0) on node gpu-0: ` +
					`container "proxy" does not get its image "example.com/proxy": unauthorized`,
			},
		},
		"ContainerConfigError": {
			reason: "kuberuntime_container.go, generateContainerConfig: a Secret that does not exist",
			pods: []*corev1.Pod{trainerPod(0, unready(corev1.PodPending,
				container(waiting("CreateContainerConfigError", `secret "hf-token" not found`))))},
			want: trouble(ContainerConfigError, 0, `container "node" cannot be configured: secret "hf-token" not found`),
		},
		"ContainerStartFailed/RunContainerError": {
			reason: "a command that is not in the image; the runtime's chain of errors is cut to its cause",
			pods: []*corev1.Pod{trainerPod(0, unready(corev1.PodPending, restarted(0,
				waiting("RunContainerError", startMessage), over(128, "StartError", startMessage))))},
			want: trouble(ContainerStartFailed, 0,
				`container "node" cannot be started: exec: "torchrun": executable file not found in $PATH: unknown`),
		},
		"ContainerStartFailed/BackOff": {
			reason: "the same between two tries, also when it has been tried often: it is no crash loop",
			pods: []*corev1.Pod{trainerPod(0, unready(corev1.PodRunning, restarted(9,
				waiting("CrashLoopBackOff", "back-off 5m0s restarting failed container=node pod=job-node-0-0-x_team(uid)"),
				over(128, "StartError", startMessage))))},
			want: trouble(ContainerStartFailed, 0,
				`container "node" cannot be started: exec: "torchrun": executable file not found in $PATH: unknown`),
		},
		"CrashLoop/BackOff": {
			reason: "the third restart makes it a crash loop; how long the kubelet waits is not said",
			pods: []*corev1.Pod{trainerPod(0, ready()), trainerPod(1, unready(corev1.PodRunning, restarted(3,
				waiting("CrashLoopBackOff", "back-off 40s restarting failed container=node pod=job-node-0-1-x_team(uid)"),
				over(1, "Error", "RuntimeError: CUDA error\n  at train.py:7"))))},
			want: trouble(CrashLoop, 1,
				`it ends again and again, last container "node" ended with exit code 1: RuntimeError: CUDA error`),
		},
		"CrashLoop/Runs": {
			reason: "running between two crashes it is the same trouble, until it has run for ten minutes",
			pods: []*corev1.Pod{trainerPod(0, ready()), trainerPod(1, containers(ready(), restarted(3,
				runs(), over(1, "Error", "RuntimeError: CUDA error"))))},
			after: time.Hour,
			seen:  Seen{Crash: t0.Add(time.Hour - 4*time.Minute)},
			want: trouble(CrashLoop, 1,
				`it ends again and again, last container "node" ended with exit code 1: RuntimeError: CUDA error`),
			wantRecheck: 6 * time.Minute,
		},
		"CrashLoop/Over": {
			reason: "what has run for ten minutes is well",
			pods:   []*corev1.Pod{trainerPod(1, containers(ready(), restarted(3, runs(), over(1, "Error", ""))))},
			after:  time.Hour,
			seen:   Seen{Crash: t0.Add(50 * time.Minute)},
		},
		"CrashLoop/NotYet": {
			reason: "two restarts are none",
			pods: []*corev1.Pod{trainerPod(0, ready()), trainerPod(1, unready(corev1.PodRunning, restarted(2,
				waiting("CrashLoopBackOff", "back-off 20s"), over(1, "Error", ""))))},
		},
		"CrashLoop/OutOfMemory": {
			reason: "that memory ran out is said, with the exit code",
			pods: []*corev1.Pod{trainerPod(1, unready(corev1.PodRunning, restarted(4,
				over(137, "OOMKilled", ""), over(1, "Error", "something else before"))))},
			want: trouble(CrashLoop, 1,
				`it ends again and again, last container "node" was killed because it ran out of memory (OOMKilled, exit `+
					`code 137)`),
		},
		"CrashLoop/ReplacedPods": {
			reason: "with restartPolicy Never the Job replaces pods; those before the present one are crashes of its slot",
			pods: []*corev1.Pod{
				trainerPod(0, ready()),
				with(trainerPod(1, failed(container(over(1, "Error", "first")))), named("p1", 3*time.Minute)),
				with(trainerPod(1, failed(container(over(1, "Error", "third")))), named("p3", time.Minute)),
				with(trainerPod(1, failed(container(over(1, "Error", "second")))), named("p2", 2*time.Minute)),
				with(trainerPod(1, unready(corev1.PodPending, container(waiting("ContainerCreating", "")))), named("p4", 0)),
			},
			seen: Seen{Crash: t0},
			want: &Trouble{
				CrashLoop, `pod p4 (trainer 1) on node gpu-1: container "node" ended with exit code 1: third`,
			},
			wantRecheck: 10 * time.Minute,
		},
		"CrashLoop/OneByOne": {
			reason: "failures of different slots do not add up",
			pods: []*corev1.Pod{
				trainerPod(0, failed(container(over(1, "Error", "")))), trainerPod(1, failed(container(over(1, "Error", "")))),
				trainerPod(2, failed(container(over(1, "Error", "")))), trainerPod(3, ready()),
			},
		},
		"NodeLost/NotReady": {
			reason: "MarkPodsNotReady: the first that is seen of a lost node, before the pod is evicted",
			pods:   []*corev1.Pod{trainerPod(0, ready()), trainerPod(17, notReadyByNode())},
			want:   trouble(NodeLost, 17, "the node is not ready"),
		},
		"NodeLost/Probe": {
			reason: "a pod that fails its readiness probe has not lost its node",
			pods: []*corev1.Pod{trainerPod(0, ready()), trainerPod(1, func() corev1.PodStatus {
				s := unready(corev1.PodRunning, container(runs()))
				s.ContainerStatuses[0].Ready = false
				return s
			}())},
		},
		"NodeLost/ReadinessGate": {
			reason: "nor has one that waits for a readiness gate",
			pods: []*corev1.Pod{trainerPod(0, ready()), trainerPod(1, func() corev1.PodStatus {
				s := notReadyByNode()
				s.Conditions[2].Reason = "ReadinessGatesNotReady"
				return s
			}())},
		},
		"NodeLost/Taint": {
			reason: "taint_eviction.go, five minutes later: the pod stays with a deletionTimestamp, as no kubelet ends it",
			pods: []*corev1.Pod{with(trainerPod(1,
				disrupted(notReadyByNode(), "DeletionByTaintManager", "Taint manager: deleting due to NoExecute taint")), deleted)},
			want: trouble(NodeLost, 1, "the node has a NoExecute taint: it does not answer, or was taken out of service"),
		},
		"NodeLost/Gone": {
			reason: "gc_controller.go: the Node object was deleted",
			pods: []*corev1.Pod{trainerPod(1, disrupted(failed(), "DeletionByPodGC", "PodGC: node no longer exists")),
				trainerPod(0, ready())},
			want: trouble(NodeLost, 1, "the node does not exist any more"),
		},
		"NodeLost/Shutdown": {
			reason: "nodeshutdown_manager.go: a graceful shutdown, whose pods are terminated by the kubelet",
			pods: []*corev1.Pod{trainerPod(1, reasoned(disrupted(failed(container(over(143, "Error", ""))), "TerminationByKubelet",
				"Pod was terminated in response to imminent node shutdown."),
				"Terminated", "Pod was terminated in response to imminent node shutdown.")), trainerPod(0, ready())},
			want: trouble(NodeLost, 1, "the node is shutting down"),
		},
		"NodeLost/Worst": {
			reason: "a lost node goes before what it causes elsewhere",
			pods: []*corev1.Pod{
				trainerPod(0, unready(corev1.PodRunning, restarted(5, waiting("CrashLoopBackOff", ""), over(1, "Error", "connection reset")))),
				trainerPod(5, notReadyByNode()),
				trainerPod(1, unready(corev1.PodPending, container(waiting("ErrImagePull", "x")))),
			},
			want: trouble(NodeLost, 5, "the node is not ready"),
		},
		"NodeLost/Replaced": {
			reason: "it is over when the Job has replaced the pod",
			pods: []*corev1.Pod{
				with(trainerPod(1, disrupted(failed(), "DeletionByPodGC", "PodGC: node no longer exists")), named("p1", time.Minute)),
				with(trainerPod(1, ready()), named("p2", 0)),
			},
		},
		"Evicted/Preempted": {
			reason: "executor.go: the scheduler took the place for somebody else",
			pods: []*corev1.Pod{with(trainerPod(1, disrupted(ready(), "PreemptionByScheduler",
				"default-scheduler: preempting to accommodate a higher priority pod")), deleted)},
			want: trouble(Evicted, 1, "was preempted to make room for pods of higher priority"),
		},
		"Evicted/Drained": {
			reason: "eviction.go: somebody drains the node",
			pods:   []*corev1.Pod{with(trainerPod(1, disrupted(ready(), "EvictionByEvictionAPI", "Eviction API: evicting")), deleted)},
			want:   trouble(Evicted, 1, "was evicted through the API, as when its node is drained"),
		},
		"Evicted/NodePressure": {
			reason: "eviction_manager.go: the node ran out of something",
			pods: []*corev1.Pod{trainerPod(1, reasoned(disrupted(failed(), "TerminationByKubelet", pressure), "Evicted", pressure)),
				trainerPod(0, ready())},
			want: trouble(Evicted, 1, "was evicted by the kubelet: "+strings.TrimSpace(pressure)),
		},
		"Unschedulable": {
			reason: "the scheduler's words without its counts and without preemption, after five minutes",
			pods: []*corev1.Pod{
				with(trainerPod(0, unbound("Unschedulable", noGPU)), without("")), with(trainerPod(1, unbound("Unschedulable", noGPU)), without("")),
			},
			after: 5 * time.Minute,
			want: &Trouble{
				Unschedulable,
				"pod job-node-0-0-x (trainer 0) and others: no node for it: Insufficient nvidia.com/gpu; node(s) had untolerated taint {gpu: }",
			},
		},
		"Unschedulable/NotYet": {
			reason:      "a node may be on its way",
			pods:        []*corev1.Pod{with(trainerPod(0, unbound("Unschedulable", noGPU)), without(""))},
			after:       4 * time.Minute,
			wantRecheck: time.Minute,
		},
		"Unschedulable/Later": {
			reason:      "pods behind an initializer are counted from when they were seen, not from the start of the job",
			pods:        []*corev1.Pod{with(trainerPod(0, unbound("Unschedulable", noGPU)), without("")), trainerPod(1, ready())},
			after:       2 * time.Hour,
			seen:        Seen{Unscheduled: t0.Add(2*time.Hour - time.Minute)},
			wantRecheck: 4 * time.Minute,
		},
		"Unschedulable/PostFilters": {
			reason: "with dynamic resource allocation a second plugin tells that it could not make room",
			pods:   []*corev1.Pod{with(trainerPod(0, unbound("Unschedulable", noClaims)), without(""))},
			after:  time.Hour,
			want:   &Trouble{Unschedulable, "pod job-node-0-0-x (trainer 0): no node for it: Insufficient nvidia.com/gpu"},
		},
		"Unschedulable/Claim": {
			reason: "volumebinding: a claim that does not exist is told before any node is looked at",
			pods: []*corev1.Pod{with(trainerPod(0, unbound("Unschedulable",
				`0/3 nodes are available: persistentvolumeclaim "dataset" not found. preemption: 0/3 nodes are available: `+
					`3 Preemption is not helpful for scheduling.`)), without(""))},
			after: time.Hour,
			want: &Trouble{
				Unschedulable, `pod job-node-0-0-x (trainer 0): no node for it: persistentvolumeclaim "dataset" not found`,
			},
		},
		"Gated": {
			reason: "a pod with a gate waits for whoever has put it there",
			pods: []*corev1.Pod{with(trainerPod(0, unbound("SchedulingGated",
				"Scheduling is blocked due to non-empty scheduling gates")), without(""))},
			after: 99 * time.Hour,
		},
		"NoPodReady/Volumes": {
			reason: "the pod only tells that it has no sandbox: the kubelet mounts volumes before it makes one",
			pods: []*corev1.Pod{trainerPod(0, func() corev1.PodStatus {
				s := unready(corev1.PodPending, container(waiting("ContainerCreating", "")))
				s.Conditions[0].Status = corev1.ConditionFalse
				return s
			}())},
			after: 15 * time.Minute,
			want:  trouble(NoPodReady, 0, "no pod is ready; this one waits for its volumes or its network"),
		},
		"NoPodReady/Creating": {
			reason: "several pods, of which the first is told; an image of many gigabytes looks like this",
			pods: []*corev1.Pod{
				trainerPod(1, unready(corev1.PodPending, container(waiting("ContainerCreating", "")))),
				trainerPod(0, unready(corev1.PodPending, container(waiting("ContainerCreating", "")))),
			},
			after: 20 * time.Minute,
			want: &Trouble{
				NoPodReady,
				`pod job-node-0-0-x (trainer 0) on node gpu-0 and others: no pod is ready; this one waits for its container "node" (ContainerCreating)`,
			},
		},
		"NoPodReady/NoPods": {
			reason: "a quota, or Pod Security, keeps pods from being created",
			after:  15 * time.Minute,
			want:   &Trouble{NoPodReady, "no pod exists"},
		},
		"NoPodReady/NotYet": {
			reason:      "a crash of a job that was ready a minute ago is counted from then",
			pods:        []*corev1.Pod{trainerPod(0, unready(corev1.PodRunning, restarted(1, waiting("CrashLoopBackOff", ""), over(1, "Error", ""))))},
			after:       5 * time.Hour,
			seen:        Seen{Idle: t0.Add(5*time.Hour - time.Minute)},
			wantRecheck: 14 * time.Minute,
		},
		"NoProgress": {
			reason:   "a job that reports its progress has fallen silent; the report's own times do not count",
			pods:     []*corev1.Pod{trainerPod(0, ready())},
			progress: &trainer.TrainerStatus{ProgressPercentage: new(int32(40))},
			after:    30 * time.Minute,
			want:     &Trouble{NoProgress, "pods run, and no progress has been reported for 30m0s"},
		},
		"NoProgress/Silent": {
			reason: "a job that reports none is not expected to",
			pods:   []*corev1.Pod{trainerPod(0, ready())},
			after:  99 * time.Hour,
		},
		"NoProgress/WaitsForPods": {
			reason:      "pods that have just come to run are given their time",
			pods:        []*corev1.Pod{trainerPod(0, ready())},
			progress:    &trainer.TrainerStatus{},
			after:       2 * time.Hour,
			seen:        Seen{Running: t0.Add(2*time.Hour - 10*time.Minute)},
			wantRecheck: 20 * time.Minute,
		},
		"EarlierAttempt": {
			reason: "pods of an attempt that is over say nothing about this one",
			pods: []*corev1.Pod{
				with(trainerPod(0, unready(corev1.PodRunning, restarted(9, waiting("CrashLoopBackOff", ""), over(1, "Error", "")))), attempt(1)),
				with(trainerPod(0, ready()), attempt(10), named("p2", 0)),
			},
		},
		"EarlierJobAttempt": {
			reason: "nor do those of a Job that was restarted alone",
			pods: []*corev1.Pod{
				with(trainerPod(0, unready(corev1.PodPending, container(waiting("ErrImagePull", "x")))), jobAttempt(0), named("p1", time.Minute)),
				with(trainerPod(1, ready()), jobAttempt(1)),
				with(stepPod("launcher", 0, ready()), jobAttempt(0)),
			},
		},
		"Deleted": {
			reason: "what a pod that is being deleted suffers from is over soon",
			pods: []*corev1.Pod{with(trainerPod(0, unready(corev1.PodPending, container(waiting("ErrImagePull", "x")))), deleted),
				trainerPod(1, ready())},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			in := Input{Pods: test.pods, Since: t0, Progress: test.progress, Seen: test.seen}
			got, recheck := Diagnose(in, DefaultLimits(), t0.Add(test.after))
			check.Diff(t, test.want, got, fmt.Sprintf("%s\nDiagnose()", test.reason))
			check.Equal(t, test.wantRecheck, recheck, "%s: Diagnose() is to be asked again after", test.reason)
		})
	}
}

const (
	startMessage = `failed to create containerd task: failed to create shim task: OCI runtime create failed: runc create failed: ` +
		`unable to start container process: error during container init: exec: "torchrun": executable file not found in $PATH: unknown`
	pressure = "The node was low on resource: memory. Threshold quantity: 100Mi, available: 51200Ki. " +
		"Container node was using 60Gi, request is 0, has larger consumption of memory. "
)

// containers returns a status with these containers.
func containers(status corev1.PodStatus, containers ...corev1.ContainerStatus) corev1.PodStatus {
	status.ContainerStatuses = containers
	return status
}

// reasoned returns a status with a reason and a message.
func reasoned(status corev1.PodStatus, reason, message string) corev1.PodStatus {
	status.Reason, status.Message = reason, message
	return status
}

func TestLimitsSwitchChecksOff(t *testing.T) {
	now := t0.Add(1000 * time.Hour)
	for reason, in := range map[string]Input{
		CrashLoop: {Pods: []*corev1.Pod{trainerPod(0, ready()),
			trainerPod(1, unready(corev1.PodRunning, restarted(99, waiting("CrashLoopBackOff", ""), over(1, "Error", ""))))}},
		Unschedulable: {Pods: []*corev1.Pod{trainerPod(0, ready()), with(trainerPod(1, unbound("Unschedulable", noGPU)), without(""))}},
		NoPodReady:    {},
		NoProgress:    {Pods: []*corev1.Pod{trainerPod(0, ready())}, Progress: &trainer.TrainerStatus{}},
	} {
		in.Since = t0
		if got, _ := Diagnose(in, DefaultLimits(), now); got == nil || got.Reason != reason {
			t.Errorf("with the default limits: %v, want %s", got, reason)
		}
		if got, recheck := Diagnose(in, Limits{}, now); got != nil || recheck != 0 {
			t.Errorf("with all limits 0: %v after %s, want no %s", got, recheck, reason)
		}
	}
}

func TestTimeNeedsAStart(t *testing.T) {
	if got, recheck := Diagnose(Input{}, DefaultLimits(), t0); got != nil || recheck != 0 {
		t.Errorf("without Since: %v after %s, want nothing", got, recheck)
	}
}

func TestLimitsValidate(t *testing.T) {
	check.Equal(t, nil, DefaultLimits().Validate(), "the default limits")
	err := Limits{NoPodReady: -time.Second, CrashLoops: -1}.Validate()
	if err == nil || !strings.Contains(err.Error(), "CrashLoops is -1") || !strings.Contains(err.Error(), "NoPodReady is -1s") {
		t.Errorf("two negative limits: %v, want both named", err)
	}
}

// The tests use statuses that the parts of Kubernetes v1.36 write. The code that writes a status is named beside it.

var t0 = time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC)

// trainerPod returns the pod of a trainer on a node, with the labels of JobSet and the Job controller.
func trainerPod(index int, status corev1.PodStatus) *corev1.Pod {
	return stepPod("node", index, status)
}

func stepPod(replicatedJob string, index int, status corev1.PodStatus) *corev1.Pod {
	name := fmt.Sprintf("job-%s-0-%d-x", replicatedJob, index)
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: name, UID: types.UID(name), ResourceVersion: "7", CreationTimestamp: metav1.NewTime(t0),
			Labels: map[string]string{
				"jobset.sigs.k8s.io/jobset-name":              "job",
				"jobset.sigs.k8s.io/jobset-uid":               "c0ffee",
				"jobset.sigs.k8s.io/replicatedjob-name":       replicatedJob,
				"jobset.sigs.k8s.io/job-index":                "0",
				"jobset.sigs.k8s.io/restart-attempt":          "0",
				"batch.kubernetes.io/job-completion-index":    strconv.Itoa(index),
				"trainer.kubeflow.org/trainjob-ancestor-step": "trainer",
			},
		},
		Spec: corev1.PodSpec{
			NodeName:   "gpu-" + strconv.Itoa(index),
			Containers: []corev1.Container{{Name: "node", Image: "example.com/train:1"}},
		},
		Status: status,
	}
}

// with returns the pod after some changes.
func with(pod *corev1.Pod, changes ...func(*corev1.Pod)) *corev1.Pod {
	for _, change := range changes {
		change(pod)
	}
	return pod
}

func attempt(n int) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels["jobset.sigs.k8s.io/restart-attempt"] = strconv.Itoa(n) }
}

func jobAttempt(n int) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Labels["jobset.sigs.k8s.io/job-restart-attempt"] = strconv.Itoa(n) }
}

func named(name string, age time.Duration) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Name, pod.CreationTimestamp = name, metav1.NewTime(t0.Add(-age)) }
}

func deleted(pod *corev1.Pod) {
	pod.DeletionTimestamp, pod.DeletionGracePeriodSeconds = new(metav1.NewTime(t0)), new(int64(30))
}

func without(node string) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Spec.NodeName = node }
}

func cond(t corev1.PodConditionType, status corev1.ConditionStatus, reason, message string) corev1.PodCondition {
	return corev1.PodCondition{Type: t, Status: status, Reason: reason, Message: message, LastTransitionTime: metav1.NewTime(t0)}
}

func waiting(reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason, Message: message}}
}

func runs() corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(t0)}}
}

func over(exitCode int32, reason, message string) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: exitCode, Reason: reason, Message: message, StartedAt: metav1.NewTime(t0), FinishedAt: metav1.NewTime(t0.Add(5 * time.Second)),
		ContainerID: "containerd://0123456789abcdef",
	}}
}

func container(state corev1.ContainerState) corev1.ContainerStatus {
	return corev1.ContainerStatus{Name: "node", Image: "example.com/train:1", State: state, Ready: state.Running != nil}
}

// restarted returns a container that ended like this and was started again n times.
func restarted(n int32, state, last corev1.ContainerState) corev1.ContainerStatus {
	s := container(state)
	s.RestartCount, s.LastTerminationState = n, last
	return s
}

// ready is the kubelet's status of a pod that runs and is ready.
func ready() corev1.PodStatus {
	return corev1.PodStatus{
		Phase: corev1.PodRunning,
		Conditions: []corev1.PodCondition{
			cond(corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", ""),
			cond(corev1.PodInitialized, corev1.ConditionTrue, "", ""),
			cond(corev1.PodReady, corev1.ConditionTrue, "", ""),
			cond(corev1.ContainersReady, corev1.ConditionTrue, "", ""),
			cond(corev1.PodScheduled, corev1.ConditionTrue, "", ""),
		},
		ContainerStatuses: []corev1.ContainerStatus{container(runs())},
	}
}

// unready is the kubelet's status of a pod with a container that is not ready.
func unready(phase corev1.PodPhase, containers ...corev1.ContainerStatus) corev1.PodStatus {
	const message = "containers with unready status: [node]"
	return corev1.PodStatus{
		Phase: phase,
		Conditions: []corev1.PodCondition{
			cond(corev1.PodReadyToStartContainers, corev1.ConditionTrue, "", ""),
			cond(corev1.PodInitialized, corev1.ConditionTrue, "", ""),
			cond(corev1.PodReady, corev1.ConditionFalse, "ContainersNotReady", message),
			cond(corev1.ContainersReady, corev1.ConditionFalse, "ContainersNotReady", message),
			cond(corev1.PodScheduled, corev1.ConditionTrue, "", ""),
		},
		ContainerStatuses: containers,
	}
}

// unbound is the status of a pod without a node.
func unbound(reason, message string) corev1.PodStatus {
	return corev1.PodStatus{
		Phase:      corev1.PodPending,
		Conditions: []corev1.PodCondition{cond(corev1.PodScheduled, corev1.ConditionFalse, reason, message)},
	}
}

// failed is the status of a pod whose containers ended and are not restarted.
func failed(containers ...corev1.ContainerStatus) corev1.PodStatus {
	s := unready(corev1.PodFailed, containers...)
	s.Conditions[2].Reason, s.Conditions[3].Reason = "PodFailed", "PodFailed"
	return s
}

// disrupted is the status of a pod with the condition DisruptionTarget.
func disrupted(status corev1.PodStatus, reason, message string) corev1.PodStatus {
	status.Conditions = append(status.Conditions, cond(corev1.DisruptionTarget, corev1.ConditionTrue, reason, message))
	return status
}

// notReadyByNode is a running pod's status after its node stopped being ready. MarkPodsNotReady writes it.
func notReadyByNode() corev1.PodStatus {
	s := ready()
	s.Conditions[2].Status = corev1.ConditionFalse
	return s
}
