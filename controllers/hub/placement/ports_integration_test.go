// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
)

// Pods with hostNetwork take the port of the torch policy, so each needs a node, whatever else is free there. What placed
// jobs take counts before and after their pods are there.
func TestHostPorts(t *testing.T) {
	s := newScene(t)
	s.worker(t, west, cordon)
	node := jobsetv1alpha2.ReplicatedJob{Name: "node", Replicas: 1}
	node.Template.Labels = map[string]string{"trainer.kubeflow.org/trainjob-ancestor-step": "trainer"}
	node.Template.Spec.Template.Spec.Containers = []corev1.Container{{Name: "node", Image: "none"}}
	check.Must(t, s.Hub.Admin.Create(t.Context(), &trainer.TrainingRuntime{
		ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: "ports"}, Spec: onHostNetwork(node),
	}))
	pods := func(count int32) func(*trainer.TrainJob) {
		return func(job *trainer.TrainJob) {
			job.Spec.RuntimeRef.Name, job.Spec.RuntimeRef.Kind = "ports", new(trainer.TrainingRuntimeKind)
			job.Spec.Trainer.NumNodes = &count
			one := list(string(gpu), "1")
			job.Spec.Trainer.ResourcesPerNode = &corev1.ResourceRequirements{Requests: one, Limits: one}
		}
	}
	waits := func(name, words string) {
		t.Helper()
		d := s.expect(t, name, v1alpha1.ReasonNoFit)
		if message := d.Status.Explanation[0].Message; !strings.Contains(message, words) {
			t.Errorf("%s does not fit on east: %q, want %q", name, message, words)
		}
	}
	s.Submit(t, "three", pods(3))
	waits("three", "because of the host port, each pod needs a node of its own")

	s.Submit(t, "two", pods(2))
	two, _ := s.reconcile(t, "two")
	check.Equal(t, east, two.Spec.Cluster, "worker of a job with a pod for each node: %v", two.Status.Explanation)
	check.Diff(t, []v1alpha1.HostPort{{Port: 9400, Protocol: "TCP"}, {Port: 29500, Protocol: "TCP"}}, two.Spec.PodSets[0].HostPorts, "ports")
	const taken = "host port 29500/TCP is taken on 2 nodes"
	s.Submit(t, "one", pods(1))
	waits("one", taken) // Reserved.
	s.bind(t, two)
	s.awaitUsed(t, 2)
	waits("one", taken) // Taken by pods.
	s.Submit(t, "plain")
	plain, _ := s.reconcile(t, "plain")
	check.Equal(t, east, plain.Spec.Cluster, "worker of a job without host ports")

	pod := &corev1.Pod{}
	check.Must(t, s.Worker(east).Admin.Get(t.Context(), client.ObjectKey{Namespace: s.Namespace, Name: "two-node-0"}, pod))
	check.Equal(t, int32(9400), pod.Spec.Containers[0].Ports[0].HostPort, "host port that the API server gives the pod")
	s.report(t, two, v1alpha1.DispatchFinished, metav1.ConditionTrue, v1alpha1.OutcomeComplete)
	check.Must(t, s.Worker(east).Admin.DeleteAllOf(t.Context(), pod, client.InNamespace(s.Namespace), client.GracePeriodSeconds(0)))
	s.awaitUsed(t, 0)
	gomega.NewWithT(t).Eventually(func() v1alpha1.ClusterName {
		one, _ := s.reconcile(t, "one")
		return one.Spec.Cluster
	}, check.Patience).Should(gomega.Equal(east), "worker of the job that waited")
}
