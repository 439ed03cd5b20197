// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package trainjobs

import (
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// TestAdmittedPodsTravel: what scheduling depends on comes through the annotation, and nothing that may be secret or long.
func TestAdmittedPodsTravel(t *testing.T) {
	gpus := corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse("8")}}
	spec := &corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "sidecar", Image: "secret", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
		Containers: []corev1.Container{{
			Name: "node", Image: "secret", Args: []string{"secret"}, Env: []corev1.EnvVar{{Name: "TOKEN", Value: "secret"}}, Resources: gpus,
			Ports: []corev1.ContainerPort{{ContainerPort: 8080}, {HostPort: 29500, ContainerPort: 29500, Protocol: corev1.ProtocolTCP}},
		}},
		NodeSelector: map[string]string{"a": "b"}, Tolerations: []corev1.Toleration{{Key: "gpu", Operator: corev1.TolerationOpExists}},
		Overhead: corev1.ResourceList{"cpu": resource.MustParse("1")}, HostNetwork: true, ServiceAccountName: "secret",
		Volumes: []corev1.Volume{{Name: "secret"}},
	}
	answer, ok := EncodePods([]AdmittedPod{{Name: "node", Spec: SchedulingSpec(spec)}})
	if !ok || strings.Contains(answer, "secret") {
		t.Fatalf("the answer is ok: %t, and says %s", ok, answer)
	}
	job := New()
	SetAnnotation(job, v1alpha1.AnnotationPods, answer)
	pods, answered := DecodePods(job)
	want := []AdmittedPod{{Name: "node", Spec: &corev1.PodSpec{
		InitContainers: []corev1.Container{{Name: "sidecar", RestartPolicy: new(corev1.ContainerRestartPolicyAlways)}},
		Containers: []corev1.Container{{
			Name: "node", Resources: gpus, Ports: []corev1.ContainerPort{{HostPort: 29500, ContainerPort: 29500, Protocol: corev1.ProtocolTCP}},
		}},
		NodeSelector: spec.NodeSelector, Tolerations: spec.Tolerations, Overhead: spec.Overhead, HostNetwork: true,
	}}}
	check.Equal(t, true, answered, "the question is answered")
	check.Diff(t, want, pods, "what comes through")
}

// TestAnswersThatAreNone: a question that nobody answered, and an answer that is too long, are no answers.
func TestAnswersThatAreNone(t *testing.T) {
	long := []AdmittedPod{{Name: "node", Later: strings.Repeat("x", maxAdmitted)}}
	if _, ok := EncodePods(long); ok {
		t.Error("an answer that is too long is sent")
	}
	for name, answer := range map[string]string{
		"Question": AskPods, "None": "", "Long": `[{"name":"node","later":"` + strings.Repeat("x", maxAdmitted) + `"}]`, "Other": `{"a":1}`,
	} {
		job := New()
		SetAnnotation(job, v1alpha1.AnnotationPods, answer)
		_, answered := DecodePods(job)
		check.Equal(t, false, answered, "%s counts as an answer", name)
	}
}
