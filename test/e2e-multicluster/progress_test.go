// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	"github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
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

// A job that fits nowhere waits, and says why for each worker. It is placed as soon as a node is added.
func TestWaitingJobIsPlacedWhenANodeIsAdded(t *testing.T) {
	job := submit(t, yard.Job{Name: "waits", GPUs: 16, RunFor: "1s"})
	d := waitsFor(t, job, v1alpha1.ReasonNoFit)
	var explained []v1alpha1.ClusterName
	for _, line := range d.Status.Explanation {
		explained = append(explained, line.Cluster)
		if line.Reason != v1alpha1.ReasonInsufficientResources || line.Message == "" {
			t.Errorf("explanation for %s: %s %q; want %s and what is lacking", line.Cluster, line.Reason, line.Message, v1alpha1.ReasonInsufficientResources)
		}
	}
	if !slices.Equal(explained, []v1alpha1.ClusterName{large, small}) {
		t.Errorf("explained are %v, want both workers, sorted", explained)
	}
	for _, event := range expectEvents(t, job, "Waiting") {
		if event.Reason == "Waiting" {
			t.Log("Event:", event.Note)
		}
	}

	// The watch tells when the decision came, however long this process takes to look.
	watch, err := y.Hub.Watch(t.Context(), &v1alpha1.DispatchList{}, client.InNamespace(job.Namespace))
	check.Must(t, err)
	defer watch.Stop()
	placed := make(chan time.Time, 1)
	go func() {
		for event := range watch.ResultChan() {
			if d, ok := event.Object.(*v1alpha1.Dispatch); ok && d.Name == job.Name && d.Spec.Cluster == large {
				placed <- time.Now()
				return
			}
		}
	}()
	usable := nodeUsable(t, "huge-0")
	check.Must(t, y.Yard.Workers[large].AddNodes(t.Context(), yard.GPUNodes("huge", 1, 16, "NVIDIA-H100")))
	t.Cleanup(func() {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "huge-0"}}
		check.Must(t, client.IgnoreNotFound(y.Workers[large].Delete(context.Background(), node)))
	})
	select {
	case at := <-placed:
		took := at.Sub(<-usable)
		t.Logf("placed %s after the node could take pods", took)
		// An idle machine needs 10 to 30 ms. A second is promised; a poll of any usual period would show.
		if took > time.Second {
			t.Errorf("placed %s after the node could take pods, want less than a second", took)
		}
	case <-time.After(y.Timeout):
		t.Fatal("the job was not placed after a node for it was added")
	}
	ends(t, job, trainer.TrainJobComplete)
}

// nodeUsable gives the time at which a watch shows that the node on large can take pods.
func nodeUsable(t *testing.T, name string) <-chan time.Time {
	t.Helper()
	watch, err := y.Workers[large].Watch(t.Context(), &corev1.NodeList{}, client.MatchingFields{"metadata.name": name})
	check.Must(t, err)
	t.Cleanup(watch.Stop)
	usable := make(chan time.Time, 1)
	go func() {
		for event := range watch.ResultChan() {
			node, ok := event.Object.(*corev1.Node)
			if ok && ready(node) && !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool {
				return taint.Effect == corev1.TaintEffectNoSchedule
			}) {
				usable <- time.Now()
				return
			}
		}
	}()
	return usable
}

func ready(node *corev1.Node) bool {
	return slices.ContainsFunc(node.Status.Conditions, func(condition corev1.NodeCondition) bool {
		return condition.Type == corev1.NodeReady && condition.Status == corev1.ConditionTrue
	})
}
