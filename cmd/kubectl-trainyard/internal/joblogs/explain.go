// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/utils/ptr"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/dispatch/record"
)

const (
	// conditionResourcesCreated is one of the agent's extended conditions.
	conditionResourcesCreated = "ResourcesCreated"
	// controllerPatience is how long a controller may take to build a JobSet before a missing JobSet is reported.
	controllerPatience = 10 * time.Second
)

// whyNoPod says in one sentence why a step has no pod on a node. of is nil if no step is known.
func whyNoPod(s *snapshot, of *step, node int32) string {
	name := fmt.Sprintf("TrainJob %q", s.job.GetName())
	end := s.end()
	switch {
	case end != nil && of != nil && len(of.unmet(s.steps())) > 0:
		return fmt.Sprintf("%s %s, and step %s was never started", name, ended(end), of.name)
	case end != nil && s.kept && len(s.pods) == 0:
		return fmt.Sprintf("%s %s, and its pods are gone; the log archive has their logs: kubectl trainyard logs %s", name, ended(end), s.job.GetName())
	case end != nil && of == nil:
		return fmt.Sprintf("%s %s, and nothing is left of its pods%s", name, ended(end), jobSetToo(s))
	case end != nil:
		return fmt.Sprintf("%s %s, and the pod of step %s, node %d, is gone, and its log with it%s", name, ended(end), of.name, node, jobSetToo(s))
	case s.job.GetDeletionTimestamp() != nil:
		return name + " is being deleted, and has no pods any more"
	case trainjobs.Suspended(s.job):
		return name + " is suspended, so it has no pods" + howToResume(s)
	case of == nil && s.isHidden():
		return fmt.Sprintf("the pods of %s cannot be seen now: %s", name, s.where)
	case of == nil && s.elsewhere:
		return name + " has no pods yet: " + s.where
	case of == nil:
		return name + " has no JobSet yet" + whyNoJobSet(s)
	}
	if unmet := of.unmet(s.steps()); len(unmet) > 0 {
		return fmt.Sprintf("step %s of %s has not started: it waits for %s", of.name, name, strings.Join(stepNames(unmet), " and "))
	}
	if s.isHidden() {
		return fmt.Sprintf("the pod of step %s, node %d, of %s cannot be seen now: %s", of.name, node, name, s.where)
	}
	text := fmt.Sprintf("step %s of %s has no pod for node %d yet", of.name, name, node)
	if s.where != "" {
		text += ": " + s.where
	}
	return text
}

// noPod returns whyNoPod as an error, with a table of the steps if the job has several.
func noPod(s *snapshot, of *step, node int32) error {
	text := whyNoPod(s, of, node)
	if steps := s.steps(); len(steps) > 1 && !trainjobs.Suspended(s.job) {
		text += "\n" + stepTable(s, steps)
	}
	return fmt.Errorf("%s", text)
}

func stepTable(s *snapshot, steps []step) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, one := range steps {
		fmt.Fprintf(table, "  %s\t%s\n", one.name, stateOf(s, one))
	}
	_ = table.Flush() // A Builder accepts all writes.
	return strings.TrimSuffix(text.String(), "\n")
}

// ended says how a job has ended.
func ended(end *metav1.Condition) string {
	if end.Type == trainer.TrainJobComplete {
		return "is Complete"
	}
	return fmt.Sprintf("has failed (%s: %s)", end.Reason, end.Message)
}

func jobSetToo(s *snapshot) string {
	if s.jobSetDeleted {
		return ": its JobSet was deleted"
	}
	return ""
}

func howToResume(s *snapshot) string {
	if queue := s.job.GetLabels()[v1alpha1.LabelLocalQueue]; queue != "" { // Kueue suspends the jobs in its queues.
		return fmt.Sprintf("; it may be waiting in queue %q of Kueue: kubectl get workloads -n %s", queue, s.job.GetNamespace())
	}
	return fmt.Sprintf("; to resume it: kubectl patch trainjob %s -n %s --type=merge -p '{\"spec\":{\"suspend\":false}}'",
		s.job.GetName(), s.job.GetNamespace())
}

func whyNoJobSet(s *snapshot) string {
	created := meta.FindStatusCondition(s.typed.Status.Conditions, conditionResourcesCreated)
	if created != nil && created.Status == metav1.ConditionFalse {
		return fmt.Sprintf(" (%s: %s)", created.Reason, created.Message)
	}
	age := s.now.Sub(s.job.GetCreationTimestamp().Time)
	if age < controllerPatience {
		return fmt.Sprintf(": it was created %s ago", duration.HumanDuration(age))
	}
	return fmt.Sprintf(", %s after it was created; its events may say why (kubectl describe trainjob %s -n %s), "+
		"and if there are none: is a controller for TrainJobs running on this cluster?",
		duration.HumanDuration(age), s.job.GetName(), s.job.GetNamespace())
}

// stateOf returns the state of a step, and what its first pod waits for, if it waits.
func stateOf(s *snapshot, of step) string {
	if why := whyStepWaits(s, of); why != "" {
		return fmt.Sprintf("%s: %s", of.state, why)
	}
	return string(of.state)
}

