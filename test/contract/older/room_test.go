// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package older

import (
	"context"
	"fmt"
	"path/filepath"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// joinWorker starts a worker on which a Kubeflow Trainer 2.2 runs, with its webhooks, and joins it with the plugin. The
// runtimes of its jobs come from the hub.
func joinWorker(t *testing.T, y *yard.Suite, name string, args ...string) client.Client {
	t.Helper()
	const release = "2.2"
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	cluster, worker := startCluster(t, y, name, release)
	server, err := cluster.NewWebhookServer("trainer")
	check.Must(t, err)
	_, err = cluster.Run(ctx, "trainer", program(t, release), "manager", "--certs="+server.CertDir, "--host="+server.Host, fmt.Sprintf("--port=%d", server.Port))
	check.Must(t, err)
	crds, err := clusters.ReleaseCRDs(ctx, releases[release])
	check.Must(t, err)
	webhooks, err := clusters.ReadObjects(filepath.Join(crds, "../webhook/manifests.yaml"))
	check.Must(t, err)
	for _, object := range webhooks {
		object.SetName("kubeflow-trainer") // JobSet's have the name that these have at first.
	}
	check.Must(t, clusters.WebhookURLs(server, webhooks...))
	check.Must(t, cluster.ApplyObjects(ctx, webhooks...))
	y.Eventually(t, func(g gomega.Gomega) {
		probe := &trainer.TrainJob{
			ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: "probe"},
			Spec:       trainer.TrainJobSpec{RuntimeRef: trainer.RuntimeRef{Name: "none"}},
		}
		g.Expect(worker.Create(ctx, probe, client.DryRunAll)).To(gomega.MatchError(gomega.ContainSubstring("validator.trainjob.trainer.kubeflow.org")))
	})
	check.Must(t, y.Join(ctx, name, args...))
	y.Eventually(t, func(g gomega.Gomega) {
		object := workerCluster(g, y, name)
		g.Expect(object.Status.Trainer.Release).To(gomega.Equal(release))
		agent := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.WorkerClusterAgentReady)
		g.Expect(agent).To(gomega.HaveValue(gomega.HaveField("Reason", v1alpha1.ReasonAgentMissing)))
	})
	return worker
}

func workerCluster(g gomega.Gomega, y *yard.Suite, name string) *v1alpha1.WorkerCluster {
	object := &v1alpha1.WorkerCluster{}
	g.Expect(y.Hub.Get(context.Background(), client.ObjectKey{Name: name}, object)).To(gomega.Succeed())
	return object
}

// looseRuntime makes a runtime without mlPolicy. Kubeflow Trainer 2.3 gives its pods nothing of spec.trainer.resourcesPerNode.
func looseRuntime(t *testing.T, hub client.Client) {
	t.Helper()
	runtime := &trainer.ClusterTrainingRuntime{}
	check.Must(t, yaml.UnmarshalStrict([]byte(runtimeOf("", trainerJob("node", `{name: node, image: i, resources: {requests: {cpu: "1"}}}`))), runtime))
	runtime.Name = "loose"
	check.Must(t, hub.Create(t.Context(), runtime))
}

// pods returns the pods of a job on a worker.
func pods(g gomega.Gomega, worker client.Client, job string) []corev1.Pod {
	var list corev1.PodList
	g.Expect(worker.List(context.Background(), &list, client.MatchingLabels{"jobset.sigs.k8s.io/jobset-name": job})).To(gomega.Succeed())
	return list.Items
}

// A worker runs Kubeflow Trainer 2.2, which gives pods more than the hub's release would. Jobs run there to their end, and a
// job for which there is no room as that release makes its pods waits until there is.
func TestRoomOnOlderWorker(t *testing.T) {
	y := startHub(t)
	worker := joinWorker(t, y, "older")
	looseRuntime(t, y.Hub)
	submit := func(name, runFor string) *trainer.TrainJob {
		job := yard.Job{Name: name, GPUs: 8, RunFor: runFor}.TrainJob()
		job.Spec.RuntimeRef.Name = "loose"
		check.Must(t, y.Hub.Create(t.Context(), job))
		return job
	}
	eight := resource.MustParse("8")
	runs := func(job *trainer.TrainJob) {
		t.Helper()
		y.Eventually(t, func(g gomega.Gomega) {
			list := pods(g, worker, job.Name)
			g.Expect(list).To(gomega.HaveLen(1), "%v", y.DispatchOf(g, job).Status)
			g.Expect(list[0].Spec.NodeName).NotTo(gomega.BeEmpty())
			gpus := list[0].Spec.Containers[0].Resources.Requests[yard.GPU]
			g.Expect(gpus.Cmp(eight)).To(gomega.BeZero(), "the pod requests %v", list[0].Spec.Containers[0].Resources)
		})
	}
	first, second := submit("first", clusters.RunForever), submit("second", clusters.RunForever)
	runs(first)
	runs(second)

	third := submit("third", "1s")
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, third)
		g.Expect(d.Spec.Attempt).To(gomega.BeZero(), "the copy would have no room: %v", d.Spec)
		g.Expect(d.Status.Explanation).To(gomega.ContainElement(gomega.And(
			gomega.HaveField("Cluster", v1alpha1.ClusterName("older")), gomega.HaveField("Reason", v1alpha1.ReasonInsufficientResources),
			gomega.HaveField("Message", gomega.HaveSuffix("in place of the runtime's (Kubeflow Trainer 2.2)")))))
	})
	check.Must(t, y.Hub.Delete(t.Context(), first))
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, third)
		g.Expect(d.IsFinished()).To(gomega.BeTrue(), "%v", d.Status)
		g.Expect(d.Spec.Attempt).To(gomega.Equal(int32(1)))
		gpus := d.Spec.PodSets[0].Requests[yard.GPU]
		g.Expect(gpus.Cmp(eight)).To(gomega.BeZero(), "a pod is recorded with %v", d.Spec.PodSets[0].Requests)
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(third), third)).To(gomega.Succeed())
		g.Expect(meta.IsStatusConditionTrue(third.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue())
	})
}
