// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"fmt"
	"testing"
	"time"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	schedulingv1 "k8s.io/api/scheduling/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/trainyard/trainyard/api/trainjobs"
	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// A job is moved from a drained worker, and then preempted. The process of each attempt is told where the one before ran,
// what it reached, and where its checkpoints are, and has the grace period of its policy.
func TestNextAttemptKnows(t *testing.T) {
	ns := namespace(t, "checkpoints")
	create(t, &schedulingv1.PriorityClass{ObjectMeta: metav1.ObjectMeta{Name: "soon"}, Value: 1000})
	create(t, &v1alpha1.DispatchPolicy{ObjectMeta: metav1.ObjectMeta{Name: "checkpoints"}, Spec: v1alpha1.DispatchPolicySpec{
		Jobs: v1alpha1.JobSelector{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{corev1.LabelMetadataName: ns}}},
		Clusters: v1alpha1.ClusterSelector{Selector: &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "pool", Operator: metav1.LabelSelectorOpIn, Values: []string{quads, octets}},
		}}},
		Preemption: v1alpha1.PreemptLowerPriority,
		Checkpoint: &v1alpha1.Checkpointing{Grace: &metav1.Duration{Duration: 75 * time.Second}},
	}})
	job := yard.Job{Namespace: ns, Name: "saves", GPUs: 4, RunFor: clusters.RunForever}.TrainJob()
	job.Annotations = map[string]string{v1alpha1.AnnotationCheckpoint: "s3://ckpt/$(UID)"}
	check.Must(t, y.Hub.Create(t.Context(), job))
	want := map[string]string{
		trainjobs.EnvJobUID: string(job.UID), trainjobs.EnvAttempt: "1", trainjobs.EnvCheckpointURI: fmt.Sprintf("s3://ckpt/%s", job.UID),
	}
	first := runs(t, job, want, "")
	reports(t, first, job, 42)

	y.Edit(t, first, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Drain = true })
	want[trainjobs.EnvAttempt], want[trainjobs.EnvPreviousCluster] = "2", first
	second := runs(t, job, want, `{"progressPercentage":42`)
	y.Edit(t, first, func(worker *v1alpha1.WorkerCluster) { worker.Spec.Drain = false })

	all := map[string]int64{quads: 4, octets: 8}[second]
	urgent := yard.Job{Namespace: ns, Name: "urgent", Nodes: 3, GPUs: all, RunFor: "1s"}.TrainJob()
	urgent.Annotations = map[string]string{v1alpha1.AnnotationPriorityClass: "soon", v1alpha1.AnnotationClusters: "pool=" + second}
	check.Must(t, y.Hub.Create(t.Context(), urgent))
	want[trainjobs.EnvAttempt], want[trainjobs.EnvPreviousCluster] = "3", second
	runs(t, job, want, "")
	complete(t, urgent)

	y.Eventually(t, func(g gomega.Gomega) {
		history := y.DispatchOf(g, job).Status.History
		g.Expect(history).To(gomega.HaveLen(2))
		g.Expect(history[0].Outcome).To(gomega.Equal(v1alpha1.OutcomeDrained))
		g.Expect(history[0].FirstRunningTime).NotTo(gomega.BeNil())
		g.Expect(history[0].Progress).NotTo(gomega.BeNil())
		g.Expect(history[1].Outcome).To(gomega.Equal(v1alpha1.OutcomePreempted))
		g.Expect(history[1].FirstRunningTime).NotTo(gomega.BeNil())
	})
	stored := &trainer.TrainJob{}
	check.Must(t, y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), stored))
	check.Equal(t, int64(1), stored.Generation, "the hub TrainJob was written: its generation")
}

// runs waits until the hub says that an attempt of a job runs, and its pod on the worker has these variables, and no
// others of ours but its cluster and progress, which begins so. It returns the worker.
func runs(t *testing.T, job *trainer.TrainJob, want map[string]string, progress string) (worker string) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		d := y.DispatchOf(g, job)
		g.Expect(fmt.Sprint(d.Spec.Attempt)).To(gomega.Equal(want[trainjobs.EnvAttempt]))
		g.Expect(d.Status.FirstRunningTime).NotTo(gomega.BeNil())
		worker = string(d.Spec.Cluster)
		pods := y.PodsOf(g, worker, job)
		g.Expect(pods).To(gomega.HaveLen(1))
		g.Expect(pods[0].Spec.TerminationGracePeriodSeconds).To(gomega.Equal(ptr.To(int64(75))))
		told := map[string]string{}
		for _, variable := range pods[0].Spec.Containers[0].Env {
			told[variable.Name] = variable.Value
		}
		for name, value := range want {
			g.Expect(told).To(gomega.HaveKeyWithValue(name, value))
		}
		g.Expect(told).To(gomega.HaveKeyWithValue(trainjobs.EnvCluster, worker))
		if want[trainjobs.EnvPreviousCluster] == "" {
			g.Expect(told).NotTo(gomega.HaveKey(trainjobs.EnvPreviousCluster))
		}
		g.Expect(told[trainjobs.EnvLastProgress]).To(gomega.HavePrefix(progress))
	})
	return worker
}

// reports plays the status server of the worker: the process of the copy reports progress. It waits until the hub shows it.
func reports(t *testing.T, worker string, job *trainer.TrainJob, percentage int64) {
	t.Helper()
	y.Eventually(t, func(g gomega.Gomega) {
		copy := trainjobs.New()
		g.Expect(y.Workers[worker].Get(t.Context(), client.ObjectKeyFromObject(job), copy)).To(gomega.Succeed())
		g.Expect(unstructured.SetNestedMap(copy.Object, map[string]any{
			"progressPercentage": percentage, "lastUpdatedTime": "2026-11-27T11:00:00Z",
		}, "status", "trainerStatus")).To(gomega.Succeed())
		g.Expect(y.Workers[worker].Status().Update(t.Context(), copy)).To(gomega.Succeed())
		shown := trainjobs.New()
		g.Expect(y.Hub.Get(t.Context(), client.ObjectKeyFromObject(job), shown)).To(gomega.Succeed())
		g.Expect(trainjobs.ProgressOf(shown)).NotTo(gomega.BeNil())
	})
}
