// Copyright The Trainyard Authors.
// SPDX-License-Identifier: Apache-2.0

package placement

import (
	"strings"
	"testing"

	trainer "github.com/kubeflow/trainer/v2/pkg/apis/trainer/v1alpha1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/trainyard/trainyard/api/v1alpha1"
	"github.com/trainyard/trainyard/test/check"
	"github.com/trainyard/trainyard/test/stage"
)

// runs has the status of a worker say which release of the Kubeflow Trainer runs TrainJobs there: without an agent.
func (s *scene) runs(t *testing.T, name v1alpha1.ClusterName, release string) {
	t.Helper()
	s.worker(t, name, func(worker *v1alpha1.WorkerCluster) {
		meta.SetStatusCondition(&worker.Status.Conditions, metav1.Condition{
			Type: v1alpha1.WorkerClusterAgentReady, Status: metav1.ConditionFalse, Reason: v1alpha1.ReasonAgentMissing,
		})
	})
	s.knows(t, name, v1alpha1.TrainerAPI{Version: "v1alpha1", Release: release})
}

// runtime makes a TrainingRuntime of the namespace.
func (s *scene) runtime(t *testing.T, name, text string) {
	t.Helper()
	runtime := &trainer.TrainingRuntime{ObjectMeta: metav1.ObjectMeta{Namespace: s.Namespace, Name: name}}
	check.Must(t, yaml.UnmarshalStrict([]byte(text), &runtime.Spec))
	check.Must(t, s.Hub.Admin.Create(t.Context(), runtime))
}

// of lets a job use a TrainingRuntime of the namespace, and ask for these resources.
func of(name string, resources corev1.ResourceList) func(*trainer.TrainJob) {
	return func(job *trainer.TrainJob) {
		job.Spec.RuntimeRef = trainer.RuntimeRef{Name: name, Kind: new(trainer.TrainingRuntimeKind)}
		job.Spec.Trainer = &trainer.Trainer{ResourcesPerNode: &corev1.ResourceRequirements{Requests: resources, Limits: resources}}
	}
}

const withoutPolicy = `
template: {spec: {replicatedJobs: [{name: node, template: {
  metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}},
  spec: {template: {spec: {containers: [{name: node, image: i, resources: {requests: {cpu: "1"}}}]}}}}}]}}
`

const withGPUs = `
mlPolicy: {numNodes: 2}
template: {spec: {replicatedJobs: [{name: node, template: {
  metadata: {labels: {trainer.kubeflow.org/trainjob-ancestor-step: trainer}},
  spec: {template: {spec: {containers: [{name: node, image: i, resources: {limits: {nvidia.com/gpu: "8"}}}]}}}}}]}}
`

// On a worker whose Kubeflow Trainer puts the resources of a job in place of the runtime's, such a pod can request more than
// the hub's release makes of it. No job comes there that does not fit as the worker makes it.
func TestOlderTrainerIsNotOverfilled(t *testing.T) {
	s := newScene(t)
	s.runs(t, east, "2.2")
	s.worker(t, west, cordon)
	s.runtime(t, "loose", withoutPolicy)
	s.Submit(t, "job", of("loose", list(string(gpu), "16")))
	d := s.expect(t, "job", v1alpha1.ReasonNoFit)
	const words = "with the resources of spec.trainer.resourcesPerNode in place of the runtime's (Kubeflow Trainer 2.2)"
	if line := reasonsOf(d)[east]; !strings.Contains(line, "16 nvidia.com/gpu") || !strings.HasSuffix(line, words) {
		t.Errorf("the line of east says %q", line)
	}

	s.runs(t, east, "2.3") // It is upgraded.
	check.Must(t, s.reconciler.decider.Pass(t.Context()))
	if !s.drain()[s.Key("job")] {
		t.Error("nobody looks at the job again")
	}
	d, _ = s.reconcile(t, "job")
	check.Equal(t, east, d.Spec.Cluster, "the worker, where the pods are as the hub counts them")
	check.Diff(t, list("cpu", "1"), d.Spec.PodSets[0].Requests, "requests of a pod")
}

// A pod can request less there too. The Dispatch records what the worker makes, and what its Kueue may charge.
func TestOlderTrainerIsFilled(t *testing.T) {
	s := newScene(t)
	s.runs(t, east, "2.2")
	s.worker(t, west, cordon)
	s.runtime(t, "gpus", withGPUs)
	s.Submit(t, "first", of("gpus", list("cpu", "4")))
	s.Submit(t, "second", of("gpus", list("cpu", "4")))
	for _, name := range []string{"first", "second"} { // With the GPUs of the runtime one of them would fill the worker.
		d, _ := s.reconcile(t, name)
		check.Equal(t, east, d.Spec.Cluster, "the worker of job %s: %v", name, reasonsOf(d))
		check.Diff(t, list("cpu", "4"), d.Spec.PodSets[0].Requests, "requests of a pod")
		check.Diff(t, list("cpu", "4", string(gpu), "8"), d.Spec.PodSets[0].MergedRequests, "merged requests of a pod")
		if words := d.Annotations[v1alpha1.AnnotationDecision]; !strings.Contains(words, "in place of the runtime's (Kubeflow Trainer 2.2)") {
			t.Errorf("the decision is %q", words)
		}
	}
	needs, err := s.reconciler.Demand(t.Context(), stage.ReadTrainJob(t, s.Hub.Admin, s.Key("first")), east)
	check.Must(t, err)
	check.Diff(t, list("cpu", "4"), needs.PodSets[0].Requests, "requests of a pod of a copy that is adopted on the worker")
}

// As long as it is not known who runs the TrainJobs of a worker with older CRDs, the larger amounts count. When an agent
// answers, its pods count.
func TestUnknownTrainerCountsTheLarger(t *testing.T) {
	s := newScene(t)
	s.knows(t, east, v1alpha1.TrainerAPI{Version: "v1alpha1", Release: "2.2"})
	s.worker(t, west, cordon)
	s.runtime(t, "loose", withoutPolicy)
	s.Submit(t, "job", of("loose", list(string(gpu), "16")))
	d := s.expect(t, "job", v1alpha1.ReasonNoFit)
	if line := reasonsOf(d)[east]; !strings.Contains(line, "; assumed: ") {
		t.Errorf("the line of east says %q", line)
	}
	s.worker(t, east, withAgent)
	s.knows(t, east, v1alpha1.TrainerAPI{Version: "v1alpha1", Release: "2.2"})
	d, _ = s.reconcile(t, "job")
	check.Equal(t, east, d.Spec.Cluster, "the worker, where the agent runs the job")
}
