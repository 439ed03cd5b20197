// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package joblogs

import (
	"fmt"
	"slices"
	"strings"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
)

// run is one run of a container whose log is or was read.
type run struct {
	pod       *corev1.Pod
	container string
	// number is how often the container had been restarted in its pod.
	number int32
	// before are the JobSets of the attempts that the follower has left behind.
	before []string
}

func (r *run) isOf(pod *corev1.Pod) bool { return r != nil && r.pod.UID == pod.UID }

// nextRun returns the run whose log follows the log of the last run, or nil if this snapshot has none. If last is nil,
// it is the latest try of the node, and earlier tries are not read. container is the container that the user wants.
func nextRun(s *snapshot, of step, node int32, container string, last *run) (*run, error) {
	pods := nodePods(s, of)[node]
	if last == nil && len(pods) > 0 {
		pods = pods[len(pods)-1:]
	}
	for _, pod := range pods {
		if last != nil && !last.isOf(pod) && !last.precedes(s, pod) {
			continue
		}
		name, err := chooseContainer(pod, of, container)
		if err != nil {
			return nil, err
		}
		status := containerStatus(pod, name)
		if !hasLog(status) || last.isOf(pod) && status.RestartCount <= last.number {
			continue
		}
		next := &run{pod: pod, container: name, number: status.RestartCount}
		if last != nil {
			next.before = last.before
			if set := jobSetOf(last.pod); set != jobSetOf(pod) {
				next.before = append(slices.Clone(next.before), set)
			}
		}
		return next, nil
	}
	return nil, nil
}

// precedes says whether a pod is of the same try or of a later one. Two attempts on workers have JobSets of their own, and
// times of two clusters cannot be compared: the attempt that was not seen before is the later one.
func (r *run) precedes(s *snapshot, pod *corev1.Pod) bool {
	if set := jobSetOf(pod); s.elsewhere && set != jobSetOf(r.pod) {
		return !slices.Contains(r.before, set)
	}
	return compareTries(pod, r.pod) >= 0
}

func jobSetOf(pod *corev1.Pod) string { return pod.Labels[jobsetv1alpha2.JobSetUIDKey] }

// isOver says whether a node can have no more logs.
func isOver(s *snapshot, of step, node int32) bool {
	if s.job == nil || s.end() != nil {
		return true
	}
	// A step that has succeeded starts again only with the whole job. Nobody waits for hours for that.
	if !othersGoOn(s.steps(), of) {
		return false
	}
	pods := nodePods(s, of)[node]
	return len(pods) == 0 || pods[len(pods)-1].Status.Phase == corev1.PodSucceeded
}

// whyAgain says what has happened between two runs, and whether it has happened to all nodes.
func whyAgain(s *snapshot, of step, node int32, last, next *run) (text string, all bool) {
	restarts := restartAttempt(next.pod)
	switch {
	case last.isOf(next.pod):
		return fmt.Sprintf("container %q of pod %q has restarted%s", next.container, next.pod.Name, howItEnded(next)), false
	case s.elsewhere && jobSetOf(next.pod) != jobSetOf(last.pod):
		return fmt.Sprintf("TrainJob %q was started again on worker %q", s.job.GetName(), next.pod.Labels[v1alpha1.LabelCluster]), true
	case restarts > restartAttempt(last.pod):
		return fmt.Sprintf("TrainJob %q has restarted (restart %d)", s.job.GetName(), restarts), true
	default:
		return fmt.Sprintf("pod %q of step %s, node %d, was replaced by pod %q%s", last.pod.Name, of.name, node, next.pod.Name,
			howPodEnded(s, last)), false
	}
}

func howItEnded(next *run) string {
	status := containerStatus(next.pod, next.container)
	if status == nil || status.LastTerminationState.Terminated == nil {
		return ""
	}
	return exit(status.LastTerminationState.Terminated)
}

// howPodEnded says how a pod ended, which may be deleted by now.
func howPodEnded(s *snapshot, last *run) string {
	for _, pod := range s.pods {
		if status := containerStatus(pod, last.container); last.isOf(pod) && status != nil && status.State.Terminated != nil {
			return exit(status.State.Terminated)
		}
	}
	return ""
}

func exit(ended *corev1.ContainerStateTerminated) string {
	text := fmt.Sprintf(" (it had ended with exit code %d", ended.ExitCode)
	for _, more := range []string{ended.Reason, strings.TrimSpace(ended.Message)} {
		if more != "" && more != "Error" {
			text += ": " + more
		}
	}
	return text + ")"
}

