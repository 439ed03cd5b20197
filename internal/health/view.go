// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"fmt"
	"strconv"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobset "sigs.k8s.io/jobset/pkg/constants"

	"github.com/trainyard/trainyard/api/trainjobs"
)

// view is all that this package reads of one pod. It changes only when the state does. Diagnose, Cause and Jobs read
// nothing else, so pods with equal views are equal for them. Changed and Strip depend on this.
type view struct {
	name, node          string
	position            position
	attempt, jobAttempt int
	created             int64 // by the API server's clock; not compared with other clocks

	phase corev1.PodPhase
	going bool // it is being deleted
	ready bool // or has succeeded
	gated bool

	own           Trouble // the trouble that the pod shows by itself
	crashes       int32   // restarts of its containers, and 1 more if it failed by itself
	crashing      bool    // one of the crashed containers does not run now
	crash         string  // describes the last end of a crashed container
	unschedulable string  // the scheduler's message; "": none
	waits         string  // what the pod waits for, if it is not ready
	failure       failure // why the pod failed, if it has
}

func viewOf(pod *corev1.Pod) view {
	v := view{
		name:       pod.Name,
		node:       pod.Spec.NodeName,
		position:   positionOf(pod),
		attempt:    number(pod.Labels[jobset.RestartsKey], 0),
		jobAttempt: number(pod.Labels[jobset.JobRestartAttemptKey], 0),
		created:    pod.CreationTimestamp.Unix(),
		phase:      pod.Status.Phase,
		going:      pod.DeletionTimestamp != nil,
		ready:      pod.Status.Phase == corev1.PodSucceeded || is(pod, corev1.PodReady, corev1.ConditionTrue),
	}
	if pod.Status.Phase == corev1.PodSucceeded {
		return v
	}
	v.own = disruption(pod)
	v.readContainers(pod)
	v.readScheduling(pod)
	if !v.ready {
		v.waits = v.waitsFor(pod)
	}
	v.failure = failureOf(pod, v)
	return v
}

func (v *view) readContainers(pod *corev1.Pod) {
	disrupted := v.own.Reason != ""
	if pod.Status.Phase == corev1.PodFailed {
		if !disrupted && !v.going {
			v.crashes, v.crashing, v.crash = restarts(pod)+1, true, endOf(pod)
		}
		return
	}
	if v.going {
		return // The pod is being deleted, so its containers are no trouble.
	}
	if !disrupted {
		v.own = containerTrouble(pod)
	}
	v.crashes, v.crash = restarts(pod), crashOf(pod)
	v.crashing = v.crashes > 0 && someRestartedDoesNotRun(pod)
}

func (v *view) readScheduling(pod *corev1.Pod) {
	c := condition(pod, corev1.PodScheduled)
	if c == nil || c.Status == corev1.ConditionTrue || v.going || v.node != "" || v.phase == corev1.PodFailed {
		return
	}
	if v.gated = c.Reason == corev1.PodReasonSchedulingGated; !v.gated {
		v.unschedulable = schedulerWords(c.Reason, c.Message)
	}
}

// waitsFor says why a pod that has not ended is not ready.
func (v *view) waitsFor(pod *corev1.Pod) string {
	switch {
	case v.own.Message != "":
		return "does not start: " + v.own.Message
	case v.phase == corev1.PodFailed:
		return "has failed: " + endOf(pod)
	case v.going:
		return "is being deleted"
	case v.unschedulable != "":
		return "has no node: " + v.unschedulable
	case v.node == "":
		return "has no node yet"
	case v.crashing:
		return "does not stay up: " + v.crash
	case is(pod, corev1.PodReadyToStartContainers, corev1.ConditionFalse):
		return "waits for its volumes or its network"
	}
	return containerWaits(pod)
}

// String names the pod, its slot in the job and its node.
func (v view) String() string {
	slot := v.position.step
	if v.position.job > 0 {
		slot += fmt.Sprintf(" %d/", v.position.job)
	} else if v.position.index >= 0 {
		slot += " "
	}
	if v.position.index >= 0 {
		slot += strconv.Itoa(v.position.index)
	}
	text := "pod " + v.name
	if slot != "" {
		text += " (" + slot + ")"
	}
	if v.node != "" {
		text += " on node " + v.node
	}
	return text
}

// liveness orders pods of one slot that were created in the same second: a live pod has replaced a pod that ended.
func (v view) liveness() int {
	switch {
	case v.phase == corev1.PodFailed:
		return 0
	case v.going:
		return 1
	}
	return 2
}

func positionOf(pod *corev1.Pod) position {
	p := position{
		step:  trainjobs.StepName(pod.Labels[jobsetv1alpha2.ReplicatedJobNameKey]),
		job:   number(pod.Labels[jobsetv1alpha2.JobIndexKey], 0),
		index: number(pod.Labels[batchv1.JobCompletionIndexAnnotation], -1),
	}
	if p.index < 0 {
		p.name = pod.Name
	}
	return p
}

func number(label string, otherwise int) int {
	if n, err := strconv.Atoi(label); err == nil && n >= 0 {
		return n
	}
	return otherwise
}

func condition(pod *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range pod.Status.Conditions {
		if pod.Status.Conditions[i].Type == t {
			return &pod.Status.Conditions[i]
		}
	}
	return nil
}

func is(pod *corev1.Pod, t corev1.PodConditionType, status corev1.ConditionStatus) bool {
	c := condition(pod, t)
	return c != nil && c.Status == status
}
