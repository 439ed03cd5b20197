// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/hashicorp/go-multierror"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// Reasons of a Trouble, the worst first. A reason that explains others stands before them: a lost node makes pods on
// other nodes crash. A missing image or Secret keeps a pod from starting, and its peers may crash without it.
const (
	// NodeLost: a pod's node is not ready, is shutting down, accepts no pods any more, or does not exist any more.
	NodeLost = "NodeLost"
	// Evicted: a pod was preempted, evicted through the API, or evicted because the node ran out of a resource.
	Evicted = "Evicted"
	// ImagePullFailed: a node cannot get an image.
	ImagePullFailed = "ImagePullFailed"
	// ContainerConfigError: a container's configuration is not possible, for example because a Secret does not exist.
	ContainerConfigError = "ContainerConfigError"
	// ContainerStartFailed: a container cannot be created or started, for example because the image lacks its command.
	ContainerStartFailed = "ContainerStartFailed"
	// CrashLoop: a container, or one pod after the other in the same slot, ends again and again.
	CrashLoop = "CrashLoop"
	// Unschedulable: the scheduler has found no node for a pod for some time.
	Unschedulable = v1alpha1.ReasonUnschedulable
	// NoPodReady: no pod has been ready for some time.
	NoPodReady = "NoPodReady"
	// NoProgress: pods run, but a job that reports its progress has reported none for some time.
	NoProgress = "NoProgress"
)

// kind is a kind of trouble.
type kind struct {
	reason string
	// advice says what the owner of the job, or the admin of the worker, can do. JOB stands for the name of the job.
	advice string
	// waiting are the reasons with which a kubelet says of a waiting container that it has this trouble. Its constants are
	// errors of internal packages. words say it of the container.
	waiting []string
	words   func(*corev1.ContainerStatus) string
}

// kinds are all kinds of trouble, the worst first.
var kinds = []kind{
	{
		reason: NodeLost,
		advice: "nothing: Kubernetes starts the pod on another node when the node is known to be gone; to move the job at once, " +
			"drain the worker or delete the Dispatch",
	},
	{
		reason: Evicted,
		advice: "give the pods of the job a priority and requests that the node can keep; Kubernetes starts the pod again",
	},
	{
		reason: ImagePullFailed,
		advice: "check the name of the image, that the worker's nodes reach its registry, and that the namespace of the job on the " +
			"worker has the pull Secret (Secrets are not copied there)",
		waiting: []string{
			"ErrImagePull", "ImagePullBackOff", // These two alternate.
			"ErrImageNeverPull", "InvalidImageName", "ImageInspectError", "RegistryUnavailable", "SignatureValidationFailed",
		},
		words: func(s *corev1.ContainerStatus) string {
			return fmt.Sprintf("container %q does not get its image %q", s.Name, s.Image)
		},
	},
	{
		reason:  ContainerConfigError,
		advice:  "create what is missing in the namespace of the job on the worker: Secrets and ConfigMaps are not copied there",
		waiting: []string{"CreateContainerConfigError"},
		words: func(s *corev1.ContainerStatus) string {
			return fmt.Sprintf("container %q cannot be configured", s.Name)
		},
	},
	{
		reason: ContainerStartFailed,
		advice: "check the command and the arguments of the container, and that the image has them",
		// RunContainerError alternates with CrashLoopBackOff after StartError.
		waiting: []string{"CreateContainerError", "RunContainerError", "PreCreateHookError", "PreStartHookError", "PostStartHookError"},
		words:   startFailed,
	},
	{reason: CrashLoop, advice: "read what the container wrote: kubectl trainyard logs JOB --previous"},
	{
		reason: Unschedulable,
		advice: "the worker has not added the nodes that the decision names, or the nodes have changed since the job was placed, or have " +
			"taints, labels or limits that the hub does not know; set admissionTimeout in the job's policy to have the job moved",
	},
	{
		reason: NoPodReady,
		advice: "correct what the message names, for instance a volume or a quota; if it names nothing, the Events of the JobSet and its " +
			"pods on the worker have been forgotten: look at the logs of its controllers",
	},
	{reason: NoProgress, advice: "read what the containers write: kubectl trainyard logs JOB"},
}

// rank is the index of a reason among kinds, -1 for another reason.
func rank(reason string) int {
	return slices.IndexFunc(kinds, func(k kind) bool { return k.reason == reason })
}

