// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"time"

	"github.com/hashicorp/go-multierror"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
)

// Reasons of a Trouble, the worst first: what explains others stands before them. A lost node makes the pods on other nodes
// crash; an image or a Secret that is not there keeps a pod from starting, and its peers may crash because it does not answer.
const (
	// NodeLost: a pod's node is not ready, is shutting down, takes no pods any more, or is gone.
	NodeLost = "NodeLost"
	// Evicted: a pod was taken from its node: preempted, evicted through the API, or because the node ran out of something.
	Evicted = "Evicted"
	// ImagePullFailed: a node cannot get an image.
	ImagePullFailed = "ImagePullFailed"
	// ContainerConfigError: a container's configuration cannot be made, as when a Secret or ConfigMap does not exist.
	ContainerConfigError = "ContainerConfigError"
	// ContainerStartFailed: a container cannot be created or started, as when its command does not exist in the image.
	ContainerStartFailed = "ContainerStartFailed"
	// CrashLoop: a container, or one pod after another in the same place, ends again and again.
	CrashLoop = "CrashLoop"
	// Unschedulable: the scheduler has found no node for a pod for some time.
	Unschedulable = "Unschedulable"
	// NoPodReady: no pod is ready, and none has been for some time.
	NoPodReady = "NoPodReady"
	// NoProgress: pods run, and a job that reports its progress has not reported any for some time.
	NoProgress = "NoProgress"
)

// settle is how long a container that has crashed too often has to run, before it counts as well. The kubelet forgets its
// back-off after the same time, twice its longest one. It has to be longer than the longest back-off (5 min).
const settle = 10 * time.Minute

// Trouble is one thing that keeps a job from getting on, in words for its owner.
type Trouble struct {
	// Reason is one of the package's constants.
	Reason string
	// Message names pod, node and cause. It has no times and no counters, and is the same as long as the trouble is.
	Message string
}

// Limits say when something is a trouble. A limit of 0 switches its check off.
type Limits struct {
	// NoPodReady is how long a job may be without a pod that is ready or has succeeded.
	NoPodReady time.Duration
	// NoProgress is how long a job that reports its progress may be silent while its pods run.
	NoProgress time.Duration
	// Unschedulable is how long a pod may be without a node after the scheduler has found none.
	Unschedulable time.Duration
	// CrashLoops is how often what runs in one place of a job may end and be started again: this often is a crash loop.
	CrashLoops int32
}

// DefaultLimits are for jobs whose images have many gigabytes (15 minutes without a ready pod), on clusters whose nodes are made
// on demand (5 minutes without a node), and which tell of themselves at least once an evaluation (30 minutes without a report).
// Three restarts are a crash loop: the first ones are often a worker that was faster than the one it wants to talk to.
func DefaultLimits() Limits {
	return Limits{NoPodReady: 15 * time.Minute, NoProgress: 30 * time.Minute, Unschedulable: 5 * time.Minute, CrashLoops: 3}
}

// Validate returns an error that has all limits below zero.
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

// Input is what is known of a job whose JobSet is meant to run.
type Input struct {
	// Pods of the job's JobSet, in any order, stripped or not. They are only read.
	Pods []*corev1.Pod
	// Since is since when the present attempt is meant to run, by the caller's clock. It stays the same within an attempt. While
	// it is zero, nothing is a trouble because of time alone.
	Since time.Time
	// Progress is nil for a job that reports none. Its times are another machine's and are not compared with the caller's.
	Progress *trainer.TrainerStatus
	// ProgressSeen is when the caller saw Progress change last. Zero: not since Since. Memory.Observe sets it.
	ProgressSeen time.Time
	// Seen is what else the caller saw and when. Memory.Observe sets it.
	Seen Seen
}

// Seen is what one process has seen of a job, by its own clock. The zero value means that it has seen nothing change, so that
// everything is counted from Input.Since.
type Seen struct {
	// Idle is since when no pod was ready and none was gated.
	Idle time.Time
	// Unscheduled is since when there were pods for which the scheduler had found no node.
	Unscheduled time.Time
	// Running is since when there were pods that ran.
	Running time.Time
	// Crash is when the number of crashes grew last.
	Crash time.Time
}

