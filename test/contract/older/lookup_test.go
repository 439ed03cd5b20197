// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package older

import (
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/yard"
)

// The manager looks for what jobs name on workers with Kubeflow Trainer 2.2 that permit it, and says which worker does not.
// A job that lacks a Secret is refused in words where the manager looks, and runs when the Secret is there.
func TestLookup(t *testing.T) {
	y := startHub(t, "--lookup")
	const first, second = "first", "second"
	workers := map[string]client.Client{first: joinWorker(t, y, first, "--lookup"), second: joinWorker(t, y, second)}
	const advice = `run "kubectl trainyard join second --lookup" again, or apply config/worker-lookup there`
	says := func(name string, matches gomega.OmegaMatcher) {
		t.Helper()
		y.Eventually(t, func(g gomega.Gomega) {
			ready := meta.FindStatusCondition(workerCluster(g, y, name).Status.Conditions, v1alpha1.WorkerClusterReady)
			g.Expect(ready).NotTo(gomega.BeNil())
			g.Expect(ready.Status).To(gomega.Equal(metav1.ConditionTrue))
			g.Expect(ready.Message).To(matches)
		})
	}
	says(second, gomega.HaveSuffix(advice))
	says(first, gomega.Not(gomega.ContainSubstring("lookup")))

	needy := func(name string) *trainer.TrainJob {
		job := yard.Job{Name: name, GPUs: 1, RunFor: "1s"}.TrainJob()
		job.Spec.Trainer.Env = []corev1.EnvVar{{Name: "HF_TOKEN", ValueFrom: &corev1.EnvVarSource{SecretKeyRef: &corev1.SecretKeySelector{
			LocalObjectReference: corev1.LocalObjectReference{Name: "hf-token"}, Key: "token",
		}}}}
		check.Must(t, y.Hub.Create(t.Context(), job))
		return job
	}
	refusedBy := func(job *trainer.TrainJob, names ...string) {
		t.Helper()
		y.Eventually(t, func(g gomega.Gomega) {
			d := y.DispatchOf(g, job)
			for _, name := range names {
				g.Expect(d.Status.History).To(gomega.ContainElement(gomega.And(
					gomega.HaveField("Cluster", v1alpha1.ClusterName(name)), gomega.HaveField("Outcome", v1alpha1.OutcomeRejected),
					gomega.HaveField("Message", `worker "`+name+`" lacks what the pods of the job name: Secret "hf-token" is not in namespace "default", `+
						`and env HF_TOKEN of step node needs it; keys not checked`))))
			}
		})
		for _, name := range names {
			for _, pod := range pods(gomega.NewWithT(t), workers[name], job.Name) {
				t.Errorf("worker %s has the pod %s", name, pod.Name)
			}
		}
	}
	y.Edit(t, second, func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = true })
	job := needy("needy")
	refusedBy(job, first)
	y.Edit(t, second, func(w *v1alpha1.WorkerCluster) { w.Spec.Unschedulable = false })
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, job)
		g.Expect(d.Spec.Cluster).To(gomega.Equal(v1alpha1.ClusterName(second)), "%v", d.Status)
		g.Expect(pods(g, workers[second], job.Name)).To(gomega.HaveLen(1))
	})

	check.Must(t, y.Join(t.Context(), second, "--lookup"))
	says(second, gomega.Not(gomega.ContainSubstring("lookup")))
	both := needy("needy-too")
	refusedBy(both, first, second)
	for _, worker := range workers {
		check.Must(t, worker.Create(t.Context(), &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: both.Namespace, Name: "hf-token"}, StringData: map[string]string{"token": "t"},
		}))
	}
	_, err := y.Plugin(t.Context(), "retry", both.Name, "--namespace", both.Namespace, "--kubeconfig", y.Yard.Hub.KubeconfigPath)
	check.Must(t, err)
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, both)
		g.Expect(d.IsFinished()).To(gomega.BeTrue(), "%v", d.Status)
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(both), both)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(both.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue())
	})
}
