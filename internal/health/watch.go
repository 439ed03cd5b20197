// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package health

import (
	"context"
	"fmt"
	"slices"
	"strings"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/selection"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	jobset "sigs.k8s.io/jobset/pkg/constants"
)

// JobSetIndex is the index that List needs: IndexField(ctx, &corev1.Pod{}, JobSetIndex, IndexByJobSet).
const JobSetIndex = "trainyard.dev/jobset"

// IndexByJobSet returns the name of a pod's JobSet.
func IndexByJobSet(pod client.Object) []string {
	if name := pod.GetLabels()[jobsetv1alpha2.JobSetNameKey]; name != "" {
		return []string{name}
	}
	return nil
}

// Selector selects the pods of JobSets. A cache needs no other pods.
func Selector() labels.Selector {
	exists, err := labels.NewRequirement(jobsetv1alpha2.JobSetNameKey, selection.Exists, nil)
	if err != nil {
		panic(err) // a bug: the constant is a valid label
	}
	return labels.NewSelector().Add(*exists)
}

// JobSetOf returns the key of a pod's JobSet, which is also the key of its TrainJob. false: the pod has no JobSet.
func JobSetOf(pod client.Object) (types.NamespacedName, bool) {
	name := pod.GetLabels()[jobsetv1alpha2.JobSetNameKey]
	return types.NamespacedName{Namespace: pod.GetNamespace(), Name: name}, name != ""
}

// List returns the pods of this JobSet, by its UID, from a cache with JobSetIndex. They are shared: do not change them.
func List(ctx context.Context, cache client.Reader, js *jobsetv1alpha2.JobSet) ([]*corev1.Pod, error) {
	var list corev1.PodList
	err := cache.List(ctx, &list, client.InNamespace(js.Namespace), client.MatchingFields{JobSetIndex: js.Name},
		client.UnsafeDisableDeepCopy)
	if err != nil {
		return nil, fmt.Errorf("list pods of JobSet %s: %w", klog.KObj(js), err)
	}
	var pods []*corev1.Pod
	for i := range list.Items {
		if uid := list.Items[i].Labels[jobsetv1alpha2.JobSetUIDKey]; uid == string(js.UID) {
			pods = append(pods, &list.Items[i])
		}
	}
	return pods, nil
}

// Changed says whether an update of a pod can change a diagnosis, a cause or a Jobs. It is false for most updates:
// times, addresses, pulled images, longer back-offs, new counts of nodes.
func Changed(old, updated *corev1.Pod) bool {
	return viewOf(old) != viewOf(updated) || old.Labels[jobsetv1alpha2.JobSetUIDKey] != updated.Labels[jobsetv1alpha2.JobSetUIDKey]
}

var keptLabels = []string{
	jobsetv1alpha2.JobSetNameKey, jobsetv1alpha2.JobSetUIDKey, jobsetv1alpha2.ReplicatedJobNameKey, jobsetv1alpha2.JobIndexKey,
	batchv1.JobCompletionIndexAnnotation, jobset.RestartsKey, jobset.JobRestartAttemptKey,
}

// Strip removes from a pod what this package does not read, except DeletionGracePeriodSeconds. It may be applied again.
func Strip(pod *corev1.Pod) {
	// The status comes first: which line of a termination message counts depends on the containers' spec.
	status := corev1.PodStatus{
		Phase:                 pod.Status.Phase,
		Reason:                pod.Status.Reason,
		Message:               strings.Clone(line(pod.Status.Message)),
		Conditions:            stripConditions(pod.Status.Conditions),
		InitContainerStatuses: stripStatuses(pod, pod.Status.InitContainerStatuses),
		ContainerStatuses:     stripStatuses(pod, pod.Status.ContainerStatuses),
	}
	kept := make(map[string]string, len(keptLabels))
	for _, key := range keptLabels {
		if value, ok := pod.Labels[key]; ok {
			kept[key] = value
		}
	}
	*pod = corev1.Pod{
		TypeMeta: pod.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name:              pod.Name,
			Namespace:         pod.Namespace,
			UID:               pod.UID,
			ResourceVersion:   pod.ResourceVersion,
			CreationTimestamp: pod.CreationTimestamp,
			DeletionTimestamp: pod.DeletionTimestamp,
			Labels:            kept,
			// Whoever ends the pod needs to know how long it may still run.
			DeletionGracePeriodSeconds: pod.DeletionGracePeriodSeconds,
		},
		Spec:   corev1.PodSpec{NodeName: pod.Spec.NodeName, TerminationGracePeriodSeconds: pod.Spec.TerminationGracePeriodSeconds},
		Status: status,
	}
}

func stripConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	var kept []corev1.PodCondition
	for _, c := range conditions {
		message := ""
		switch c.Type {
		case corev1.PodReady, corev1.ContainersReady:
		case corev1.PodScheduled, corev1.PodReadyToStartContainers:
			if c.Status == corev1.ConditionTrue {
				continue // An empty status has the same meaning, and most pods have it most of the time.
			}
			message = schedulerWords("", c.Message)
		case corev1.DisruptionTarget:
			message = line(c.Message)
		default:
			continue
		}
		kept = append(kept, corev1.PodCondition{Type: c.Type, Status: c.Status, Reason: c.Reason, Message: strings.Clone(message)})
	}
	return slices.Clip(kept)
}

func stripStatuses(pod *corev1.Pod, all []corev1.ContainerStatus) []corev1.ContainerStatus {
	if all == nil {
		return nil
	}
	kept := make([]corev1.ContainerStatus, len(all))
	for i, s := range all {
		kept[i] = corev1.ContainerStatus{
			Name: s.Name, Ready: s.Ready, RestartCount: s.RestartCount,
			State:                stripState(pod, s.Name, s.State),
			LastTerminationState: stripState(pod, s.Name, s.LastTerminationState),
		}
		if s.State.Waiting != nil {
			kept[i].Image = s.Image
		}
	}
	return kept
}

func stripState(pod *corev1.Pod, name string, state corev1.ContainerState) corev1.ContainerState {
	var kept corev1.ContainerState
	if state.Running != nil {
		kept.Running = &corev1.ContainerStateRunning{}
	}
	if w := state.Waiting; w != nil {
		kept.Waiting = &corev1.ContainerStateWaiting{Reason: w.Reason, Message: strings.Clone(waitingWords(w))}
	}
	if t := state.Terminated; t != nil {
		kept.Terminated = &corev1.ContainerStateTerminated{
			ExitCode: t.ExitCode, Signal: t.Signal, Reason: t.Reason, FinishedAt: t.FinishedAt,
			Message: strings.Clone(endWords(pod, name, t)),
		}
	}
	return kept
}
