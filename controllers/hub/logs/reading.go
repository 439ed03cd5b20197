// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package logs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/logarchive"
)

const (
	// attemptTimeout is how long the logs of one attempt may take that has ended.
	attemptTimeout = 10 * time.Minute
	// graceMargin is how much longer than the pods' own time to end their logs are followed.
	graceMargin = 30 * time.Second
	// pageSize is how many pods are listed at a time.
	pageSize = 250
	// maxLogs is of how many containers of an attempt logs are kept.
	maxLogs = 10_000
)

func newJobSet() *unstructured.Unstructured {
	set := &unstructured.Unstructured{}
	set.SetGroupVersionKind(jobsetv1alpha2.SchemeGroupVersion.WithKind("JobSet"))
	return set
}

// reading reads the logs of one attempt, in one round, or in several while pods go on.
type reading struct {
	*Reconciler
	index   *logarchive.Index
	copyUID types.UID
	// following says that the pods are to end, and that their logs are followed.
	following bool
	// complete is true after a round in which all logs were read to their end.
	complete bool
}

// source is a log of a container.
type source struct {
	pod *corev1.Pod
	logarchive.Container
	// runs is true if the container may print more.
	runs bool
}

// round reads all logs that the pods have now. What an earlier round has read stays where this one reads nothing.
func (r *reading) round(ctx context.Context) error {
	worker, err := r.client(ctx)
	if err != nil {
		return err
	}
	set, err := r.jobSet(ctx, r.index.Attempt, r.copyUID)
	if err != nil {
		if errors.Is(err, errNoJobSet) && !r.following {
			r.index.Missing = err.Error()
			return nil
		}
		return err
	}
	pods, err := r.pods(ctx, worker, set)
	if err != nil {
		return err
	}
	r.index.Missing = ""
	if len(pods) == 0 && len(r.index.Pods) == 0 && !r.following {
		r.index.Missing = "the copy had no pods any more when its logs were to be read"
	}
	logs := logsOf(pods)
	if len(logs) > maxLogs {
		r.index.Missing = fmt.Sprintf("of %d logs of the attempt only %d are kept", len(logs), maxLogs)
		logs = logs[:maxLogs]
	}
	ctx, cancel := context.WithTimeout(ctx, r.timeout(pods))
	defer cancel()
	var all sync.WaitGroup
	ended := make([]bool, len(logs))
	for i := range logs {
		all.Go(func() { ended[i] = r.one(ctx, worker, &logs[i]) })
	}
	all.Wait()
	r.complete = !slices.Contains(ended, false)
	r.merge(logs)
	return nil
}

// timeout is how long a round may take.
func (r *reading) timeout(pods []corev1.Pod) time.Duration {
	if !r.following {
		return attemptTimeout
	}
	grace := time.Duration(0)
	for i := range pods {
		seconds := ptr.Deref(pods[i].Spec.TerminationGracePeriodSeconds, corev1.DefaultTerminationGracePeriodSeconds)
		grace = max(grace, time.Duration(max(0, min(seconds, int64(attemptTimeout/time.Second))))*time.Second)
	}
	return min(grace+graceMargin, attemptTimeout)
}

// pods lists the pods of a JobSet whose names are those of its job.
func (r *reading) pods(ctx context.Context, worker kubernetes.Interface, set types.UID) (pods []corev1.Pod, err error) {
	options := metav1.ListOptions{
		LabelSelector: labels.Set{
			jobsetv1alpha2.JobSetNameKey: r.index.Job, jobsetv1alpha2.JobSetUIDKey: string(set),
		}.String(),
		Limit: pageSize,
	}
	for {
		page, err := worker.CoreV1().Pods(r.index.Namespace).List(ctx, options)
		if err != nil {
			return nil, fmt.Errorf("list the pods of a copy on worker %q: %w", r.Cluster, err)
		}
		for i := range page.Items {
			if r.index.Owns(page.Items[i].Name) {
				pods = append(pods, page.Items[i])
			}
		}
		if options.Continue = page.Continue; options.Continue == "" || len(pods) >= maxLogs {
			return pods, nil
		}
	}
}

