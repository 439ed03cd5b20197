// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	jobsetv1alpha2 "sigs.k8s.io/jobset/api/jobset/v1alpha2"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/clusters"
	"github.com/trainyard/trainyard/test/yard"
)

// The Dispatch shows the steps of a job with initializers, its restarts, its start and its end. For a short job it
// shows them at the end. The jobs run on small, because TestWorkerIsRenamed takes large away.
func TestProgressIsShown(t *testing.T) {
	t.Parallel()
	runtime := restartingRuntime(t)
	apply(t, runtime)
	fails := yard.Job{Name: "progress", GPUs: 1, RunFor: "10s", Fail: "lost its GPU"}.TrainJob()
	fails.Spec.RuntimeRef.Name = runtime.Name
	completes := yard.Job{Name: "progress-short", GPUs: 1, RunFor: "1s"}.TrainJob()
	completes.Spec.RuntimeRef.Name = runtime.Name
	for _, job := range []*trainer.TrainJob{fails, completes} {
		metav1.SetMetaDataAnnotation(&job.ObjectMeta, v1alpha1.AnnotationClusters, "size="+small)
		apply(t, job)
	}
	steps := func(trainer v1alpha1.StepState) []v1alpha1.Step {
		return []v1alpha1.Step{
			{Name: v1alpha1.StepDatasetInitializer, State: v1alpha1.StepSucceeded},
			{Name: v1alpha1.StepModelInitializer, State: v1alpha1.StepSucceeded},
			{Name: v1alpha1.StepTrainer, State: trainer},
		}
	}

	worker := y.Workers[placedOn(t, fails)]
	jobSet := &jobsetv1alpha2.JobSet{ObjectMeta: metav1.ObjectMeta{Namespace: fails.Namespace, Name: fails.Name}}
	y.Eventually(t, func(g gomega.Gomega) {
		current(t.Context(), g, worker, jobSet)
	})
	for restarts := range int32(2) {
		y.Eventually(t, func(g gomega.Gomega) {
			status := y.DispatchOf(g, fails).Status
			g.Expect(status.Phase).To(gomega.Equal(v1alpha1.PhaseRunning))
			g.Expect(status.Steps).To(gomega.Equal(steps(v1alpha1.StepRunning)))
			g.Expect(status.Restarts).To(gomega.Equal(restarts))
			g.Expect(status.StartTime).To(gomega.HaveValue(gomega.BeComparableTo(jobSet.CreationTimestamp)))
			g.Expect(status.CompletionTime).To(gomega.BeNil())
		})
	}
	table, err := y.Yard.Hub.Kubectl(t.Context(), "get", "dispatch", fails.Name, "-o", "wide")
	check.Must(t, err)
	t.Logf("kubectl get dispatch -o wide:\n%s", table)
	if rows := strings.Split(string(table), "\n"); !strings.Contains(rows[0], "RESTARTS") || !strings.Contains(rows[1], v1alpha1.StepTrainer) {
		t.Errorf("kubectl get dispatch -o wide names neither restarts nor the step that runs:\n%s", table)
	}

	expectEnd := func(job *trainer.TrainJob, kind string, want v1alpha1.DispatchStatus) {
		t.Helper()
		done := ends(t, job, kind)
		want.CompletionTime = &meta.FindStatusCondition(done.Status.Conditions, kind).LastTransitionTime
		y.Eventually(t, func(g gomega.Gomega) {
			status := y.DispatchOf(g, job).Status
			g.Expect(status.Phase).To(gomega.Equal(v1alpha1.PhaseFinished))
			got := v1alpha1.DispatchStatus{
				Steps: status.Steps, Restarts: status.Restarts, StartTime: status.StartTime, CompletionTime: status.CompletionTime,
			}
			if want.StartTime == nil { // Its JobSet may be gone by now.
				g.Expect(got.StartTime).NotTo(gomega.BeNil())
				g.Expect(got.StartTime.After(got.CompletionTime.Time)).To(gomega.BeFalse(), "%s began after its end", job.Name)
				got.StartTime = nil
			}
			g.Expect(cmp.Diff(want, got)).To(gomega.BeEmpty(), job.Name)
		})
	}
	expectEnd(fails, trainer.TrainJobFailed, v1alpha1.DispatchStatus{
		Steps: steps(v1alpha1.StepFailed), Restarts: 1, StartTime: &jobSet.CreationTimestamp,
	})
	expectEnd(completes, trainer.TrainJobComplete, v1alpha1.DispatchStatus{Steps: steps(v1alpha1.StepSucceeded)})

	if clusters.OnKind() {
		return // There is no audit log.
	}
	writes := 0
	events, _ := requests(t, y.Yard.Hub, managerUser, 0)
	for _, event := range events {
		if event.Verb == "patch" && event.ObjectRef.Resource == "dispatches" && event.ObjectRef.Name == fails.Name {
			writes++
		}
	}
	t.Logf("the Dispatch of a job that restarted once was written %d times", writes)
}

// restartingRuntime is the trainer module's runtime for torchtune, with initializers. It lacks the volume that these
// share with the trainer, because the clusters have no storage for it. Its jobs restart once, and fail with the second
// failed pod.
func restartingRuntime(t *testing.T) *trainer.ClusterTrainingRuntime {
	t.Helper()
	module, err := clusters.ModuleDir(t.Context(), "github.com/kubeflow/trainer/v2")
	check.Must(t, err)
	text, err := os.ReadFile(filepath.Join(module, "manifests/base/runtimes/torchtune/llama3_2/llama3_2_1B.yaml"))
	check.Must(t, err)
	runtime := &trainer.ClusterTrainingRuntime{}
	check.Must(t, yaml.UnmarshalStrict(text, runtime))
	runtime.Name = "torchtune-restarts"
	spec := &runtime.Spec.Template.Spec
	spec.VolumeClaimPolicies = nil
	spec.FailurePolicy = &jobsetv1alpha2.FailurePolicy{MaxRestarts: 1}
	for i := range spec.ReplicatedJobs {
		job := &spec.ReplicatedJobs[i].Template.Spec
		job.BackoffLimit = ptr.To[int32](0)
		for j := range job.Template.Spec.Containers {
			job.Template.Spec.Containers[j].VolumeMounts = nil
		}
	}
	return runtime
}
