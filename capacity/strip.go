// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
)

// StripPod keeps the fields of a pod that placement needs: its identity, node, requests, host ports and phase.
func StripPod(in any) (any, error) {
	pod, ok := in.(*corev1.Pod)
	if !ok {
		return in, nil
	}
	stripped := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: pod.Name, Namespace: pod.Namespace, UID: pod.UID, ResourceVersion: pod.ResourceVersion,
			DeletionTimestamp: pod.DeletionTimestamp, Labels: pick(pod.Labels, jobsetv1alpha2.JobSetNameKey, jobsetv1alpha2.ReplicatedJobNameKey),
		},
		Spec: corev1.PodSpec{
			NodeName: pod.Spec.NodeName, Overhead: pod.Spec.Overhead, Resources: pod.Spec.Resources,
			Containers: stripContainers(pod.Spec.Containers), InitContainers: stripContainers(pod.Spec.InitContainers),
		},
		Status: corev1.PodStatus{
			Phase: pod.Status.Phase, Resources: pod.Status.Resources, AllocatedResources: pod.Status.AllocatedResources,
			ContainerStatuses:     stripStatuses(pod.Status.ContainerStatuses),
			InitContainerStatuses: stripStatuses(pod.Status.InitContainerStatuses),
			Conditions:            stripConditions(pod.Status.Conditions),
		},
	}
	return stripped, nil
}

// stripContainers keeps the requests, the host ports, and the restart policy by which the scheduler recognises sidecars.
func stripContainers(containers []corev1.Container) []corev1.Container {
	if len(containers) == 0 {
		return nil
	}
	stripped := make([]corev1.Container, 0, len(containers))
	for i := range containers {
		stripped = append(stripped, corev1.Container{
			Name: containers[i].Name, RestartPolicy: containers[i].RestartPolicy,
			Resources: corev1.ResourceRequirements{Requests: containers[i].Resources.Requests}, Ports: stripPorts(containers[i].Ports),
		})
	}
	return stripped
}

// stripPorts keeps the host ports. The API server has set them for pods with hostNetwork.
func stripPorts(ports []corev1.ContainerPort) []corev1.ContainerPort {
	var stripped []corev1.ContainerPort
	for i := range ports {
		if ports[i].HostPort != 0 {
			stripped = append(stripped, corev1.ContainerPort{
				HostPort: ports[i].HostPort, Protocol: ports[i].Protocol, HostIP: ports[i].HostIP,
			})
		}
	}
	return stripped
}

// stripStatuses keeps the resources of containers that were resized in place.
func stripStatuses(statuses []corev1.ContainerStatus) []corev1.ContainerStatus {
	var stripped []corev1.ContainerStatus
	for i := range statuses {
		if statuses[i].Resources != nil {
			stripped = append(stripped, corev1.ContainerStatus{
				Name: statuses[i].Name, AllocatedResources: statuses[i].AllocatedResources,
				Resources: &corev1.ResourceRequirements{Requests: statuses[i].Resources.Requests},
			})
		}
	}
	return stripped
}

// stripConditions keeps the conditions of a resize. They decide what counts while the resize is not done.
func stripConditions(conditions []corev1.PodCondition) []corev1.PodCondition {
	var stripped []corev1.PodCondition
	for i := range conditions {
		if t := conditions[i].Type; t == corev1.PodResizePending || t == corev1.PodResizeInProgress {
			stripped = append(stripped, corev1.PodCondition{Type: t, Status: conditions[i].Status, Reason: conditions[i].Reason})
		}
	}
	return stripped
}

// StripNode keeps the fields of a node that placement needs.
func StripNode(in any) (any, error) {
	node, ok := in.(*corev1.Node)
	if !ok {
		return in, nil
	}
	stripped := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{
			Name: node.Name, UID: node.UID, ResourceVersion: node.ResourceVersion, DeletionTimestamp: node.DeletionTimestamp,
			Labels: node.Labels,
		},
		Spec:   corev1.NodeSpec{Taints: node.Spec.Taints, Unschedulable: node.Spec.Unschedulable},
		Status: corev1.NodeStatus{Allocatable: node.Status.Allocatable},
	}
	for i := range node.Status.Conditions {
		if c := node.Status.Conditions[i]; c.Type == corev1.NodeReady {
			stripped.Status.Conditions = []corev1.NodeCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return stripped, nil
}

func pick(labels map[string]string, keys ...string) map[string]string {
	var picked map[string]string
	for _, key := range keys {
		if value, ok := labels[key]; ok {
			if picked == nil {
				picked = make(map[string]string, len(keys))
			}
			picked[key] = value
		}
	}
	return picked
}