// logsOf returns the logs of pods: of the first pod of each step first, because it prints most.
func logsOf(pods []corev1.Pod) (logs []source) {
	slices.SortFunc(pods, func(x, y corev1.Pod) int {
		return cmp.Or(cmp.Compare(len(indexOf(&x)), len(indexOf(&y))), cmp.Compare(indexOf(&x), indexOf(&y)), cmp.Compare(x.Name, y.Name))
	})
	for i := range pods {
		pod := &pods[i]
		for _, c := range pod.Spec.InitContainers {
			logs = append(logs, logsOfContainer(pod, c.Name, pod.Status.InitContainerStatuses, true)...)
		}
		for _, c := range pod.Spec.Containers {
			logs = append(logs, logsOfContainer(pod, c.Name, pod.Status.ContainerStatuses, false)...)
		}
	}
	return logs
}

// labelIndex is the label with the number of a pod in its Job.
const labelIndex = batchv1.JobCompletionIndexAnnotation

func indexOf(pod *corev1.Pod) string {
	return pod.Labels[labelIndex]
}

func logsOfContainer(pod *corev1.Pod, name string, statuses []corev1.ContainerStatus, init bool) (logs []source) {
	now := source{pod: pod, Container: logarchive.Container{Name: name, Init: init}}
	at := slices.IndexFunc(statuses, func(s corev1.ContainerStatus) bool { return s.Name == name })
	if at < 0 {
		now.Missing = notStarted
		return []source{now}
	}
	state, last := statuses[at].State, statuses[at].LastTerminationState
	if state.Running == nil && state.Terminated == nil && last.Terminated == nil {
		now.Missing = notStarted
		return []source{now}
	}
	now.runs = state.Terminated == nil
	logs = append(logs, now)
	if last.Terminated != nil && statuses[at].RestartCount > 0 {
		logs = append(logs, source{pod: pod, Container: logarchive.Container{Name: name, Init: init, Previous: true}})
	}
	return logs
}

// notStarted says that there is no log.
const notStarted = "the container had not started"

// shown are the labels of pods by which clients find the pods of a job and of its steps.
var shown = []string{
	jobsetv1alpha2.JobSetNameKey, jobsetv1alpha2.JobSetUIDKey, jobsetv1alpha2.ReplicatedJobNameKey,
	jobsetv1alpha2.JobIndexKey, labelIndex,
}

// describe takes over what clients need to read the logs of a pod.
func describe(p *logarchive.Pod, pod *corev1.Pod) {
	p.Name, p.UID, p.Created, p.Node, p.Phase = pod.Name, pod.UID, pod.CreationTimestamp, pod.Spec.NodeName, pod.Status.Phase
	p.DefaultContainer = pod.Annotations[logarchive.AnnotationDefaultContainer]
	p.Labels = map[string]string{}
	for _, key := range shown {
		if value, has := pod.Labels[key]; has {
			p.Labels[key] = value
		}
	}
}

// merge brings what a round has found into the index.
func (r *reading) merge(logs []source) {
	for i := range logs {
		name := logs[i].pod.Name
		at := slices.IndexFunc(r.index.Pods, func(p logarchive.Pod) bool { return p.Name == name })
		if at < 0 {
			r.index.Pods = append(r.index.Pods, logarchive.Pod{})
			at = len(r.index.Pods) - 1
		}
		p := &r.index.Pods[at]
		describe(p, logs[i].pod)
		switch known := p.Log(logs[i].Name, logs[i].Previous); {
		case known == nil:
			p.Containers = append(p.Containers, logs[i].Container)
		case logs[i].Missing == "" || known.Missing != "":
			*known = logs[i].Container
		}
	}
}