// IsReason is true for the reasons of a Trouble.
func IsReason(reason string) bool { return rank(reason) >= 0 }

// Advice says what to do about a trouble of a job, empty for another reason.
func Advice(reason, job string) string {
	if i := rank(reason); i >= 0 {
		return strings.ReplaceAll(kinds[i].advice, "JOB", job)
	}
	return ""
}

// settle is how long a container that has crashed too often must run before it counts as well. After the same time,
// twice its longest back-off, the kubelet resets its back-off. settle must be longer than that back-off (5 min).
const settle = 10 * time.Minute

// Trouble is one thing that keeps a job from making progress, described for the job's owner.
type Trouble struct {
	// Reason is one of the package's constants.
	Reason string
	// Message names pod, node and cause. It has no times and no counters, and stays the same while the trouble does.
	Message string
}

// Limits say when a state counts as a trouble. A limit of 0 switches its check off.
type Limits struct {
	// NoPodReady is how long a job may be without a pod that is ready or has succeeded.
	NoPodReady time.Duration
	// NoProgress is how long a job that reports its progress may report none while its pods run.
	NoProgress time.Duration
	// Unschedulable is how long a pod may be without a node after the scheduler has found none.
	Unschedulable time.Duration
	// CrashLoops is how many ends in one slot of a job count as a crash loop.
	CrashLoops int32
}

// DefaultLimits allow images of many gigabytes (15 minutes without a ready pod), nodes that are created on demand (5
// minutes without a node), and one report per evaluation (30 minutes without a report). Three restarts are a crash
// loop: often the first restarts only mean that a pod started before its peer.
func DefaultLimits() Limits {
	return Limits{NoPodReady: 15 * time.Minute, NoProgress: 30 * time.Minute, Unschedulable: 5 * time.Minute, CrashLoops: 3}
}

// Validate returns an error that lists all limits below zero.
func (l Limits) Validate() error {
	var faults *multierror.Error
	if l.CrashLoops < 0 {
		faults = multierror.Append(faults, fmt.Errorf("limit CrashLoops is %d, must not be negative", l.CrashLoops))
	}
	for _, limit := range []struct {
		name  string
		value time.Duration
	}{{"NoPodReady", l.NoPodReady}, {"NoProgress", l.NoProgress}, {"Unschedulable", l.Unschedulable}} {
		if limit.value < 0 {
			faults = multierror.Append(faults, fmt.Errorf("limit %s is %s, must not be negative", limit.name, limit.value))
		}
	}
	return faults.ErrorOrNil()
}

// Input is the known state of a job whose JobSet is meant to run.
type Input struct {
	// Pods of the job's JobSet, in any order, stripped or not. Diagnose only reads them.
	Pods []*corev1.Pod
	// Since is when the present attempt began, by the caller's clock. While it is zero, time alone causes no trouble.
	Since time.Time
	// Progress is nil if the job reports none. Its times come from another clock and are not compared with the caller's.
	Progress *trainer.TrainerStatus
	// ProgressSeen is when the caller last saw Progress change. Zero: not since Since. Jobs.Observe sets it.
	ProgressSeen time.Time
	// Seen is what else the caller has seen, and when. Jobs.Observe sets it.
	Seen Seen
	// Warning is what an Event says about why no pod is ready, if the caller has asked WarningOf. It only counts for
	// words.
	Warning string
}

// Seen is what one process has seen of a job, by its own clock. Zero: no change, and limits count from Input.Since.
type Seen struct {
	// Idle is when the job last began to have no ready and no gated pod.
	Idle time.Time
	// Unscheduled is when the job last began to have pods for which the scheduler found no node.
	Unscheduled time.Time
	// Running is when the job last began to have running pods.
	Running time.Time
	// Crash is when the number of crashes last grew.
	Crash time.Time
}

// Diagnose returns the worst trouble or nil, and after what time the answer can change without an event (0: never). It
// depends only on its arguments, and not on the order of the pods.
func Diagnose(in Input, limits Limits, now time.Time) (*Trouble, time.Duration) {
	d := diagnosis{in: in, limits: limits, now: now, slots: survey(in.Pods)}
	var recheck time.Duration
	for _, check := range []func(diagnosis) (*Trouble, time.Duration){
		diagnosis.ownTroubles, diagnosis.crashLoop, diagnosis.unschedulable, diagnosis.noPodReady, diagnosis.noProgress,
	} {
		trouble, wait := check(d)
		if wait > 0 && (recheck == 0 || wait < recheck) {
			recheck = wait
		}
		if trouble != nil {
			return trouble, recheck // Time can only bring lesser troubles.
		}
	}
	return nil, recheck
}

