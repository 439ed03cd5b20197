// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"encoding/json"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trainyard/trainyard/api/v1alpha1"
)

// AskPods is the value of v1alpha1.AnnotationPods with which a dry run asks for the pods.
const AskPods = "?"

// maxAdmitted is how long an answer about pods may be, in bytes. A pod takes one or two thousand.
const maxAdmitted = 32 << 10

// AdmittedPod is what the admission of a worker makes of the pods of one replicated job.
type AdmittedPod struct {
	// Name of the replicated job.
	Name string `json:"name"`
	// Spec has the fields of the pod on which it depends where the pod can run, see SchedulingSpec. nil: the worker takes
	// no such pod now.
	Spec *corev1.PodSpec `json:"spec,omitempty"`
	// Devices are how many devices of each class the pod claims by template, by v1alpha1.ClaimedDevices and the class, and
	// claims that may fit nowhere though there are as many devices, by v1alpha1.NameOfDeviceClaim.
	Devices map[corev1.ResourceName]int64 `json:"devices,omitempty"`
	// Later is why the worker takes no such pod now, but will without a change of the job: a quota is full, for one.
	Later string `json:"later,omitempty"`
}

// Admission is what a worker has answered about the pods of a job. Without pods and words, it could not answer.
type Admission struct {
	Pods []AdmittedPod
	// Refused are the worker's words if it refuses the copy. Then there are no pods.
	Refused string
}

// AsksForPods says whether a TrainJob is a question about its pods.
func AsksForPods(job metav1.Object) bool {
	return job.GetAnnotations()[v1alpha1.AnnotationPods] == AskPods
}

// EncodePods returns the answer to a question about pods. It is not ok if the answer is too long.
func EncodePods(pods []AdmittedPod) (answer string, ok bool) {
	encoded, err := json.Marshal(pods)
	return string(encoded), err == nil && len(encoded) <= maxAdmitted
}

// DecodePods returns the answer on a TrainJob that was a question about its pods. It is not ok if nobody has answered:
// the worker has no agent that can.
func DecodePods(job metav1.Object) (pods []AdmittedPod, ok bool) {
	answer := job.GetAnnotations()[v1alpha1.AnnotationPods]
	if len(answer) > maxAdmitted || json.Unmarshal([]byte(answer), &pods) != nil {
		return nil, false
	}
	return pods, true
}

// SchedulingSpec returns the fields of a pod on which it depends where the pod can run. Images, commands and
// environment are left out: they can have secrets, and are long.
func SchedulingSpec(spec *corev1.PodSpec) *corev1.PodSpec {
	return &corev1.PodSpec{
		InitContainers: schedulingContainers(spec.InitContainers), Containers: schedulingContainers(spec.Containers),
		NodeSelector: spec.NodeSelector, Affinity: spec.Affinity, Tolerations: spec.Tolerations, Overhead: spec.Overhead,
		Resources: spec.Resources, ResourceClaims: spec.ResourceClaims, HostNetwork: spec.HostNetwork,
		RuntimeClassName: spec.RuntimeClassName, SchedulerName: spec.SchedulerName, SchedulingGates: spec.SchedulingGates,
		PriorityClassName: spec.PriorityClassName, Priority: spec.Priority, PreemptionPolicy: spec.PreemptionPolicy,
		TopologySpreadConstraints:     spec.TopologySpreadConstraints,
		TerminationGracePeriodSeconds: spec.TerminationGracePeriodSeconds,
	}
}

func schedulingContainers(all []corev1.Container) []corev1.Container {
	var short []corev1.Container
	for i := range all {
		one := corev1.Container{Name: all[i].Name, Resources: all[i].Resources, RestartPolicy: all[i].RestartPolicy}
		for _, port := range all[i].Ports {
			if port.HostPort != 0 {
				one.Ports = append(one.Ports, corev1.ContainerPort{
					HostIP: port.HostIP, HostPort: port.HostPort, ContainerPort: port.ContainerPort, Protocol: port.Protocol,
				})
			}
		}
		short = append(short, one)
	}
	return short
}