// Diagnose returns the worst trouble or nil, and how long until time alone can change the answer (0: never). It depends on its
// arguments only, and not on the order of the pods.
func Diagnose(in Input, limits Limits, now time.Time) (*Trouble, time.Duration) {
	d := diagnosis{in: in, limits: limits, now: now, places: survey(in.Pods)}
	var recheck time.Duration
	for _, check := range []func(diagnosis) (*Trouble, time.Duration){
		diagnosis.ownTroubles, diagnosis.crashLoop, diagnosis.unschedulable, diagnosis.noPodReady, diagnosis.noProgress,
	} {
		trouble, wait := check(d)
		if wait > 0 && (recheck == 0 || wait < recheck) {
			recheck = wait
		}
		if trouble != nil {
			return trouble, recheck // Lesser troubles that time would bring do not change the answer.
		}
	}
	return nil, recheck
}

// diagnosis is what the checks look at. Each returns its trouble, and how long until time alone can change what it returns.
type diagnosis struct {
	in     Input
	limits Limits
	now    time.Time
	places []place
}

// ownTroubles are those that a pod shows without regard to time and to other pods.
func (d diagnosis) ownTroubles() (*Trouble, time.Duration) {
	for _, reason := range []string{NodeLost, Evicted, ImagePullFailed, ContainerConfigError, ContainerStartFailed} {
		t := d.first(reason, func(p place) string {
			if p.current.own.Reason == reason {
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

// crashLoop looks for places in which too much has ended. What runs again has to run for some time before it is believed:
// CrashLoopBackOff alternates with a container that runs, and so would the answer.
func (d diagnosis) crashLoop() (*Trouble, time.Duration) {
	if d.limits.CrashLoops == 0 {
		return nil, 0
	}
	left := time.Duration(0)
	if !d.in.Seen.Crash.IsZero() {
		left = max(0, d.in.Seen.Crash.Add(settle).Sub(d.now))
	}
	var wait time.Duration
	t := d.first(CrashLoop, func(p place) string {
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
	t := d.first(Unschedulable, func(p place) string {
		if p.current.unschedulable != "" {
			return "no node for it: " + p.current.unschedulable
		}
		return ""
	})
	return d.after(t, d.limits.Unschedulable, d.in.Seen.Unscheduled)
}

// noPodReady is no trouble of a job that has a gated pod: whoever has put the gate there will open it when it is time.
func (d diagnosis) noPodReady() (*Trouble, time.Duration) {
	if !idle(d.places) {
		return nil, 0
	}
	t := d.first(NoPodReady, func(p place) string { return "no pod is ready; this one " + p.current.waits })
	if t == nil {
		t = &Trouble{NoPodReady, "no pod exists; the Events of the JobSet and its Jobs can say why"}
	}
	return d.after(t, d.limits.NoPodReady, d.in.Seen.Idle)
}

func (d diagnosis) noProgress() (*Trouble, time.Duration) {
	if d.in.Progress == nil || !running(d.places) {
		return nil, 0
	}
	message := fmt.Sprintf("pods run, and no progress has been reported for %s", d.limits.NoProgress)
	return d.after(&Trouble{NoProgress, message}, d.limits.NoProgress, d.in.ProgressSeen, d.in.Seen.Running)
}

// first returns a trouble of the first place for which words returns any, and says if it has it in common with others. How many
// they are is not said: a number would change with each of them.
func (d diagnosis) first(reason string, words func(place) string) *Trouble {
	var found *place
	var text, others string
	for i, p := range d.places {
		w := words(p)
		switch {
		case w == "":
		case found == nil:
			found, text = &d.places[i], w
		default:
			others = " and others"
		}
	}
	if found == nil {
		return nil
	}
	return &Trouble{Reason: reason, Message: found.current.String() + others + ": " + text}
}

// after returns the trouble if it has lasted for the limit since the latest of these times and the attempt's start.
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
