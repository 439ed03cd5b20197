// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package older

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// startLimit is for all clusters and processes, on a machine that may be busy.
const startLimit = 15 * time.Minute

// startHub starts a hub whose jobs are translated.
func startHub(t *testing.T, managerArgs ...string) *yard.Suite {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	y := &yard.Suite{
		Options: yard.Options{ManagerArgs: managerArgs}, Timeout: 3 * time.Minute, Poll: 50 * time.Millisecond,
	}
	stop, err := y.Start(ctx)
	if stop != nil {
		t.Cleanup(func() { check.Must(t, stop()) })
	}
	check.Must(t, err)
	check.Must(t, y.Hub.Create(t.Context(), &v1alpha1.DispatchPolicy{
		ObjectMeta: metav1.ObjectMeta{Name: "translate"}, Spec: v1alpha1.DispatchPolicySpec{Skew: v1alpha1.SkewTranslate},
	}))
	return y
}

// startCluster starts a cluster with the CRDs of an older release. It is a worker of the yard, and not registered.
func startCluster(t *testing.T, y *yard.Suite, name, release string) (*clusters.Cluster, client.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	crds, err := clusters.ReleaseCRDs(ctx, releases[release])
	check.Must(t, err)
	nodes := yard.GPUNodes("node", 2, 8, "H100")
	nodes.Labels["rack"], nodes.Labels["zone"] = "r1", "a"
	options := clusters.Full(name, nodes)
	options.CRDs = []string{crds}
	cluster, err := clusters.Start(ctx, options)
	check.Must(t, err)
	y.Yard.Workers[name] = cluster
	t.Cleanup(func() {
		delete(y.Yard.Workers, name)
		check.Must(t, cluster.Stop())
	})
	worker, err := yard.NewClient(cluster)
	check.Must(t, err)
	return cluster, worker
}

// startWorker starts a worker with the CRDs and the controllers of an older release, and registers it. Its own runtime says
// how long pods run: a job of 2.0 cannot.
func startWorker(t *testing.T, y *yard.Suite, name, release string) client.Client {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), startLimit)
	defer cancel()
	cluster, worker := startCluster(t, y, name, release)
	check.Must(t, yard.InstallRuntimes(ctx, cluster))
	runtime := &trainer.ClusterTrainingRuntime{}
	check.Must(t, worker.Get(ctx, client.ObjectKey{Name: yard.RuntimeName}, runtime))
	for i := range runtime.Spec.Template.Spec.ReplicatedJobs {
		pod := &runtime.Spec.Template.Spec.ReplicatedJobs[i].Template.Spec.Template
		metav1.SetMetaDataAnnotation(&pod.ObjectMeta, clusters.RunForAnnotation, "2s")
	}
	check.Must(t, worker.Update(ctx, runtime))
	_, err := cluster.Run(ctx, "trainer", program(t, release), "manager")
	check.Must(t, err)

	kubeconfig, err := cluster.KubeconfigBytes()
	check.Must(t, err)
	path := filepath.Join(t.TempDir(), "kubeconfig")
	check.Must(t, os.WriteFile(path, kubeconfig, 0o600))
	check.Must(t, y.Hub.Create(ctx, &v1alpha1.WorkerCluster{
		ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.WorkerClusterSpec{Connection: v1alpha1.Connection{KubeconfigPath: path}},
	}))
	y.Eventually(t, func(g gomega.Gomega) {
		object := &v1alpha1.WorkerCluster{}
		g.Expect(y.Hub.Get(ctx, client.ObjectKey{Name: name}, object)).To(gomega.Succeed())
		ready := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.WorkerClusterReady)
		g.Expect(ready).NotTo(gomega.BeNil())
		g.Expect(ready.Status).To(gomega.Equal(metav1.ConditionTrue), ready.Message)
		g.Expect(object.Status.Trainer.Release).To(gomega.Equal(release))
	})
	return worker
}

