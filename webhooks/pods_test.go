// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package webhooks_test

import (
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// question is a TrainJob that asks what its pods become.
func question(namespace string, changes ...func(*trainer.TrainJob)) *trainer.TrainJob {
	return job(namespace, "q", append(changes, with(nil, map[string]string{v1alpha1.AnnotationPods: trainjobs.AskPods}))...)
}

// ask returns what the pods of a question become.
func (e *environment) ask(t *testing.T, question *trainer.TrainJob) []trainjobs.AdmittedPod {
	t.Helper()
	check.Must(t, e.Create(t.Context(), question, client.DryRunAll))
	pods, answered := trainjobs.DecodePods(question)
	if !answered {
		t.Fatalf("no answer: %q", question.Annotations)
	}
	return pods
}

func gpus(n string) func(*trainer.TrainJob) {
	return func(j *trainer.TrainJob) {
		j.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Limits: corev1.ResourceList{"nvidia.com/gpu": resource.MustParse(n)}}
	}
}

// TestPodsAreAsAdmitted: the answer has what admission plugins, limits of the namespace and the runtime class make of a
// pod, in the numbers of the API server.
func TestPodsAreAsAdmitted(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	e.create(t, &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: ns, Name: "defaults"},
		Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{
			Type: corev1.LimitTypeContainer, DefaultRequest: corev1.ResourceList{"cpu": resource.MustParse("250m")},
			Default: corev1.ResourceList{"cpu": resource.MustParse("1")},
		}}},
	})
	e.create(t, &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "sandbox"}, Handler: "sandbox",
		Overhead: &nodev1.Overhead{PodFixed: corev1.ResourceList{"memory": resource.MustParse("120Mi")}},
		Scheduling: &nodev1.Scheduling{
			NodeSelector: map[string]string{"sandbox": "yes"},
			Tolerations:  []corev1.Toleration{{Key: "sandbox", Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}},
		},
	})
	runtime := e.namespacedRuntime(t, ns, "sandboxed", func(spec *trainer.TrainingRuntimeSpec) {
		podOfNode(spec).RuntimeClassName = new("sandbox")
	})
	var pods []trainjobs.AdmittedPod
	eventually(t, "the limits of the namespace to be in force", func(g gomega.Gomega) {
		pods = e.ask(t, question(ns, gpus("2"), runtime))
		g.Expect(pods).To(gomega.HaveLen(1))
		g.Expect(pods[0].Spec.Containers[0].Resources.Requests).To(gomega.HaveKey(corev1.ResourceCPU))
	})
	spec := pods[0].Spec
	got := map[string]any{
		"name": pods[0].Name, "cpu": spec.Containers[0].Resources.Requests.Cpu().String(),
		"gpu":    spec.Containers[0].Resources.Requests.Name("nvidia.com/gpu", resource.DecimalSI).String(),
		"memory": spec.Overhead.Memory().String(), "selector": spec.NodeSelector["sandbox"], "image": spec.Containers[0].Image,
		"environment": len(spec.Containers[0].Env),
	}
	want := map[string]any{
		"name": "node", "cpu": "250m", "gpu": "2", "memory": "120Mi", "selector": "yes", "image": "", "environment": 0,
	}
	check.Diff(t, want, got, "the pod is not as admitted")
	tolerated := map[string]corev1.TaintEffect{}
	for _, toleration := range spec.Tolerations {
		tolerated[toleration.Key] = toleration.Effect
	}
	for _, key := range []string{"sandbox", "nvidia.com/gpu"} { // The second comes from ExtendedResourceToleration.
		check.Equal(t, corev1.TaintEffectNoSchedule, tolerated[key], "tolerations %v lack %q", spec.Tolerations, key)
	}
	if names := e.contents(t, ns); len(names) > 0 {
		t.Errorf("the question left something: %q", names)
	}
}

// TestPodsOfAFullQuota: what is full now is told apart from what the job can never get.
func TestPodsOfAFullQuota(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	e.quota(t, ns, "pods", corev1.ResourceList{"pods": resource.MustParse("1")})
	e.useUpPods(t, client.ObjectKey{Namespace: ns, Name: "pods"})
	eventually(t, "quota to be used up", func(g gomega.Gomega) {
		pods := e.ask(t, question(ns))
		g.Expect(pods).To(gomega.HaveLen(1))
		g.Expect(pods[0].Later).To(gomega.HavePrefix("exceeded quota: pods, "))
		g.Expect(pods[0].Spec).To(gomega.BeNil())
	})
}

// TestPodsThatAreRefused: a question is refused in the words in which the TrainJob would be.
func TestPodsThatAreRefused(t *testing.T) {
	e := env(t)
	ns := e.namespace(t, func(n *corev1.Namespace) {
		n.Labels = map[string]string{"pod-security.kubernetes.io/enforce": "restricted"}
	})
	asked, created := e.Create(t.Context(), question(ns), client.DryRunAll), e.Create(t.Context(), job(ns, "q"), client.DryRunAll)
	check.Diff(t, causes(t, created), causes(t, asked), "faults of the question")
}

// TestOnlyDryRunsAreAnswered: a TrainJob that is created keeps no answer, and is checked as ever.
func TestOnlyDryRunsAreAnswered(t *testing.T) {
	e := env(t)
	ns := e.namespace(t)
	long := question(ns, func(j *trainer.TrainJob) { j.Name = strings.Repeat("a", 60) })
	if err := e.Create(t.Context(), long); err == nil {
		t.Error("a TrainJob with a name that is too long was created, because it looks like a question")
	}
	forged := job(ns, strings.Repeat("a", 60), with(nil, map[string]string{v1alpha1.AnnotationPods: "[]"}))
	if err := e.Create(t.Context(), forged); err == nil {
		t.Error("a TrainJob with a name that is too long was created, because it looks like an answer")
	}
	created := question(ns)
	check.Must(t, e.Create(t.Context(), created))
	if _, answered := trainjobs.DecodePods(created); answered {
		t.Errorf("a TrainJob that exists has the answer %q", created.Annotations[v1alpha1.AnnotationPods])
	}
}