// whyNoLog says why a container of a pod has not started.
func whyNoLog(pod *corev1.Pod, container string) string {
	for i := range pod.Status.Conditions {
		c := &pod.Status.Conditions[i]
		if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return whyNotScheduled(pod, c)
		}
	}
	switch {
	case pod.Status.Phase == corev1.PodFailed || pod.Status.Phase == corev1.PodSucceeded:
		return "it has ended without having started" + inBrackets(pod.Status.Reason, pod.Status.Message)
	case pod.DeletionTimestamp != nil:
		return "it is being deleted"
	case pod.Spec.NodeName == "":
		return "it is not scheduled yet"
	}
	if text := whatInitializes(pod); text != "" {
		return text
	}
	where := fmt.Sprintf("on node %q", pod.Spec.NodeName)
	status := containerStatus(pod, container)
	if status == nil || status.State.Waiting == nil || status.State.Waiting.Reason == "" {
		return "it has not started " + where
	}
	return fmt.Sprintf("container %q waits %s: %s", container, where, waiting(status.State.Waiting))
}

func whyNotScheduled(pod *corev1.Pod, c *corev1.PodCondition) string {
	if c.Reason == corev1.PodReasonSchedulingGated {
		var gates []string
		for _, gate := range pod.Spec.SchedulingGates {
			gates = append(gates, gate.Name)
		}
		return "it is not scheduled before these gates are taken off it: " + strings.Join(gates, ", ")
	}
	return "it cannot be scheduled: " + c.Message
}

// whatInitializes says which init container runs now, if one runs.
func whatInitializes(pod *corev1.Pod) string {
	for i := range pod.Status.InitContainerStatuses {
		status := &pod.Status.InitContainerStatuses[i]
		switch {
		case status.State.Waiting != nil && status.State.Waiting.Reason != "PodInitializing":
			return fmt.Sprintf("init container %q waits: %s", status.Name, waiting(status.State.Waiting))
		case status.State.Running != nil && !ptr.Deref(status.Started, false):
			return fmt.Sprintf("init container %q is running; its log: -c %s", status.Name, status.Name)
		case status.State.Terminated != nil && status.State.Terminated.ExitCode != 0:
			return fmt.Sprintf("init container %q has failed with exit code %d; its log: -c %s", status.Name, status.State.Terminated.ExitCode, status.Name)
		}
	}
	return ""
}

func waiting(state *corev1.ContainerStateWaiting) string {
	if state.Message == "" {
		return state.Reason
	}
	return state.Reason + ": " + state.Message
}

func inBrackets(reason, message string) string {
	switch {
	case reason == "" && message == "":
		return ""
	case reason == "" || message == "":
		return fmt.Sprintf(" (%s%s)", reason, message)
	default:
		return fmt.Sprintf(" (%s: %s)", reason, message)
	}
}

// othersGoOn says whether a step has succeeded but another step has not. Then the job continues.
func othersGoOn(steps []step, of step) bool {
	if of.state != v1alpha1.StepSucceeded {
		return false
	}
	for _, other := range steps {
		if other.state != v1alpha1.StepSucceeded {
			return true
		}
	}
	return false
}

var dispatches = v1alpha1.GroupVersion.WithResource("dispatches")

// notHere says where the pods of a job are, and why they cannot be reached from here.
func (r reader) notHere(ctx context.Context, job *unstructured.Unstructured, why error) error {
	dispatch, err := r.readDispatch(ctx)
	if err != nil {
		return err
	}
	text := fmt.Sprintf("TrainJob %q is managed by %q, so its pods are not on this cluster", job.GetName(), trainjobs.ManagedBy(job))
	switch {
	case dispatch == nil:
		return fmt.Errorf("%s, and %s; %w", text, whereItIs(nil), why)
	case dispatch.Spec.Cluster == "":
		return fmt.Errorf("%s: %s", text, whereItIs(dispatch))
	}
	return fmt.Errorf("%s: %s; %w\nWith rights on the worker, and its context in your kubeconfig:\n  kubectl trainyard logs %s --namespace %s --context CONTEXT",
		text, whereItIs(dispatch), why, r.job.Name, r.job.Namespace)
}

// readDispatch returns the Dispatch of the job, or nil.
func (r reader) readDispatch(ctx context.Context) (*v1alpha1.Dispatch, error) {
	object, err := r.get(ctx, dispatches)
	if apierrors.IsNotFound(err) || apierrors.IsForbidden(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("get Dispatch %q: %w", r.job.Name, err)
	}
	dispatch := &v1alpha1.Dispatch{}
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, dispatch); err != nil {
		return nil, fmt.Errorf("convert Dispatch %q: %w", r.job.Name, err)
	}
	return dispatch, nil
}

// whereItIs says where a job is that this cluster does not run. dispatch is nil if there is none, or the user may not read it.
func whereItIs(dispatch *v1alpha1.Dispatch) string {
	switch {
	case dispatch == nil:
		return "no Dispatch says where it is"
	case record.WasGivenUp(dispatch):
		return "it was given up, and has no pods: " + meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchPlaced).Message
	case dispatch.Spec.Cluster == "":
		text := "it waits for a worker"
		if placed := meta.FindStatusCondition(dispatch.Status.Conditions, v1alpha1.DispatchPlaced); placed != nil {
			text += fmt.Sprintf(" (%s: %s)", placed.Reason, placed.Message)
		}
		return text
	}
	switch record.AttemptOf(dispatch) {
	case record.Finished:
		return fmt.Sprintf("it has ended on worker %q", dispatch.Spec.Cluster)
	case record.Lost:
		return fmt.Sprintf("it is on worker %q, which does not answer", dispatch.Spec.Cluster)
	default:
		return fmt.Sprintf("it is on worker %q", dispatch.Spec.Cluster)
	}
}