// patched is a job that changes the pods of its runtime, and whose pods belong together.
func patched(name string, pod *trainer.PodTemplatePatch) *trainer.TrainJob {
	job := yard.Job{Name: name, Nodes: 2, GPUs: 1}.TrainJob()
	job.Annotations = map[string]string{v1alpha1.AnnotationTopology: "required=rack", v1alpha1.AnnotationClusters: "size=" + name}
	pod.Spec = &trainer.PodSpecPatch{
		NodeSelector: map[string]string{"zone": "a"}, Tolerations: []corev1.Toleration{{Key: "spot", Operator: corev1.TolerationOpExists}},
	}
	job.Spec.RuntimePatches = []trainer.RuntimePatch{{
		Manager: "user.dev/own",
		TrainingRuntimeSpec: &trainer.TrainingRuntimeSpecPatch{Template: &trainer.JobSetTemplatePatch{
			Metadata: &metav1.ObjectMeta{Labels: map[string]string{"team": "vision"}},
			Spec: &trainer.JobSetSpecPatch{ReplicatedJobs: []trainer.ReplicatedJobPatch{
				{Name: "node", Template: &trainer.JobTemplatePatch{Spec: &trainer.JobSpecPatch{Template: pod}}},
			}},
		}},
	}}
	return job
}

// A worker has an older Kubeflow Trainer, with its controllers. A job runs there to its end with what it says and what
// Trainyard adds, and a job that the release cannot express does not come there.
func TestOlderWorker(t *testing.T) {
	y := startHub(t)
	for _, release := range []string{"2.0", "2.1"} {
		t.Run(release, func(t *testing.T) {
			name := map[string]string{"2.0": "older", "2.1": "old"}[release]
			worker := startWorker(t, y, name, release)
			pod := &trainer.PodTemplatePatch{}
			want := v1alpha1.PodSpecOverrides
			if release == "2.1" {
				want = v1alpha1.PodTemplateOverrides
				pod.Metadata = &metav1.ObjectMeta{Labels: map[string]string{"own": "label"}}
			}
			y.Edit(t, name, func(w *v1alpha1.WorkerCluster) { w.Labels = map[string]string{"size": name} })
			job := patched(name, pod)
			check.Must(t, y.Hub.Create(t.Context(), job))

			y.Eventually(t, func(g gomega.Gomega) {
				var pods corev1.PodList
				g.Expect(worker.List(t.Context(), &pods, client.MatchingLabels{jobsetv1alpha2.JobSetNameKey: name})).To(gomega.Succeed())
				g.Expect(pods.Items).To(gomega.HaveLen(2), "%v", y.DispatchOf(g, job).Status)
				for _, pod := range pods.Items {
					g.Expect(pod.Spec.NodeSelector).To(gomega.And(gomega.HaveKeyWithValue("zone", "a"), gomega.HaveKeyWithValue("rack", "r1")))
					g.Expect(slices.ContainsFunc(pod.Spec.Tolerations, func(t corev1.Toleration) bool { return t.Key == "spot" })).To(gomega.BeTrue())
					if release == "2.1" {
						g.Expect(pod.Labels).To(gomega.HaveKeyWithValue("own", "label"))
					}
				}
			})
			jobSet := &jobsetv1alpha2.JobSet{}
			check.Must(t, worker.Get(t.Context(), client.ObjectKeyFromObject(job), jobSet))
			check.Equal(t, "vision", jobSet.Labels["team"], "the label of the JobSet")
			copy := trainjobs.New()
			check.Must(t, worker.Get(t.Context(), client.ObjectKeyFromObject(job), copy))
			if spec := trainjobs.Spec(copy); spec["runtimePatches"] != nil || spec[string(want)] == nil {
				t.Errorf("the copy has the spec %v", spec)
			}
			y.Eventually(t, func(g gomega.Gomega) {
				d := y.DispatchOf(g, job)
				g.Expect(d.Spec.TranslatedInto).To(gomega.Equal(want))
				g.Expect(d.Spec.Attempt).To(gomega.Equal(int32(1)))
				g.Expect(d.IsFinished()).To(gomega.BeTrue(), "%v", d.Status)
				g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), job)).To(gomega.Succeed())
				g.Expect(meta.IsStatusConditionTrue(job.Status.Conditions, trainer.TrainJobComplete)).To(gomega.BeTrue())
			})

			late := patched(name, pod)
			late.Name, late.Spec.ActiveDeadlineSeconds = name+"-deadline", 600
			check.Must(t, y.Hub.Create(t.Context(), late))
			y.Eventually(t, func(g gomega.Gomega) {
				d := y.DispatchOf(g, late)
				g.Expect(d.Spec.Attempt).To(gomega.BeZero())
				g.Expect(d.Status.Explanation).To(gomega.ContainElement(gomega.And(
					gomega.HaveField("Cluster", v1alpha1.ClusterName(name)), gomega.HaveField("Reason", v1alpha1.ReasonFieldUnknown),
					gomega.HaveField("Message", gomega.ContainSubstring("spec.activeDeadlineSeconds")))))
			})
			check.Must(t, y.Hub.Delete(t.Context(), late))
		})
	}
}