// diagnosis is the input of the checks. A check returns its trouble, and when its answer can change without an event.
type diagnosis struct {
	in     Input
	limits Limits
	now    time.Time
	slots  []slot
}

// ownTroubles checks what a pod shows by itself, without time and other pods.
func (d diagnosis) ownTroubles() (*Trouble, time.Duration) {
	for _, k := range kinds {
		t := d.first(k.reason, func(p slot) string {
			if p.current.own.Reason == k.reason {
				return p.current.own.Message
			}
			return ""
		})
		if t != nil {
			return t, 0
		}
	}
	return nil, 0
}

// crashLoop checks for slots with too many ends. A container that runs again must run for settle before it counts as
// well: CrashLoopBackOff alternates with a running container, and the answer must not alternate.
func (d diagnosis) crashLoop() (*Trouble, time.Duration) {
	if d.limits.CrashLoops == 0 {
		return nil, 0
	}
	left := time.Duration(0)
	if !d.in.Seen.Crash.IsZero() {
		left = max(0, d.in.Seen.Crash.Add(settle).Sub(d.now))
	}
	var wait time.Duration
	t := d.first(CrashLoop, func(p slot) string {
		switch {
		case p.crashes < d.limits.CrashLoops || p.current.going || p.current.phase == corev1.PodSucceeded:
			return ""
		case p.current.crashing:
			return p.crash
		case left > 0:
			wait = left
			return p.crash
		}
		return ""
	})
	return t, wait
}

func (d diagnosis) unschedulable() (*Trouble, time.Duration) {
	t := d.first(Unschedulable, func(p slot) string {
		if p.current.unschedulable != "" {
			return "no node for it: " + p.current.unschedulable
		}
		return ""
	})
	return d.after(t, d.limits.Unschedulable, d.in.Seen.Unscheduled)
}

// noPodReady returns no trouble if a pod has a gate: whoever set the gate will open it.
func (d diagnosis) noPodReady() (*Trouble, time.Duration) {
	if !idle(d.slots) {
		return nil, 0
	}
	t := d.first(NoPodReady, func(p slot) string { return "no pod is ready; this one " + p.current.waits })
	if t == nil {
		t = &Trouble{NoPodReady, "no pod exists"}
	}
	if d.in.Warning != "" {
		t.Message += "; " + d.in.Warning
	}
	return d.after(t, d.limits.NoPodReady, d.in.Seen.Idle)
}

func (d diagnosis) noProgress() (*Trouble, time.Duration) {
	if d.in.Progress == nil || !running(d.slots) {
		return nil, 0
	}
	message := fmt.Sprintf("pods run, and no progress has been reported for %s", d.limits.NoProgress)
	return d.after(&Trouble{NoProgress, message}, d.limits.NoProgress, d.in.ProgressSeen, d.in.Seen.Running)
}

// first returns a trouble of the first slot for which words returns a text. It says if other slots have the trouble
// too, but not how many: the number would change often.
func (d diagnosis) first(reason string, words func(slot) string) *Trouble {
	var found *slot
	var text, others string
	for i, p := range d.slots {
		w := words(p)
		switch {
		case w == "":
		case found == nil:
			found, text = &d.slots[i], w
		default:
			others = " and others"
		}
	}
	if found == nil {
		return nil
	}
	return &Trouble{Reason: reason, Message: found.current.String() + others + ": " + text}
}

// after returns the trouble if it has lasted for the limit since the attempt's start and each of these times.
func (d diagnosis) after(t *Trouble, limit time.Duration, seen ...time.Time) (*Trouble, time.Duration) {
	if t == nil || limit == 0 {
		return nil, 0
	}
	start := d.in.Since
	for _, s := range seen {
		if s.After(start) {
			start = s
		}
	}
	if start.IsZero() {
		return nil, 0
	}
	if left := start.Add(limit).Sub(d.now); left > 0 {
		return nil, left
	}
	return t, 0
}