// whatIsAwaited says what the first node without a log waits for. It is empty if all nodes have logs.
func whatIsAwaited(s *snapshot, of *step, nodes []int32, container string) string {
	if s.job == nil || s.end() != nil {
		return ""
	}
	if of == nil {
		return "waiting: " + whyNoPod(s, nil, 0)
	}
	if len(nodes) == 0 {
		return "waiting: " + whyNoPod(s, of, 0)
	}
	var first string
	others := -1
	pods := nodePods(s, *of)
	for _, node := range nodes {
		why := whyNodeWaits(s, *of, node, pods[node], container)
		if why == "" {
			continue
		}
		if first == "" {
			first = why
		}
		others++
	}
	for _, before := range of.unmet(s.steps()) {
		if why := whyStepWaits(s, before); why != "" {
			first += "; " + why
		}
	}
	switch {
	case first == "" || isOver(s, *of, nodes[0]):
		return ""
	case others == 0:
		return "waiting: " + first
	case others == 1:
		return fmt.Sprintf("waiting: %s; and one more node waits", first)
	default:
		return fmt.Sprintf("waiting: %s; and %d more nodes wait", first, others)
	}
}

// whyStepWaits says what the first pod of a step waits for, if it waits.
func whyStepWaits(s *snapshot, of step) string {
	pods := nodePods(s, of)
	for _, node := range allNodes(s, of) {
		if why := whyNodeWaits(s, of, node, pods[node], ""); why != "" && len(pods[node]) > 0 {
			return why
		}
	}
	return ""
}

// whyNodeWaits says why a node has no log yet. It is empty if the node has one.
func whyNodeWaits(s *snapshot, of step, node int32, pods []*corev1.Pod, container string) string {
	if len(pods) == 0 {
		return whyNoPod(s, &of, node)
	}
	pod := pods[len(pods)-1]
	name, err := chooseContainer(pod, of, container)
	if err != nil || hasLog(containerStatus(pod, name)) {
		return ""
	}
	return fmt.Sprintf("pod %q of step %s, node %d: %s", pod.Name, of.name, node, whyNoLog(pod, name))
}

// snapshot is what is known of a job at one moment.
type snapshot struct {
	// job is the TrainJob. nil: it was deleted.
	job *unstructured.Unstructured
	// typed is job in the Go type, without unknown fields.
	typed *trainer.TrainJob
	// jobSet is the JobSet of the job. nil: there is none, or the user may not read it.
	jobSet *jobsetv1alpha2.JobSet
	// jobSetDeleted is true if there is no JobSet and the user may read it.
	jobSetDeleted bool
	// pods are the pods of all steps, unsorted.
	pods []*corev1.Pod
	// elsewhere is true if the pods are on a worker.
	elsewhere bool
	// kept is true if the pods are gone, and their logs are in the log archive.
	kept bool
	// where says where the job is, if it is elsewhere and has no pods. placed is true if that is on a worker.
	where  string
	placed bool
	// now is the time of the snapshot, for ages.
	now time.Time
}

// newSnapshot leaves out the JobSet and the pods of an earlier job of the same name.
func newSnapshot(job *unstructured.Unstructured, jobSet *jobsetv1alpha2.JobSet, pods []*corev1.Pod, now time.Time) (*snapshot, error) {
	if job == nil {
		return &snapshot{now: now}, nil
	}
	typed, err := trainjobs.Typed(job)
	if err != nil {
		return nil, err
	}
	s := &snapshot{job: job, typed: typed, now: now}
	if jobSet != nil && metav1.IsControlledBy(jobSet, job) {
		s.jobSet = jobSet
	}
	created := job.GetCreationTimestamp()
	s.pods = slices.DeleteFunc(slices.Clone(pods), func(pod *corev1.Pod) bool { return pod.CreationTimestamp.Before(&created) })
	return s, nil
}

// newSnapshotElsewhere is for pods that a gateway shows: they are of the present attempt. Nobody needs the right to read a
// worker's JobSet, and the clock of the worker is not the hub's.
func newSnapshotElsewhere(job *unstructured.Unstructured, pods []*corev1.Pod, now time.Time) (*snapshot, error) {
	s, err := newSnapshot(job, nil, nil, now)
	if err == nil && job != nil {
		s.elsewhere, s.pods = true, pods
	}
	return s, err
}

// isHidden says whether the job's worker has reported that a step runs, and no pod is shown. Usually the worker does not
// answer, which the gateway says in a warning. The Dispatch says it only after the grace period of the worker.
func (s *snapshot) isHidden() bool {
	runs := func(one step) bool { return one.state == v1alpha1.StepRunning }
	return s.placed && len(s.pods) == 0 && slices.ContainsFunc(s.steps(), runs)
}

// isBetweenAttempts says whether nothing may be known of the job's steps because it has left a worker, and goes on.
func (s *snapshot) isBetweenAttempts() bool { return s.elsewhere && s.end() == nil }

// end returns the condition with which the job has ended, or nil.
func (s *snapshot) end() *metav1.Condition {
	if s.job == nil {
		return nil
	}
	return trainjobs.Terminal(s.job)
}
